package submit

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/jobs/rundir"
)

// TestOneJob checks that, for every reply of sbatch, either there is one job and the record has
// it, or there is no job in Slurm or the record.
func TestOneJob(t *testing.T) {
	const lost = `echo "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation" >&2; exit 1`
	for _, tt := range []struct {
		name, sbatch, squeue string
		id                   string // of the job, or empty
		fails, hint          string
		pending              bool // whether the submission stays pending
		removed              bool // whether the run directory is removed, because nothing reached Slurm
	}{
		{name: "plain", sbatch: normal, id: "101"},
		{name: "warnings first", sbatch: `echo "sbatch: warning: 7 nodes are slow" >&2; echo "Welcome to the cluster"; echo; ` + normal, id: "101"},
		{name: "with a cluster", sbatch: `made "$@"; echo "$id;hall"`, id: "101"},
		{name: "no id, and a job", sbatch: `made "$@"`, id: "101"},
		{name: "no id, and no job", sbatch: `true`, fails: "printed no job ID", hint: "has no such job"},
		{name: "a refusal", sbatch: `echo "sbatch: error: Batch job submission failed: Invalid account or account/partition combination specified" >&2; exit 1`,
			fails: "Invalid account", hint: "slurm.account", removed: true},
		{name: "an option that it does not know", sbatch: `echo "sbatch: unrecognized option '--x'" >&2; exit 1`, fails: "unrecognized option", removed: true},
		{name: "an answer lost, and a job", sbatch: `made "$@"; ` + lost, id: "101"},
		{name: "a lost response, and a job that appears later", sbatch: `(sleep 0.1; made "$@") >/dev/null 2>&1 & ` + lost, id: "101"},
		{name: "an answer lost, and no job", sbatch: lost, fails: "Socket timed out"},
		{name: "an answer lost, and the controller too", sbatch: `made "$@"; ` + lost, squeue: `echo "slurm_load_jobs error: Unable to contact slurm controller" >&2; exit 1`,
			fails: "Unable to contact slurm controller", hint: "never submitted twice", pending: true},
		{name: "killed, and a job", sbatch: `made "$@"; kill -9 $$`, id: "101"},
		{name: "killed, and no job", sbatch: `kill -9 $$`, fails: "killed"},
		{name: "an error of its own, and a job", sbatch: `made "$@"; echo "spank: plugin failed" >&2; exit 1`, id: "101"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			c.sbatch(tt.sbatch)
			if tt.squeue != "" {
				c.squeue(tt.squeue)
			}
			r, err := c.submit(c.request(job("x", "", "")))
			var record rundir.Record
			if tt.removed {
				c.mustBeRemoved(c.dir("x"))
			} else {
				record = c.record(c.dir("x"))
			}
			if tt.fails == "" {
				if err != nil || r.JobID != tt.id || record.LastJob() != tt.id || c.jobs() != 1 {
					t.Fatalf("%+v, %v, recorded as %q, %d jobs", r, err, record.LastJob(), c.jobs())
				}
			} else {
				mustFail(t, err, tt.fails)
				if h := hints.Of(err); !strings.Contains(h, tt.hint) {
					t.Errorf("hint %q; want %q in it", h, tt.hint)
				}
			}
			if (record.Pending != nil) != tt.pending {
				t.Errorf("pending: %+v", record.Pending)
			}
			if n := len(c.calls()); n != 1 {
				t.Errorf("sbatch was called %d times", n)
			}
			// Submit again without faults. An existing job is found or rejected, and a missing
			// job is created.
			c.sbatch(normal)
			c.squeue("")
			r, err = c.submit(c.request(job("x", "", "")))
			switch {
			case tt.id != "":
				mustFail(t, err, "in use by job 101")
			case tt.pending != r.Found || err != nil || r.JobID != "101":
				t.Errorf("again: %+v, %v", r, err)
			}
			if c.jobs() != 1 {
				t.Errorf("%d jobs", c.jobs())
			}
		})
	}
}

// TestReplyTimeoutBeginsAfterSbatch checks that the wait for a slow controller starts when sbatch
// ends, not when it starts. An sbatch that hangs for a minute must not use up this time.
func TestReplyTimeoutBeginsAfterSbatch(t *testing.T) {
	c := newCluster(t)
	c.submitter.timeouts.reply = 10 * time.Second // for a busy machine; the wait ends when the job exists
	c.sbatch(`sleep 0.4; (sleep 0.1; made "$@") >/dev/null 2>&1 & kill -9 $$`)
	if r := c.submitted(c.request(job("x", "", ""))); r.JobID != "101" {
		t.Errorf("%+v", r)
	}
}

