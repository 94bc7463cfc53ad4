package submit

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/jobs/rundir"
)

// cut writes the record that a process leaves if it is killed during sbatch.
func (c *cluster) cut(req Request, age time.Duration, elements ...int) rundir.Submission {
	c.t.Helper()
	dir, err := rundir.Create(req.Dir)
	if err != nil {
		c.t.Fatal(err)
	}
	record, err := dir.Prepare(string(req.Job.Name), req.Base, req.Version, req.Spec)
	if err != nil {
		c.t.Fatal(err)
	}
	if req.Job.Sweep != nil {
		record.Sweep = sweepRecord(req.Job.Sweep)
		for _, e := range req.Job.Sweep.Trials {
			inner, err := rundir.Create(dir.Element(e.Index).Path)
			if err != nil {
				c.t.Fatal(err)
			}
			if _, err := inner.Prepare(string(e.Job.Name), req.Base, req.Version, req.Spec); err != nil {
				c.t.Fatal(err)
			}
		}
	}
	sub := rundir.NewSubmission()
	sub.Time, sub.SpecSHA256, sub.Elements = sub.Time.Add(-age), rundir.Digest(req.Spec), elements
	record.Pending = &sub
	if err := dir.WriteRecord(record); err != nil {
		c.t.Fatal(err)
	}
	return sub
}

// TestCutShort checks a submission whose process was killed between sbatch and the update of the
// record.
func TestCutShort(t *testing.T) {
	for _, tt := range []struct {
		name    string
		age     time.Duration
		comment bool   // whether Slurm has the job, as 101
		state   string // of job 101
		ended   string // job ID in ended.json
		other   bool   // whether the next submission is for a different job file
		found   bool
		id      string
		fails   string
	}{
		{name: "found", comment: true, state: "RUNNING", found: true, id: "101"},
		{name: "found after its end", age: time.Hour, comment: true, state: "COMPLETED", found: true, id: "101"},
		{name: "found, for another job file", comment: true, state: "RUNNING", other: true, fails: "in use by job 101"},
		{name: "found after its end, for another job file", comment: true, state: "FAILED 256 NonZeroExitCode", other: true, id: "102"},
		{name: "not found, at once", id: "101"},
		{name: "not found, later", age: time.Hour, id: "101"},
		{name: "not found, by a clock that is ahead", age: -time.Hour, id: "101"},
		{name: "forgotten by Slurm, but it has run", age: time.Hour, ended: "77", found: true, id: "77"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			req := c.request(job("x", "", ""))
			sub := c.cut(req, tt.age)
			if tt.comment {
				c.write(c.fake, "101.job", sub.Comment()+"\n")
				c.state("101", tt.state)
			}
			if tt.ended != "" {
				if err := c.dir("x").WriteEnd(rundir.End{JobID: tt.ended, Exit: 0, Time: time.Now()}); err != nil {
					t.Fatal(err)
				}
			}
			if tt.other {
				req = c.request(job("x", `partition = "other"`, ""))
			}
			r, err := c.submit(req)
			if tt.fails != "" {
				mustFail(t, err, tt.fails)
			} else if err != nil || r.JobID != tt.id || r.Found != tt.found {
				t.Errorf("%+v, %v; said %q", r, err, c.said)
			}
			record := c.record(c.dir("x"))
			if record.Pending != nil || tt.id != "" && record.LastJob() != tt.id || tt.comment && record.Of("101").ID != sub.ID {
				t.Errorf("%+v", record)
			}
			if sent := len(c.calls()) > 0; sent == (tt.found || tt.fails != "") {
				t.Errorf("sbatch was called: %v", sent)
			}
			if !strings.Contains(c.said[0], "was interrupted; looking up its job") {
				t.Errorf("said %q", c.said)
			}
		})
	}
}

// TestOrphanedSbatch checks an sbatch that outlives its caller and creates the job later.
func TestOrphanedSbatch(t *testing.T) {
	c := newCluster(t)
	req := c.request(job("x", "", ""))
	sub := c.cut(req, -time.Minute)                // stored times have a resolution of one second
	c.submitter.timeouts.orphan = 10 * time.Minute // for a busy machine; the wait ends when the job exists
	go func() {
		time.Sleep(100 * time.Millisecond)
		c.write(c.fake, "101.job", sub.Comment()+"\n")
	}()
	if r := c.submitted(req); r.JobID != "101" || !r.Found || c.jobs() != 1 {
		t.Errorf("%+v, %d jobs", r, c.jobs())
	}
}

// TestControllerDownWhileSettling checks that an interrupted submission stays pending if Slurm
// cannot be queried.
func TestControllerDownWhileSettling(t *testing.T) {
	c := newCluster(t)
	req := c.request(job("x", "", ""))
	c.cut(req, time.Hour)
	c.squeue(`echo "slurm_load_jobs error: Unable to contact slurm controller" >&2; exit 1`)
	_, err := c.submit(req)
	mustFail(t, err, "find job of interrupted submission", "Unable to contact")
	if c.record(c.dir("x")).Pending == nil || c.calls() != nil {
		t.Errorf("%+v, %q", c.record(c.dir("x")), c.calls())
	}
}

