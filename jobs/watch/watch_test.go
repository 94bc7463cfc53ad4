package watch

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/ddpbatch/ddpbatch/jobs/outcome"
	"github.com/ddpbatch/ddpbatch/jobs/rundir"
	"github.com/ddpbatch/ddpbatch/slurm"
	"github.com/ddpbatch/ddpbatch/trainer/checkpoint"
	"github.com/ddpbatch/ddpbatch/trainer/metrics"
	"github.com/ddpbatch/ddpbatch/trainer/rendezvous"
)

// TestMetricsTail checks that each new line is read once, and that a file that replaces the
// previous one is read from its start.
func TestMetricsTail(t *testing.T) {
	path := filepath.Join(t.TempDir(), "metrics.jsonl")
	f := NewMetricsTail(path)
	f.Update()
	if f.Train != nil || f.Eval != nil {
		t.Fatal("figures of no file")
	}
	write := func(flag int, text string) {
		t.Helper()
		file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|flag, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := file.WriteString(text); err != nil {
			t.Fatal(err)
		}
		file.Close()
		f.Update()
	}
	write(os.O_APPEND, `{"kind":"train","step":10,"steps":40}`+"\n"+`{"kind":"train","st`)
	if f.Train.Step != 10 || f.Train.Steps != 40 {
		t.Errorf("%+v", f.Train)
	}
	write(os.O_APPEND, `ep":20}`+"\nrubbish\n"+`{"kind":"eval","step":20,"loss":"NaN"}`+"\n")
	if f.Train.Step != 20 || f.Eval == nil || f.last != f.Eval {
		t.Errorf("%+v %+v", f.Train, f.Eval)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	write(0, `{"kind":"train","step":15}`+"\n")
	if f.Train.Step != 15 || f.Eval != nil {
		t.Errorf("of a new file: %+v %+v", f.Train, f.Eval)
	}
	write(os.O_TRUNC, `{"kind":"train","step":5}`+"\n")
	if f.Train.Step != 5 {
		t.Errorf("of a shorter file: %+v", f.Train)
	}
}

// phaseCase is a status and the expected phase.
type phaseCase struct {
	name    string
	s       Status
	failure string
	phase   Phase
	detail  string
	advice  string
}

func checkPhases(t *testing.T, now time.Time, cases []phaseCase) {
	t.Helper()
	for _, tt := range cases {
		if tt.failure != "" {
			tt.s.record.Failure = &rendezvous.Failure{Reason: tt.failure}
		}
		tt.s.SetPhase(now)
		if tt.s.Phase != tt.phase || tt.s.Detail != tt.detail || tt.s.Advice != tt.advice {
			t.Errorf("%s: %q %q %q, want %q %q %q", tt.name, tt.s.Phase, tt.s.Detail, tt.s.Advice, tt.phase, tt.detail, tt.advice)
		}
		if tt.s.Finished != (tt.phase == Done) && tt.s.Phase.IsOver() {
			t.Errorf("%s: %q, and finished is %v", tt.name, tt.s.Phase, tt.s.Finished)
		}
	}
}

// ended returns the records of a user's program that ended.
func ended(exit int, stopped bool) outcome.State {
	return outcome.State{Goal: outcome.Goal{Known: true}, End: &rundir.End{Exit: exit, Stopped: stopped}}
}

// attempted adds attempts to the records of a run.
func attempted(s outcome.State, attempts ...outcome.Attempt) outcome.State {
	s.Attempts = attempts
	return s
}

func trained(epoch, of int) outcome.State {
	return outcome.State{Goal: outcome.Goal{Known: true, Trains: true, Epochs: of}, End: &rundir.End{},
		Newest: &checkpoint.Entry{Manifest: &checkpoint.Manifest{Epoch: epoch}}}
}

// TestPhaseWithoutSlurm checks the phase of a run that was started without Slurm.
func TestPhaseWithoutSlurm(t *testing.T) {
	now := time.Now()
	live := func(phase rundir.LivePhase, ago time.Duration, groups ...rundir.NodeGroup) *rundir.Live {
		return &rundir.Live{Time: now.Add(-ago), Phase: phase, Ranks: 4, Joined: 4, Nodes: groups}
	}
	saved := &Checkpoint{Step: 7}
	checkPhases(t, now, []phaseCase{
		{name: "never begun", phase: NotSubmitted},
		{name: "training", s: Status{Live: live(rundir.PhaseRunning, 0, rundir.NodeGroup{State: "training"})}, phase: Training},
		{name: "evaluating", s: Status{Live: live(rundir.PhaseRunning, 0, rundir.NodeGroup{State: "evaluating"})}, phase: Evaluating},
		{name: "loading", s: Status{Live: live(rundir.PhaseRunning, 0, rundir.NodeGroup{State: "loading"})}, phase: Loading},
		{name: "connecting", s: Status{Live: live(rundir.PhaseRunning, 0, rundir.NodeGroup{State: "connecting"})}, phase: Joining, detail: "ranks agree on a network"},
		{name: "one node saves", s: Status{Live: live(rundir.PhaseRunning, 0, rundir.NodeGroup{State: "saving"}, rundir.NodeGroup{State: "training"})}, phase: Saving},
		{name: "a program", s: Status{Live: live(rundir.PhaseRunning, 0, rundir.NodeGroup{State: "running"})}, phase: Running},
		{name: "stopping", s: Status{Live: &rundir.Live{Time: now, Phase: rundir.PhaseStopping, Detail: "the time limit is near"}}, phase: Stopping, detail: "the time limit is near"},
		{name: "restarting", s: Status{Live: &rundir.Live{Time: now, Phase: rundir.PhaseRestarting, Detail: "rank 1\x1b[31m is lost"}}, failure: "rank 1 is lost", phase: Restarting, detail: "rank 1[31m is lost"},
		{name: "done", s: Status{Live: live(rundir.PhaseOver, time.Hour), record: ended(0, false)}, phase: Done},
		{name: "stopped", s: Status{Live: live(rundir.PhaseOver, 0), record: ended(3, false), Saved: saved}, phase: Stopped, advice: "launch it again to resume after step 7"},
		{name: "program stopped by Ctrl-C", s: Status{Live: live(rundir.PhaseOver, 0), record: ended(143, true)}, phase: Stopped},
		{name: "program stopped by Ctrl-C, earlier version", s: Status{Live: live(rundir.PhaseOver, 0), record: ended(143, false)}, phase: Stopped},
		{name: "program stopped by Ctrl-C with exit code 0", s: Status{Live: live(rundir.PhaseOver, 0), record: ended(0, true)}, phase: Stopped},
		{name: "program stopped without a handler", s: Status{record: attempted(ended(143, true), outcome.Attempt{NoProgress: true})}, phase: Stopped,
			advice: outcome.SaveAdvice(false, true, "launch")},
		{name: "program stopped after a save", s: Status{record: attempted(ended(3, true), outcome.Attempt{}, outcome.Attempt{ReportedSave: true})}, phase: Stopped,
			advice: outcome.SaveAdvice(true, false, "launch")},
		{name: "program stopped with exit code 0", s: Status{record: attempted(ended(0, true), outcome.Attempt{})}, phase: Stopped,
			advice: outcome.SaveAdvice(false, false, "launch")},
		{name: "program that somebody killed by SIGTERM", s: Status{record: ended(143, false)}, failure: "rank 0: sh was killed by signal 15", phase: Failed, detail: "rank 0: sh was killed by signal 15"},
		{name: "interrupted twice", s: Status{record: ended(130, false)}, failure: "cancelled by a second interrupt", phase: Canceled},
		{name: "stopped, and its checkpoint of a newer version", s: Status{Live: live(rundir.PhaseOver, 0), record: ended(3, false), Saved: &Checkpoint{Step: 7, Newer: "written by a newer ddpbatch"}}, phase: Stopped,
			advice: "launch it with the newer ddpbatch that saved step 7, or use a different run directory (--run-dir)"},
		{name: "stopped, and its checkpoint damaged", s: Status{Live: live(rundir.PhaseOver, 0), record: ended(3, false), Saved: &Checkpoint{Step: 7, Damaged: "no manifest"}}, phase: Stopped,
			advice: "launch it again to resume from the newest valid checkpoint: step 7 is corrupt"},
		{name: "trained to the end", s: Status{record: trained(3, 3), Saved: saved}, phase: Done},
		{name: "trained to the end, and more epochs requested since", s: Status{record: trained(3, 5), Saved: saved}, phase: Stopped, advice: "launch it again to resume after step 7"},
		{name: "failed", s: Status{Live: live(rundir.PhaseOver, 0), record: ended(4, false)}, failure: "rank 1 on n1 was lost", phase: Failed, detail: "rank 1 on n1 was lost"},
		{name: "a program that failed with the code of a stop", s: Status{record: ended(3, false), Saved: saved}, failure: "rank 0 on n1: sh ended with exit code 3", phase: Failed, detail: "rank 0 on n1: sh ended with exit code 3"},
		{name: "failed without output", s: Status{Live: live(rundir.PhaseOver, 0), record: ended(4, false)}, phase: Failed, detail: "exit code 4"},
		{name: "launcher is suspended", s: Status{Live: live(rundir.PhaseStopping, time.Minute), launched: now.Add(-time.Hour)}, phase: Stopping,
			detail: "its launcher has not reported for 1m00s", advice: "it may be suspended, or its file system may hang; `ddpbatch logs` shows what was printed last"},
		{name: "launcher on a different host", s: Status{Live: live(rundir.PhaseRunning, time.Minute), launched: now.Add(-time.Hour), remote: true}, phase: Running,
			detail: "its launcher has not reported for 1m00s", advice: "it may be suspended, or its file system may hang; `ddpbatch logs` shows what was printed last"},
		{name: "killed on a different host", s: Status{Live: live(rundir.PhaseRunning, 3*time.Minute), launched: now.Add(-time.Hour), remote: true}, phase: Killed,
			detail: "its launcher was killed before it could report"},
		{name: "launcher ends", s: Status{Live: live(rundir.PhaseOver, 0), launched: now.Add(-time.Hour)}, phase: Running, detail: "its ranks have ended"},
		{name: "launcher starts again", s: Status{Live: live(rundir.PhaseOver, time.Hour), launched: now}, phase: Joining, detail: "no rank was started yet"},
		{name: "killed", s: Status{Live: live(rundir.PhaseRunning, time.Hour)}, phase: Killed, detail: "its launcher was killed before it could report"},
		{name: "killed, but it had finished before", s: Status{Live: live(rundir.PhaseRunning, time.Hour), record: outcome.State{Newest: trained(3, 3).Newest, Goal: trained(3, 3).Goal}}, phase: Done},
	})
}

// TestPhaseWithSlurm checks the phase of a run from Slurm's state and the run directory.
func TestPhaseWithSlurm(t *testing.T) {
	now := time.Now()
	job := func(state slurm.State, exit string, record outcome.State) Status {
		record.Job = "18"
		return Status{Job: "18", State: state, ExitCode: exit, record: record, Requeues: -1}
	}
	with := func(s Status, change func(*Status)) Status { change(&s); return s }
	over := func(s *Status) {
		s.Live = &rundir.Live{Time: now.Add(-time.Hour), JobID: "18", Phase: rundir.PhaseOver}
	}
	saved := func(s *Status) { s.Saved = &Checkpoint{Step: 7} }
	none := outcome.State{}
	const unaware = "; Slurm has not reported the end of its job yet"
	checkPhases(t, now, []phaseCase{
		{name: "interrupted submission", s: Status{Pending: true}, phase: CutShort, detail: "its submission was cut short", advice: "submit it again to find its job"},
		{name: "queued", s: job(slurm.StatePending, "", none), phase: Queued},
		{name: "queued again", s: with(job(slurm.StatePending, "", none), func(s *Status) { s.Requeues = 1 }), phase: Requeued},
		{name: "requeued by its launcher, which Slurm does not count yet",
			s: job(slurm.StatePending, "", outcome.State{Attempts: []outcome.Attempt{{JobID: "18", Then: outcome.Requeued}}}), phase: Requeued},
		{name: "configuring", s: job(slurm.StateConfiguring, "", none), phase: Starting, detail: "its nodes are made ready"},
		{name: "suspended", s: job(slurm.StateSuspended, "", none), phase: Suspended, detail: "Slurm has stopped its processes for now"},
		{name: "completing", s: job(slurm.StateCompleting, "", none), phase: Ending, detail: "Slurm takes its nodes back"},
		{name: "completed, a program", s: job(slurm.StateCompleted, "0:0", ended(0, false)), phase: Done},
		{name: "completed, no launcher", s: job(slurm.StateCompleted, "0:0", none), phase: Done},
		{name: "completed, but the program was asked to stop", s: job(slurm.StateCompleted, "0:0", ended(0, true)), phase: Stopped},
		{name: "completed, and more epochs requested since", s: with(job(slurm.StateCompleted, "0:0", trained(3, 5)), saved), phase: Stopped, advice: "submit it again to resume after step 7"},
		{name: "canceled", s: with(job(slurm.StateCancelled, "0:15", none), saved), phase: Canceled, advice: "submit it again to resume after step 7"},
		{name: "canceled after it had finished", s: job(slurm.StateCancelled, "0:15", trained(3, 3)), phase: Done},
		{name: "time limit", s: job(slurm.StateTimeout, "0:1", none), phase: TimeLimit, advice: TimeLimitAdvice},
		{name: "time limit, with a checkpoint", s: with(job(slurm.StateTimeout, "0:1", none), saved), phase: TimeLimit, advice: "submit it again to resume after step 7"},
		{name: "deadline", s: job(slurm.StateDeadline, "0:1", none), phase: TimeLimit},
		{name: "preempted", s: job(slurm.StatePreempted, "0:15", none), phase: Preempted},
		{name: "preempted, a program", s: job(slurm.StatePreempted, "0:15", attempted(ended(3, true), outcome.Attempt{JobID: "18", ReportedSave: true})), phase: Preempted,
			advice: outcome.SaveAdvice(true, false, "submit")},
		{name: "canceled, a program without a recorded end", s: job(slurm.StateCancelled, "0:15", attempted(outcome.State{Goal: outcome.Goal{Known: true}}, outcome.Attempt{JobID: "18"})),
			phase: Canceled, advice: outcome.SaveAdvice(false, false, "submit")},
		{name: "canceled before a rank started", s: job(slurm.StateCancelled, "0:15", attempted(outcome.State{Goal: outcome.Goal{Known: true}}, outcome.Attempt{JobID: "17"})), phase: Canceled},
		{name: "node failure", s: job(slurm.StateNodeFail, "", none), phase: Failed, detail: "Slurm lost a node of it"},
		{name: "boot failure", s: job(slurm.StateBootFail, "", none), phase: Failed, detail: "Slurm lost a node of it"},
		{name: "out of memory", s: job(slurm.StateOutOfMemory, "0:125", none), phase: Failed, detail: "it ran out of memory"},
		{name: "out of memory, by a rank", s: job(slurm.StateOutOfMemory, "0:125", none), failure: "rank 2 on n1 was killed", phase: Failed, detail: "rank 2 on n1 was killed"},
		{name: "failed with the code of a stop", s: job(slurm.StateFailed, "3:0", ended(3, false)), failure: "rank 0 on n1: sh ended with exit code 3", phase: Failed, detail: "rank 0 on n1: sh ended with exit code 3"},
		{name: "asked to stop", s: with(job(slurm.StateFailed, "3:0", ended(3, true)), saved), phase: Stopped, advice: "submit it again to resume after step 7"},
		{name: "a program that was asked to stop", s: job(slurm.StateFailed, "143:0", ended(143, true)), phase: Stopped},
		{name: "a batch script that failed before its launcher", s: with(job(slurm.StateFailed, "3:0", none), saved), phase: Failed, detail: "exit code 3"},
		{name: "a batch script that failed after its launcher stopped", s: job(slurm.StateFailed, "1:0", ended(3, true)), phase: Failed, detail: "exit code 1"},
		{name: "a batch script that was killed", s: job(slurm.StateFailed, "0:9", none), phase: Failed, detail: "killed by signal 9 (SIGKILL)"},
		{name: "finished, but to be trained further", s: with(job(slurm.StatePending, "", trained(3, 3)), func(s *Status) { s.Reason = "Priority" }), phase: Queued,
			detail: "other jobs come first", advice: "run `sprio --jobs=18` to see its priority; a smaller or shorter job may start earlier"},
		{name: "finished, and its script failed", s: job(slurm.StateFailed, "1:0", trained(3, 3)), phase: Done},
		{name: "forgotten by Slurm, stopped", s: job(slurm.StateUnknown, "", ended(3, true)), phase: Stopped},
		{name: "forgotten by Slurm, failed", s: job(slurm.StateUnknown, "", ended(1, false)), phase: Failed, detail: "exit code 1"},
		{name: "forgotten by Slurm, without a record", s: with(job(slurm.StateUnknown, "", none), func(s *Status) { s.Reason = "no such job" }), phase: Unknown, detail: "no such job"},
		{name: "slurmctld does not answer, but the launcher does", s: with(job(slurm.StateUnknown, "", none), func(s *Status) {
			s.Live = &rundir.Live{Time: now, JobID: "18", Phase: rundir.PhaseJoining, Ranks: 2}
		}), phase: Joining, detail: "0 of 2 ranks have joined"},
		{name: "a launcher of another job", s: with(job(slurm.StateRunning, "", none), func(s *Status) {
			s.Live = &rundir.Live{Time: now, JobID: "17", Phase: rundir.PhaseRunning}
		}), phase: Starting, detail: "no rank was started yet"},
		{name: "no reply", s: with(job(slurm.StateRunning, "", none), func(s *Status) {
			s.Live = &rundir.Live{Time: now.Add(-58 * time.Second), JobID: "18", Phase: rundir.PhaseRunning}
		}), phase: Running, detail: "its launcher has not reported for 58s", advice: "its node may hang; `ddpbatch logs` shows what was printed last"},
		{name: "finished while slurmctld did not answer", s: with(job(slurm.StateRunning, "", ended(0, false)), over), phase: Ending, detail: "it has finished" + unaware},
		{name: "stopped while slurmctld did not answer", s: with(job(slurm.StateRunning, "", ended(3, true)), over), phase: Ending, detail: "it has stopped" + unaware},
		{name: "failed while slurmctld did not answer", s: with(job(slurm.StateRunning, "", ended(4, false)), over), failure: "rank 1 is lost", phase: Ending, detail: "rank 1 is lost" + unaware},
		{name: "runs again after a requeue, and its launcher has not started", s: with(job(slurm.StateRunning, "", outcome.State{
			End: &rundir.End{Exit: 3}, Attempts: []outcome.Attempt{{JobID: "18", Then: outcome.Requeued}}}), func(s *Status) { over(s); s.Requeues = 1 }),
			phase: Starting, detail: "no rank was started yet"},
	})
}

// TestMetricsTailSkipsInvalidLines checks that an incomplete line, and a line that is longer than any
// record, are skipped.
func TestMetricsTailSkipsInvalidLines(t *testing.T) {
	path := filepath.Join(t.TempDir(), "metrics.jsonl")
	rubbish := strings.Repeat("x", metrics.MaxLine+metrics.MaxLine/2)
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(rubbish)
	f := NewMetricsTail(path)
	f.Update()
	if f.at < metrics.MaxLine || f.Train != nil {
		t.Errorf("%d bytes of %d are read, and will be again: %+v", f.at, len(rubbish), f.Train)
	}
	write(rubbish + "\n" + `{"kind":"train","step":7}` + "\n" + `{"kind":"eval","st`)
	f.Update()
	if f.Train == nil || f.Train.Step != 7 || f.Eval != nil {
		t.Errorf("behind it: %+v %+v", f.Train, f.Eval)
	}
}

// TestMetricsTailReadsEndOfLargeFile checks that a huge file is read quickly. Another user may own the
// file, and can make it as large as a file can be.
func TestMetricsTailReadsEndOfLargeFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "metrics.jsonl")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	const size = 1 << 42 // reading all of it would take hours
	if err := file.Truncate(size); err != nil {
		t.Fatal(err)
	}
	if _, err := file.WriteAt([]byte("\n"+`{"kind":"train","step":7}`+"\n"), size); err != nil {
		t.Fatal(err)
	}
	f := NewMetricsTail(path)
	f.Update()
	if f.Train == nil || f.Train.Step != 7 {
		t.Errorf("%+v", f.Train)
	}
}