// TestNoSbatch checks the hint on a machine without Slurm, and that no run directory remains.
func TestNoSbatch(t *testing.T) {
	c := newCluster(t)
	if err := os.Remove(filepath.Join(c.bin, "sbatch")); err != nil {
		t.Fatal(err)
	}
	c.submitter.Slurm.Environ = []string{"PATH=" + c.bin, "FAKE=" + c.fake}
	req := c.request(job("x", "", ""))
	req.Environ = c.submitter.Slurm.Environ
	_, err := c.submit(req)
	if !errors.Is(err, exec.ErrNotFound) || !strings.Contains(hints.Of(err), "module load slurm") {
		t.Errorf("%v; hint %q", err, hints.Of(err))
	}
	c.mustBeRemoved(c.dir("x"))
}

// mustBeRemoved checks that a failed submission left no directory behind.
func (c *cluster) mustBeRemoved(dir rundir.Dir) {
	c.t.Helper()
	for path := dir.Path; path != c.base; path = filepath.Dir(path) {
		if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
			c.t.Errorf("%s is left behind: %v", path, err)
		}
	}
}

// TestFailedSubmissionKeepsWhatWasThere checks that a submission that fails before it reaches
// Slurm removes only directories that it created.
func TestFailedSubmissionKeepsWhatWasThere(t *testing.T) {
	const refused = `echo "sbatch: error: Batch job submission failed: Invalid account or account/partition combination specified" >&2; exit 1`
	for name, before := range map[string]func(c *cluster){
		"an empty directory": func(c *cluster) {
			if _, err := rundir.Create(c.dir("x").Path); err != nil {
				t.Fatal(err)
			}
		},
		"an earlier job": func(c *cluster) {
			c.submitted(c.request(job("x", "", "")))
			c.state("101", "COMPLETED")
		},
		"a run that was launched meanwhile": func(c *cluster) {
			c.write(c.fake, "meanwhile", `echo '{"event":"begin"}' >`+filepath.Join(c.dir("x").Path, "attempts.jsonl"))
		},
		"another run": func(c *cluster) { c.write(c.dir("y").Path, "record.json", "{}") },
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			before(c)
			c.sbatch("[ ! -f ./meanwhile ] || . ./meanwhile; " + refused)
			_, err := c.submit(c.request(job("x", "", "")))
			mustFail(t, err, "Invalid account")
			if name == "another run" {
				if _, err := os.Stat(c.dir("x").Path); !errors.Is(err, os.ErrNotExist) {
					t.Errorf("the run directory is left behind: %v", err)
				}
				if _, err := os.Stat(c.dir("y").Path); err != nil {
					t.Errorf("the other run: %v", err)
				}
				return
			}
			if r := c.record(c.dir("x")); r.Pending != nil {
				t.Errorf("%+v", r)
			}
		})
	}
}