// TestCutShortBetweenElements checks that no trial is submitted twice if only some trials have
// their job IDs.
func TestCutShortBetweenElements(t *testing.T) {
	for _, known := range []int{0, 1, 3} {
		for _, forgotten := range []bool{false, true} {
			if forgotten && known == 0 {
				continue
			}
			t.Run(fmt.Sprint(known, " elements know it, forgotten by Slurm ", forgotten), func(t *testing.T) {
				t.Parallel()
				c := newCluster(t)
				req := c.request(swept)
				sub := c.cut(req, time.Hour, 0, 1, 2)
				if !forgotten {
					c.write(c.fake, "101.job", sub.Comment()+"\n")
				}
				for i := range known {
					dir := c.dir("s").Element(i)
					record := c.record(dir)
					inner := sub
					inner.JobID, inner.Elements = fmt.Sprint("101_", i), nil
					record.Submissions = append(record.Submissions, inner)
					if err := dir.WriteRecord(record); err != nil {
						t.Fatal(err)
					}
				}
				r, err := c.submit(req)
				if err != nil || r.JobID != "101" || !r.Found || c.calls() != nil {
					t.Fatalf("%+v, %v, %q", r, err, c.calls())
				}
				for i := range 3 {
					if record := c.record(c.dir("s").Element(i)); len(record.Submissions) != 1 || record.LastJob() != fmt.Sprint("101_", i) {
						t.Errorf("element %d: %+v", i, record.Submissions)
					}
				}
				if record := c.record(c.dir("s")); record.Pending != nil || record.LastJob() != "101" {
					t.Errorf("%+v", record)
				}
			})
		}
	}
}

// TestInUseCutShort checks that a job without a recorded ID also blocks a launcher.
func TestInUseCutShort(t *testing.T) {
	c := newCluster(t)
	req := c.request(job("x", "", ""))
	sub := c.cut(req, time.Hour)
	if err := CheckNotInUse(t.Context(), c.submitter.Slurm, c.dir("x")); err != nil {
		t.Error(err)
	}
	c.write(c.fake, "101.job", sub.Comment()+"\n")
	c.state("101", "PENDING")
	mustFail(t, CheckNotInUse(t.Context(), c.submitter.Slurm, c.dir("x")), "in use by job 101, which is pending")
	c.state("101", "FAILED 256")
	if err := CheckNotInUse(t.Context(), c.submitter.Slurm, c.dir("x")); err != nil {
		t.Error(err)
	}
	c.squeue("exit 1")
	mustFail(t, CheckNotInUse(t.Context(), c.submitter.Slurm, c.dir("x")), "interrupted submission")
}

// TestRecoverPendingReadsRecordAgain checks that a submission that another process has recovered, before
// this process takes the lock, stays as that process has recorded it.
func TestRecoverPendingReadsRecordAgain(t *testing.T) {
	c := newCluster(t)
	dir := c.dir("x")
	sub := c.cut(c.request(job("x", "", "")), time.Minute)
	c.write(c.fake, "101.job", sub.Comment()+"\n")
	c.state("101", "RUNNING")
	lock, err := os.Create(filepath.Join(dir.Path, "submit.lock"))
	if err != nil {
		t.Fatal(err)
	}
	opened := make(chan os.Signal, 1)
	signal.Notify(opened, syscall.SIGIO)
	defer signal.Stop(opened)
	// The lease delays the lock.
	if _, err := unix.FcntlInt(lock.Fd(), unix.F_SETLEASE, unix.F_WRLCK); err != nil {
		t.Fatal(err)
	}
	record := c.record(dir)
	record.Pending = nil
	sub.JobID = "101"
	record.Add(sub)
	record.Add(rundir.Submission{JobID: "102"})
	written := make(chan error, 1)
	go func() {
		<-opened
		written <- errors.Join(dir.WriteRecord(record), lock.Close())
	}()
	if err := errors.Join(c.submitter.RecoverPending(t.Context(), dir), <-written); err != nil {
		t.Fatal(err)
	}
	if got := c.record(dir); got.LastJob() != "102" || len(got.Submissions) != 2 {
		t.Errorf("got %+v", got.Submissions)
	}
}

// TestInterruptDuringRecovery checks the error of a submission that is interrupted while it waits for the
// job of an earlier one.
func TestInterruptDuringRecovery(t *testing.T) {
	c := newCluster(t)
	req := c.request(job("x", "", ""))
	c.cut(req, -time.Minute)
	c.submitter.timeouts.orphan = time.Minute
	ctx, cancel := context.WithCancelCause(t.Context())
	interrupted := errors.New("interrupted")
	c.submitter.Say = func(string) { cancel(interrupted) }
	if _, err := c.submitter.Submit(ctx, req); !errors.Is(err, interrupted) || hints.Of(err) != "" {
		t.Errorf("got %v, hint %q", err, hints.Of(err))
	}
	if c.record(c.dir("x")).Pending == nil {
		t.Error("the submission is not pending")
	}
}

// TestInterruptDuringChain checks that an interrupt ends the submission of a chain after the job that is
// being submitted.
func TestInterruptDuringChain(t *testing.T) {
	c := newCluster(t)
	c.sbatch(`made "$@"; while [ ! -f interrupted ]; do sleep 0.02; done; echo $id`)
	req := c.request(job("x", "", ""))
	req.Chain = 3
	ctx, cancel := context.WithCancelCause(t.Context())
	interrupted := errors.New("interrupted")
	go func() {
		for c.jobs() == 0 {
			time.Sleep(5 * time.Millisecond)
		}
		cancel(interrupted)
		c.write(c.fake, "interrupted", "")
	}()
	_, err := c.submitter.Submit(ctx, req)
	if !errors.Is(err, interrupted) || !strings.Contains(hints.Of(err), "ddpbatch cancel") {
		t.Errorf("got %v, hint %q", err, hints.Of(err))
	}
	if record := c.record(c.dir("x")); record.LastJob() != "101" || record.HasChain() || c.jobs() != 1 {
		t.Errorf("got %+v, %d jobs", record, c.jobs())
	}
}
