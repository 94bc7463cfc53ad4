package runs

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/ddpbatch/ddpbatch/jobs/rundir"
	"github.com/ddpbatch/ddpbatch/jobs/watch"
	"github.com/ddpbatch/ddpbatch/slurm"
)

// An openCounter counts the files that are opened in some directories, by inotify.
type openCounter struct {
	t  *testing.T
	fd int
}

func newOpenCounter(t *testing.T, dirs ...string) *openCounter {
	t.Helper()
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		t.Skipf("inotify: %v", err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	for _, dir := range dirs {
		if _, err := unix.InotifyAddWatch(fd, dir, unix.IN_OPEN); err != nil {
			t.Skipf("watch %q: %v", dir, err)
		}
	}
	return &openCounter{t, fd}
}

// count returns the number of opens since the last call.
func (c *openCounter) count() (n int) {
	c.t.Helper()
	buf := make([]byte, 1<<20)
	for {
		size, err := unix.Read(c.fd, buf)
		if err == unix.EAGAIN {
			return n
		}
		if err != nil {
			c.t.Fatal(err)
		}
		for at := 0; at < size; n++ {
			event := (*unix.InotifyEvent)(unsafe.Pointer(&buf[at]))
			if event.Mask&unix.IN_Q_OVERFLOW != 0 {
				c.t.Fatal("the queue of inotify has overflowed")
			}
			at += unix.SizeofInotifyEvent + int(event.Len)
		}
	}
}

// newSweep creates a sweep with n trials: the first ones are running, and the others have ended.
func newSweep(t *testing.T, s *Store, n, running int) Run {
	t.Helper()
	sweep := &rundir.SweepRecord{Elements: make([]rundir.ElementRecord, n)}
	dir := create(t, filepath.Join(s.Runs(), "tune"), rundir.Record{Name: "tune", Sweep: sweep})
	old := time.Now().Add(-time.Hour)
	for i := range n {
		trial := create(t, dir.Element(i).Path, rundir.Record{Name: fmt.Sprintf("tune-%d", i)})
		write(t, trial.Spec(), "[command]\nargv = [\"true\"]\n")
		write(t, trial.Metrics(), `{"kind":"train","step":10}`+"\n")
		if i < running {
			if err := trial.WriteLive(rundir.Live{Time: time.Now(), Phase: rundir.PhaseRunning}); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if err := trial.WriteEnd(rundir.End{Exit: 0, Time: old}); err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{trial.Metrics(), trial.Path} {
			if err := os.Chtimes(path, old, old); err != nil {
				t.Fatal(err)
			}
		}
	}
	run, err := s.Find("tune")
	if err != nil {
		t.Fatal(err)
	}
	return run
}

// TestPollerOpensFewFiles checks how many files of a sweep's trials the poller opens again.
func TestPollerOpensFewFiles(t *testing.T) {
	const trials, running, shown = 100, 10, 5
	s := &Store{Dir: t.TempDir()}
	run := newSweep(t, s, trials, running)
	var dirs []string
	for i := range trials {
		dirs = append(dirs, run.Dir.Element(i).Path)
	}
	opens := newOpenCounter(t, dirs...)
	p := s.NewPoller()
	now := time.Now()
	p.now = func() time.Time { return now }
	poll := func(after time.Duration) ([]watch.Status, int) {
		t.Helper()
		now = now.Add(after)
		all, err := p.Poll(t.Context(), []Run{run})
		if err != nil {
			t.Fatal(err)
		}
		return all[0].Elements, opens.count()
	}
	all, first := poll(0)
	if len(all) != trials || all[0].Phase != watch.Running || all[trials-1].Phase != watch.Done {
		t.Fatalf("got %d trials, the first %+v, the last %+v", len(all), all[0], all[len(all)-1])
	}
	perTrial := first / trials
	if perTrial < 4 { // record, job file, metrics, and the end or the live state
		t.Fatalf("the first poll opened %d files of %d trials: the count is wrong", first, trials)
	}
	p.SetVisible(watch.Sort(all)[:shown])
	_, next := poll(2 * time.Second)
	if limit := shown * (perTrial + 1); next > limit {
		t.Errorf("the second poll opened %d files, want at most %d, of the visible trials", next, limit)
	}
	_, later := poll(hiddenPollInterval)
	if limit := running * (perTrial + 1); later > limit {
		t.Errorf("a poll of hidden trials opened %d files, want at most %d, of the running trials", later, limit)
	}
	t.Logf("files opened for %d trials, %d running, %d visible: first poll %d, after 2 s %d, after 15 s more %d", trials, running, shown, first, next, later)

	// A trial that has changed is read again.
	last := run.Dir.Element(trials - 1)
	if err := last.WriteEnd(rundir.End{Exit: 7, Time: now}); err != nil {
		t.Fatal(err)
	}
	if all, _ := poll(2 * time.Second); all[trials-1].Phase != watch.Done {
		t.Errorf("hidden trial: got phase %q before the interval has passed", all[trials-1].Phase)
	}
	if all, n := poll(hiddenPollInterval); all[trials-1].Phase != watch.Failed || n > (running+1)*(perTrial+1) {
		t.Errorf("changed trial: got phase %q and %d opened files", all[trials-1].Phase, n)
	}
	// After some time, all trials are read again.
	if _, n := poll(maxStatusAge); n < first/2 {
		t.Errorf("after %s: got %d opened files, want about %d", maxStatusAge, n, first)
	}
}

// TestPollerSeesNewMetrics checks that the poller reads metrics that ranks without a launcher
// append, because they change nothing else.
func TestPollerSeesNewMetrics(t *testing.T) {
	s := &Store{Dir: t.TempDir()}
	run := newSweep(t, s, 1, 0)
	p := s.NewPoller()
	for _, step := range []int{10, 20} {
		if step > 10 {
			f, err := os.OpenFile(run.Dir.Element(0).Metrics(), os.O_APPEND|os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(f, "{\"kind\":\"train\",\"step\":%d}\n", step)
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
		}
		all, err := p.Poll(t.Context(), []Run{run})
		if err != nil || all[0].Elements[0].Step == nil || *all[0].Elements[0].Step != step {
			t.Errorf("got %+v, %v, want step %d", all, err, step)
		}
	}
}

// TestPollerSkipsUnreadableRuns checks that an unreadable trial hides its sweep, but no other run.
func TestPollerSkipsUnreadableRuns(t *testing.T) {
	s := newStore(t)
	s.Slurm.Environ = []string{"PATH=" + t.TempDir()} // no squeue
	one, err := s.Find("one")
	if err != nil {
		t.Fatal(err)
	}
	run := newSweep(t, &Store{Dir: t.TempDir()}, 2, 0)
	write(t, run.Dir.Element(1).Record(), "{")
	p := s.NewPoller()
	if all, err := p.Poll(t.Context(), []Run{one, run}); err == nil || len(all) != 1 || all[0].Name != "one" {
		t.Errorf("got %+v, %v, want the other run and an error", all, err)
	}
	if all, err := p.Poll(t.Context(), []Run{run}); err == nil || all != nil {
		t.Errorf("got %+v, %v, want only an error", all, err)
	}
}

// TestChainsOfAnotherUserAreLimited checks that the jobs of a chain count toward the limit for the
// runs of another user, and that records of trials add no more than the record of their sweep
// allows: a list queries Slurm for each of these jobs.
func TestChainsOfAnotherUserAreLimited(t *testing.T) {
	dir := rundir.Dir{Path: filepath.Join(t.TempDir(), "run")}
	chained := Run{Dir: dir}
	chained.Record.Chain = make([]rundir.Submission, 1000)
	if plain, chain := costOf(t, Run{Dir: dir}), costOf(t, chained); chain < plain+1000*runCost {
		t.Errorf("the cost is %d with a chain and %d without", chain, plain)
	}
	if s := ReadStatus(chained, nil); len(s.Chain) != 1000 {
		t.Errorf("run: got %d jobs", len(s.Chain))
	}
	s := newStore(t)
	s.Slurm.Environ = []string{"PATH=" + t.TempDir()} // no squeue
	sweep := newSweep(t, s, 2, 0)
	before := costOf(t, sweep)
	sweep.Record.Chain = make([]rundir.Submission, 3)
	if cost := costOf(t, sweep); cost < before+2*3*runCost {
		t.Errorf("the cost of a sweep is %d with a chain and %d without", cost, before)
	}
	trial := sweep.Dir.Element(1)
	create(t, trial.Path, rundir.Record{Name: "tune-1", Submissions: []rundir.Submission{{JobID: "1_1"}}, Chain: slices.Repeat([]rundir.Submission{{JobID: "2_1"}}, 1000)})
	if got, _ := s.NewPoller().Poll(t.Context(), []Run{sweep}); len(got) != 1 || len(got[0].Elements[1].Chain) != 3 {
		t.Errorf("got %+v, want 3 jobs in the chain of trial 1", got)
	}
	if os.Geteuid() != 0 {
		t.Skip("only root can give a run to another user")
	}
	if err := os.Chown(sweep.Dir.Path, 65534, 65534); err != nil {
		t.Fatal(err)
	}
	if trials, err := sweep.Trials(); err != nil || len(trials[1].Record.Chain) != 3 {
		t.Errorf("got %+v, %v, want 3 jobs in the chain of trial 1", trials, err)
	}
	sweep.Record.Chain = make([]rundir.Submission, maxForeignJobs)
	poller := s.NewPoller()
	poller.Unlimited = true
	_, err := sweep.Trials()
	_, pollErr := poller.Poll(t.Context(), []Run{sweep})
	_, findErr := s.FindDependency(s.Dir, "tune")
	if err == nil || pollErr == nil || !strings.Contains(err.Error(), "too many jobs") || !strings.Contains(pollErr.Error(), "too many jobs") || findErr != nil {
		t.Errorf("a chain of %d jobs: got %v, %v, and %v for the record without a chain", maxForeignJobs, err, pollErr, findErr)
	}
}

// costOf returns the cost of a run without links.
func costOf(t *testing.T, r Run) int64 {
	t.Helper()
	cost, err := r.readCost()
	if err != nil {
		t.Fatal(err)
	}
	return cost
}

// TestPollerForgetsRuns checks that the poller and the list of runs hold nothing of runs that no longer
// exist. Another user can replace runs by others with new names and jobs as often as `ddpbatch top` reads
// them.
func TestPollerForgetsRuns(t *testing.T) {
	s := &Store{Dir: t.TempDir()}
	s.Slurm.Environ = fakeSlurm(t, "exit 0", "exit 0")
	p := s.NewPoller()
	now := time.Now()
	p.now = func() time.Time { return now }
	for round := range 3 {
		now = now.Add(slurmPollInterval)
		dir := create(t, filepath.Join(s.Runs(), fmt.Sprintf("run-%d", round)), rundir.Record{Name: "a", Submissions: []rundir.Submission{submitted(fmt.Sprint(18 + round))}})
		long := time.Now().Add(-time.Hour)
		if err := os.Chtimes(dir.Record(), long, long); err != nil { // so that the record is stored
			t.Fatal(err)
		}
		found, _, err := s.List(s.Runs())
		if err != nil {
			t.Fatal(err)
		}
		if all, err := p.Poll(t.Context(), found); err != nil || len(all) != 1 {
			t.Fatalf("got %+v, %v, want one run", all, err)
		}
		if len(s.records) != 1 || len(p.entries) != 1 || len(p.states) != 1 {
			t.Errorf("after %d runs: %d records, %d runs, and %d jobs are stored, want 1 of each", round+1, len(s.records), len(p.entries), len(p.states))
		}
		if err := os.RemoveAll(dir.Path); err != nil {
			t.Fatal(err)
		}
	}
}

// fakeSlurm returns an environment in which squeue and sacct are these shell commands.
func fakeSlurm(t *testing.T, squeue, sacct string) []string {
	t.Helper()
	bin := t.TempDir()
	for name, body := range map[string]string{"squeue": squeue, "sacct": sacct} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+body+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return []string{"PATH=" + bin}
}

// TestJobsInRecordsOfOthers checks that the record of another user's run does not decide how a job of
// this user ended, and that new jobs in such records do not cause more queries to Slurm.
func TestJobsInRecordsOfOthers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give a run to another user")
	}
	s := &Store{Dir: t.TempDir()}
	calls := filepath.Join(t.TempDir(), "calls")
	s.Slurm.Environ = fakeSlurm(t, "echo x >>"+calls, "exit 0")
	create(t, filepath.Join(s.Runs(), "b"), rundir.Record{Name: "own", Submissions: []rundir.Submission{submitted("18")}})
	foreign := func(name, job string) {
		t.Helper()
		dir := create(t, filepath.Join(s.Runs(), name), rundir.Record{Name: name, Submissions: []rundir.Submission{submitted(job)}})
		err := dir.WriteEnd(rundir.End{JobID: job, Exit: 0, Time: time.Now()})
		if err == nil {
			err = os.Chown(dir.Path, 61001, -1)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	foreign("a", "18")
	foreign("c", "18")
	p := s.NewPoller()
	now := time.Now()
	p.now = func() time.Time { return now }
	poll := func() []Run {
		t.Helper()
		found, _, err := s.List(s.Runs())
		if err != nil {
			t.Fatal(err)
		}
		all, err := p.Poll(t.Context(), found)
		if err != nil || len(all) != len(found) || all[1].Name != "own" || all[1].State != slurm.StateUnknown || all[1].Finished {
			t.Errorf("got %+v, %v, want an unknown state of job 18", all, err)
		}
		return found
	}
	all := poll()
	states, err := s.JobStates(t.Context(), all...)
	if err != nil || states["18"].State != slurm.StateUnknown {
		t.Errorf("got %+v, %v, want an unknown state of job 18", states, err)
	}
	before, _ := os.ReadFile(calls)
	foreign("d", "19")
	poll()
	if after, err := os.ReadFile(calls); err != nil || len(after) != len(before) {
		t.Errorf("a job of another user: got %d queries, %v, want %d", len(after)/2, err, len(before)/2)
	}
	create(t, filepath.Join(s.Runs(), "e"), rundir.Record{Name: "e", Submissions: []rundir.Submission{submitted("20")}})
	poll()
	if after, err := os.ReadFile(calls); err != nil || len(after) != len(before)+2 {
		t.Errorf("a new job of this user: got %d queries, %v, want %d", len(after)/2, err, len(before)/2+1)
	}
}

// TestJobsOfOthersDoNotFailQuery checks that this user's runs have a state if Slurm does not answer for
// the jobs in records of other users.
func TestJobsOfOthersDoNotFailQuery(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give a run to another user")
	}
	s := &Store{Dir: t.TempDir()}
	s.Slurm.Environ = fakeSlurm(t, `case "$*" in *99*) echo too many >&2; exit 1;; esac; echo '18|18|N/A|RUNNING|n1|0:05|s|e|0|0|None'`, "exit 0")
	create(t, filepath.Join(s.Runs(), "own"), rundir.Record{Name: "own", Submissions: []rundir.Submission{submitted("18")}})
	dir := create(t, filepath.Join(s.Runs(), "other"), rundir.Record{Name: "other", Submissions: []rundir.Submission{submitted("99")}})
	if err := os.Chown(dir.Path, 61001, -1); err != nil {
		t.Fatal(err)
	}
	found, _, err := s.List(s.Runs())
	if err != nil {
		t.Fatal(err)
	}
	all, err := s.NewPoller().Poll(t.Context(), found)
	if err == nil || !strings.Contains(err.Error(), "too many") || len(all) != 2 {
		t.Fatalf("got %+v, %v, want two runs and the error of squeue", all, err)
	}
	want := map[string]slurm.State{"own": slurm.StateRunning, "other": slurm.StateUnknown}
	for _, st := range all {
		if st.State != want[st.Name] {
			t.Errorf("%s: got state %q, want %q", st.Name, st.State, want[st.Name])
		}
	}
}