// TestInterruptedBeforeSbatch checks that a submission that is interrupted before sbatch leaves
// nothing pending.
func TestInterruptedBeforeSbatch(t *testing.T) {
	c := newCluster(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	stopped := errors.New("stopped")
	req := c.request(job("x", "", ""))
	script := req.Script
	req.Script = func(dir rundir.Dir, elements []int) ([]byte, error) {
		cancel(stopped)
		return script(dir, elements)
	}
	if _, err := c.submitter.Submit(ctx, req); !errors.Is(err, stopped) {
		t.Errorf("%v", err)
	}
	if c.calls() != nil {
		t.Errorf("%q", c.calls())
	}
	c.mustBeRemoved(c.dir("x"))
}

// TestInterruptedDuringSbatch checks that a submission that is interrupted during sbatch still
// records the job.
func TestInterruptedDuringSbatch(t *testing.T) {
	c := newCluster(t)
	c.sbatch(`: >begun; sleep 0.2; ` + normal)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		for ctx.Err() == nil {
			if _, err := os.Stat(filepath.Join(c.fake, "begun")); err == nil {
				cancel()
			}
			time.Sleep(time.Millisecond)
		}
	}()
	r, err := c.submitter.Submit(ctx, c.request(job("x", "", "")))
	if err != nil || r.JobID != "101" || c.record(c.dir("x")).LastJob() != "101" {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestTwoAtOnce checks that, of two concurrent submissions, one creates the job and the other
// returns an error.
func TestTwoAtOnce(t *testing.T) {
	c := newCluster(t)
	c.sbatch(`sleep 0.1; ` + normal)
	requests := []Request{c.request(job("x", "", "")), c.request(job("x", "", ""))}
	errs := make(chan error)
	for _, req := range requests {
		go func() {
			s := c.submitter
			s.Say = func(string) {}
			_, err := s.Submit(t.Context(), req)
			errs <- err
		}()
	}
	first, second := <-errs, <-errs
	if first == nil {
		first, second = second, first
	}
	if second != nil || c.jobs() != 1 {
		t.Errorf("%v, %v, %d jobs", first, second, c.jobs())
	}
	mustFail(t, first, "")
	if first != nil && !strings.Contains(first.Error(), "another submission is in progress") && !strings.Contains(first.Error(), "in use by job 101") {
		t.Errorf("%v", first)
	}
}

// TestCommandLine checks that the command line of sbatch contains the job's comment, dependencies,
// and script. Environment variables that would change the job do not reach sbatch.
func TestCommandLine(t *testing.T) {
	c := newCluster(t)
	c.sbatch(`env >env; pwd >cwd; ` + normal)
	c.state("55", "PENDING")
	req := c.request(job("x", `dependency = ["afterany:55"]`, ""))
	req.Environ = append(req.Environ, "SBATCH_PARTITION=other", "SLURM_JOB_ID=7", "MINE=kept")
	c.submitted(req)
	record := c.record(c.dir("x"))
	want := "--parsable --comment=ddpbatch:" + record.Last().ID + " --dependency=afterany:55 " + c.dir("x").Script()
	if got := c.calls(); len(got) != 1 || got[0] != want {
		t.Errorf("%q; want %q", got, want)
	}
	env, err := os.ReadFile(filepath.Join(c.fake, "env"))
	if err != nil {
		t.Fatal(err)
	}
	if s := string(env); strings.Contains(s, "SBATCH_") || strings.Contains(s, "SLURM_") || !strings.Contains(s, "MINE=kept\n") {
		t.Errorf("sbatch's environment:\n%s", s)
	}
	s := record.Last()
	if s.Host != "login" || s.User != "ada" || s.Version != "1" || s.ProgramSHA256 != "digest" || s.Slurm != "22.05.8" ||
		s.SpecSHA256 != rundir.Digest(req.Spec) || time.Since(s.Time) > time.Hour {
		t.Errorf("recorded: %+v", s)
	}
}

// TestScriptWhileDirectoryIsAway checks that sbatch does not open the script by its path if another user
// has moved a directory above the run directory away for a moment, so that its owner cannot be checked.
func TestScriptWhileDirectoryIsAway(t *testing.T) {
	c := newCluster(t)
	c.sbatch(`cat >input; ` + normal)
	req := c.request(job("x", "", ""))
	script := req.Script
	req.Script = func(dir rundir.Dir, elements []int) ([]byte, error) {
		text, err := script(dir, elements)
		return text, errors.Join(err, os.Rename(filepath.Join(c.base, "runs"), filepath.Join(c.base, "away")))
	}
	c.submitted(req)
	input, err := os.ReadFile(filepath.Join(c.fake, "input"))
	if calls := c.calls(); err != nil || len(calls) != 1 || strings.Contains(calls[0], c.dir("x").Script()) || !strings.Contains(string(input), "ddpbatch launch") {
		t.Errorf("called %q with input %q, %v", calls, input, err)
	}
}

// TestFailedSubmissionKeepsExchangedDirectory checks that a failed submission removes nothing from a
// directory that another user has renamed to the path of the new run directory before it was opened.
func TestFailedSubmissionKeepsExchangedDirectory(t *testing.T) {
	c := newCluster(t)
	dir := c.dir("x")
	c.write(dir.Path, "results", "weeks of work")
	held, release, err := dir.Hold()
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	s := c.submitter
	s.timeouts = s.timeouts.withDefaults()
	_, err = s.submitIn(t.Context(), c.request(job("x", "", "")), held, []string{dir.Path})
	mustFail(t, err, "is not empty")
	if _, err := os.Stat(filepath.Join(dir.Path, "results")); err != nil {
		t.Error(err)
	}
}