// TestMetricsTailSkipsShortLines checks that lines that are shorter than any record are not decoded.
// Another user can fill a file with millions of them.
func TestMetricsTailSkipsShortLines(t *testing.T) {
	var f MetricsTail
	for _, line := range []string{"\n", "{}\n", "1\n", strings.Repeat(" ", 100) + "{}\n"} {
		text := []byte(line)
		if n := testing.AllocsPerRun(100, func() { f.add(text) }); n > 0 {
			t.Errorf("%q: got %v allocations", line, n)
		}
	}
	f.add([]byte(`{"kind":"eval"}`))
	if f.Eval == nil {
		t.Error("the shortest record is skipped")
	}
}

// TestMetricsTailStoresLittle checks that long lists and texts of a record are not stored. A list of runs
// holds the last records of each run, and another user may own the file.
func TestMetricsTailStoresLittle(t *testing.T) {
	path := filepath.Join(t.TempDir(), "metrics.jsonl")
	times := func(n int) string { return `"compute_ms":[` + strings.Repeat("1,", n-1) + "1]" }
	text := strings.Repeat("x", maxPath+1)
	for _, tt := range []struct {
		name, keys string
		times      int
		path       string
	}{
		{"usual", times(maxTimes) + `,"path":"p"`, maxTimes, "p"},
		{"many ranks", times(maxTimes + 1), 0, ""},
		{"two lists", times(1<<20) + "," + times(2), 2, ""},
		{"long path", times(1) + `,"path":"` + text + `"`, 1, ""},
	} {
		for _, kind := range []string{"train", "eval"} {
			if err := os.WriteFile(path, []byte(fmt.Sprintf(`{"kind":%q,%s}`, kind, tt.keys)+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			f := NewMetricsTail(path)
			f.Update()
			switch m := f.last; {
			case m == nil || m.Kind != kind || len(m.ComputeMillis) != tt.times || m.Path != tt.path:
				t.Errorf("%s, %s: got another record", tt.name, kind)
			case cap(m.ComputeMillis) > tt.times+1000:
				t.Errorf("%s, %s: got memory for %d times, want %d", tt.name, kind, cap(m.ComputeMillis), tt.times)
			}
		}
	}
}

// TestTextsOfOthers checks that the lines contain no control characters from other sources,
// and that an invalid rank is not used as an index.
func TestTextsOfOthers(t *testing.T) {
	const steer = "\x1b]0;x\a\x9b2J\n"
	step, nobody := 3, -9
	for _, s := range []Status{
		{Name: steer, Job: "18", State: slurm.StateUnknown, Reason: steer},
		{Name: steer, Job: "18", State: slurm.StatePending, Reason: steer, Start: steer},
		{Name: steer, Step: &step, Steps: 9, Train: &metrics.Record{Step: 3, Loss: metrics.NewNumber(1), SlowestRank: &nobody, SlowestRatio: metrics.NewNumber(9)}},
		{Name: steer},
	} {
		s.Live = &rundir.Live{Time: time.Now(), JobID: s.Job, Phase: rundir.PhaseRunning, Detail: steer, Hosts: "n[1-2]" + steer, PerNode: 1, Ranks: 2, Joined: 2,
			Nodes: []rundir.NodeGroup{{State: "training", Hosts: steer, Ranks: []int{0}, Count: 1}, {State: "lost" + steer, Hosts: steer}}}
		s.record.Failure = &rendezvous.Failure{Reason: steer}
		s.SetPhase(time.Now())
		s.hostOf(nobody)
		lines := append(View{}.Lines(&s, 200, time.Now()), TopTable([]Status{s}).Lines(200)...)
		for _, l := range s.Details(time.Now()) {
			lines = append(lines, l.Text)
		}
		for _, line := range lines {
			if strings.ContainsFunc(line, unicode.IsControl) {
				t.Errorf("%s: %q", s.Phase, line)
			}
		}
	}
	s := Status{Live: &rundir.Live{Hosts: "n[1-2]", PerNode: 2}}
	if s.hostOf(nobody) != "" || s.hostOf(3) != "n2" || s.hostOf(4) != "" {
		t.Errorf("%q %q %q", s.hostOf(nobody), s.hostOf(3), s.hostOf(4))
	}
}

// TestPhasesAreListed checks that Phases, which the help text lists, and the document contain
// all phases.
func TestPhasesAreListed(t *testing.T) {
	source, err := os.ReadFile("phase.go")
	if err != nil {
		t.Fatal(err)
	}
	document, err := os.ReadFile("../../docs/running.md")
	if err != nil {
		t.Fatal(err)
	}
	declared := regexp.MustCompile(`(?m)^\t\w+ +Phase = "([^"]+)"`).FindAllStringSubmatch(string(source), -1)
	if len(declared) < 20 || len(declared) != len(Phases) {
		t.Errorf("%d phases are declared, and %d are listed", len(declared), len(Phases))
	}
	for _, d := range declared {
		if !slices.Contains(Phases, Phase(d[1])) {
			t.Errorf("phase %q is not listed", d[1])
		}
		if !strings.Contains(string(document), "`"+d[1]+"`") {
			t.Errorf("docs/running.md does not have phase %q", d[1])
		}
	}
}

// TestProgressTowardTheGoal checks that the progress relates to the current job file, not to
// the job file at the time when the metrics were written.
func TestProgressTowardTheGoal(t *testing.T) {
	for _, tt := range []struct {
		name         string
		epochs       int // from the job file
		epoch        int // of the checkpoint
		unevaluated  bool
		steps        int // total
		finished     bool
		share, exact string
	}{
		{"fewer epochs requested since", 3, 9, false, 513, true, "100%", "step 513 of 513 (100%), epoch 9, the job file requests 3"},
		{"more epochs requested since", 800, 9, false, 45600, false, "1%", "step 513 of 45600 (1%), epoch 9 of 800"},
		{"as many as before", 400, 9, false, 22800, false, "2%", "step 513 of 22800 (2%), epoch 9 of 400"},
		{"just finished", 9, 9, false, 513, true, "100%", "step 513 of 513 (100%), epoch 9 of 9"},
		{"fewer epochs requested, and not evaluated", 3, 9, true, 513, false, "100%", "step 513 of 513 (100%), epoch 3 of 3"},
		{"finished, but for the evaluation", 9, 9, true, 513, false, "100%", "step 513 of 513 (100%), epoch 9 of 9"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			step := 513
			s := Status{Name: "a", Step: &step, Steps: 22800, Epochs: 400, Train: &metrics.Record{Step: step, Steps: 22800, Epoch: 8, Epochs: 400}}
			s.record = outcome.State{Goal: outcome.Goal{Known: true, Trains: true, Epochs: tt.epochs}, End: &rundir.End{},
				Newest: &checkpoint.Entry{Step: step, Manifest: &checkpoint.Manifest{Step: step, Epoch: tt.epoch, Unevaluated: tt.unevaluated}}}
			s.SetPhase(time.Now())
			if s.Steps != tt.steps || s.Epochs != tt.epochs || s.Finished != tt.finished {
				t.Errorf("got %d steps, %d epochs, finished %v", s.Steps, s.Epochs, s.Finished)
			}
			if (s.Phase == Done) != tt.finished {
				t.Errorf("the phase is %q, and finished is %v", s.Phase, s.Finished)
			}
			if got := s.progress(); got != tt.exact {
				t.Errorf("got %q, want %q", got, tt.exact)
			}
			if table := TopTable([]Status{s}).Lines(0); !strings.Contains(table[1], " "+tt.share+" ") {
				t.Errorf("got %q, want %s", table[1], tt.share)
			}
			s.SetPhase(time.Now())
			if s.Steps != tt.steps {
				t.Errorf("the second time: %d steps", s.Steps)
			}
		})
	}
}

// TestStragglerIsNamed checks that all outputs name a rank only if the trainer has found it to
// be a straggler.
func TestStragglerIsNamed(t *testing.T) {
	rank, step := 1, 3
	for _, tt := range []struct {
		ratio     float64
		straggler bool
	}{{1.08, false}, {1.7, false}, {1.7, true}} {
		s := Status{Name: "a", Step: &step, Steps: 9, Phase: Training,
			Train: &metrics.Record{Step: 3, Steps: 9, SlowestRank: &rank, SlowestRatio: metrics.NewNumber(tt.ratio), Straggler: tt.straggler}}
		var details string
		for _, l := range s.Details(time.Now()) {
			details += l.Label + " " + l.Text + "\n"
		}
		for view, text := range map[string]string{"status": details, "top": strings.Join(TopTable([]Status{s}).Lines(0), "\n"), "live": strings.Join(View{}.Lines(&s, 200, time.Now()), "\n")} {
			if strings.Contains(text, "rank 1") != tt.straggler {
				t.Errorf("%s, %g times, straggler %v: %s", view, tt.ratio, tt.straggler, text)
			}
		}
	}
}

// TestDetailsOfAttempts checks the ends of attempts, numbered across all launches of the run.
func TestDetailsOfAttempts(t *testing.T) {
	done, stopped, refused, rank := 0, 143, 5, 1
	s := Status{Name: "a", Phase: Done, Restarts: 1, Attempts: []outcome.Attempt{
		{Number: 1, Exit: &stopped, Stopped: true, Cause: "the launcher was asked to end"},
		{Number: 1, Exit: &refused},
		{Number: 1},
		{Number: 1, Exit: &refused, Rank: &rank, Cause: "rank 1 on n2 failed", Step: 7, Then: outcome.Restarted},
		{Number: 2, Exit: &done},
	}}
	var got []string
	for _, l := range s.Details(time.Now()) {
		if l.Label == "restarts" || strings.Contains(l.Text, "attempt") {
			_, text, found := strings.Cut(l.Text, "attempt ")
			if !found {
				text = l.Text
			}
			got = append(got, strings.TrimSpace(text))
		}
	}
	want := []string{"1", "1: the launcher was asked to end", "2: exit code 5", "3: it was killed together with its launcher", "4: rank 1 on n2 failed, at step 7; restarted"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestRequeueIsKnownWithoutItsEvent checks requeues without a recorded event. Slurm may kill a
// launcher before it records the requeue, or requeue the job on its own. A new job is not a
// requeue.
func TestRequeueIsKnownWithoutItsEvent(t *testing.T) {
	began := func(job string, requeues int) rundir.AttemptEvent {
		return rundir.AttemptEvent{Event: rundir.AttemptBegan, JobID: job, Requeues: requeues, Attempt: 1}
	}
	ended := func(job string, requeues, exit int) rundir.AttemptEvent {
		return rundir.AttemptEvent{Event: rundir.AttemptEnded, JobID: job, Requeues: requeues, Attempt: 1, Exit: exit}
	}
	for name, tt := range map[string]struct {
		events []rundir.AttemptEvent
		job    string // job of the run, which is pending; Slurm does not report its restarts
		phase  Phase
		then   []string // for each attempt
	}{
		"never started":           {nil, "18", Queued, nil},
		"the job waits again":     {[]rundir.AttemptEvent{began("18", 0), ended("18", 0, 3)}, "18", Requeued, []string{""}},
		"its launcher was killed": {[]rundir.AttemptEvent{began("18", 0)}, "18", Requeued, []string{""}},
		"another job waits":       {[]rundir.AttemptEvent{began("17", 0), ended("17", 0, 3)}, "18", Queued, []string{""}},
		"it started again":        {[]rundir.AttemptEvent{began("18", 0), ended("18", 0, 3), began("18", 1)}, "18", Requeued, []string{"requeued", ""}},
		"another job started":     {[]rundir.AttemptEvent{began("17", 0), ended("17", 0, 3), began("18", 0)}, "18", Requeued, []string{"", ""}},
		"without Slurm":           {[]rundir.AttemptEvent{began("", 0), began("", 0)}, "", NotSubmitted, []string{"", ""}},
	} {
		dir := rundir.Dir{Path: t.TempDir()}
		for _, e := range tt.events {
			if err := dir.AppendAttempt(e); err != nil {
				t.Fatal(err)
			}
		}
		s := Read(dir, "x", tt.job, nil)
		if tt.job != "" {
			s.AddJob(slurm.JobState{State: slurm.StatePending, Restarts: -1})
		}
		s.SetPhase(time.Now())
		var then []string
		for _, a := range s.Attempts {
			then = append(then, a.Then)
		}
		if s.Phase != tt.phase || !slices.Equal(then, tt.then) {
			t.Errorf("%s: %q, attempts then %q; want %q, %q", name, s.Phase, then, tt.phase, tt.then)
		}
	}
}
