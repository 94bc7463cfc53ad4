package watch

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/ddpbatch/ddpbatch/jobs/rundir"
	"github.com/ddpbatch/ddpbatch/slurm"
	"github.com/ddpbatch/ddpbatch/trainer/metrics"
)

// Lines are read as they come, each once; a file in the place of the one before is
// read from its start.
func TestFigures(t *testing.T) {
	path := filepath.Join(t.TempDir(), "metrics.jsonl")
	f := NewFigures(path)
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

// What the phase is without Slurm, or where it does not tell.
func TestPhaseWithoutSlurm(t *testing.T) {
	now := time.Now()
	live := func(phase string, ago time.Duration, groups ...rundir.NodeGroup) *rundir.Live {
		return &rundir.Live{Time: now.Add(-ago), Phase: phase, Ranks: 4, Joined: 4, Nodes: groups}
	}
	end := func(exit int) *rundir.End { return &rundir.End{Exit: exit} }
	saved := &Checkpoint{Step: 7}
	for _, tt := range []struct {
		name    string
		s       Status
		failure string
		phase   Phase
		detail  string
		advice  string
	}{
		{"never begun", Status{}, "", NotSubmitted, "", ""},
		{"training", Status{Live: live(rundir.PhaseRunning, 0, rundir.NodeGroup{State: "training"})}, "", Training, "", ""},
		{"one node saves", Status{Live: live(rundir.PhaseRunning, 0, rundir.NodeGroup{State: "saving"}, rundir.NodeGroup{State: "training"})}, "", Saving, "", ""},
		{"a program", Status{Live: live(rundir.PhaseRunning, 0, rundir.NodeGroup{State: "running"})}, "", Running, "", ""},
		{"restarting", Status{Live: &rundir.Live{Time: now, Phase: rundir.PhaseRestarting, Detail: "rank 1\x1b[31m is lost"}}, "rank 1 is lost", Restarting, "rank 1[31m is lost", ""},
		{"done", Status{Live: live(rundir.PhaseOver, time.Hour), end: end(0)}, "", Done, "", ""},
		{"stopped", Status{Live: live(rundir.PhaseOver, 0), end: end(3), Saved: saved}, "", Stopped, "", "launch it again to go on after step 7"},
		{"stopped, and its checkpoint damaged", Status{Live: live(rundir.PhaseOver, 0), end: end(3), Saved: &Checkpoint{Step: 7, Damaged: "no manifest"}}, "", Stopped, "", "launch it again to go on from the newest checkpoint that verifies: that of step 7 does not"},
		{"failed", Status{Live: live(rundir.PhaseOver, 0), end: end(4)}, "rank 1 on n1 was lost", Failed, "rank 1 on n1 was lost", ""},
		{"a program that failed with the code of a stop", Status{end: end(3), Saved: saved}, "rank 0 on n1: sh ended with exit code 3", Failed, "rank 0 on n1: sh ended with exit code 3", ""},
		{"the same, of a job", Status{Job: "18", State: slurm.StateFailed, ExitCode: "3:0", end: end(3)}, "rank 0 on n1: sh ended with exit code 3", Failed, "rank 0 on n1: sh ended with exit code 3", ""},
		{"a job that was asked to stop", Status{Job: "18", State: slurm.StateFailed, ExitCode: "3:0", end: end(3), Saved: saved}, "", Stopped, "", "submit it again to go on after step 7"},
		{"a batch script that failed before its launcher", Status{Job: "18", State: slurm.StateFailed, ExitCode: "3:0", Saved: saved}, "", Failed, "exit code 3:0", ""},
		{"failed without a word", Status{Live: live(rundir.PhaseOver, 0), end: end(4)}, "", Failed, "exit code 4", ""},
		{"killed", Status{Live: live(rundir.PhaseRunning, time.Hour)}, "", Killed, "its launcher was killed, and left no word", ""},
		{"Slurm is away, the launcher is not", Status{Job: "18", State: slurm.StateUnknown, Live: &rundir.Live{Time: now, JobID: "18", Phase: rundir.PhaseJoining, Ranks: 2}}, "", Joining, "0 of 2 ranks have joined", ""},
		{"a launcher of another job", Status{Job: "19", State: slurm.StateRunning, Live: &rundir.Live{Time: now, JobID: "18", Phase: rundir.PhaseRunning}}, "", Starting, "no rank was started yet", ""},
		{"out of memory", Status{Job: "18", State: slurm.StateOutOfMemory}, "", Failed, "it ran out of memory", ""},
		{"finished, but to be trained further", Status{Job: "18", State: slurm.StatePending, Reason: "Priority", Finished: true}, "", Queued, "other jobs come first", "`sprio --jobs=18` shows what its priority is made of; a smaller or shorter job may fit into a gap"},
		{"finished", Status{Job: "18", State: slurm.StateFailed, ExitCode: "1:0", Finished: true}, "", Done, "", ""},
	} {
		tt.s.Settle(tt.failure, now)
		if tt.s.Phase != tt.phase || tt.s.Detail != tt.detail || tt.s.Advice != tt.advice {
			t.Errorf("%s: %q %q %q, want %q %q %q", tt.name, tt.s.Phase, tt.s.Detail, tt.s.Advice, tt.phase, tt.detail, tt.advice)
		}
	}
}

// A line that has no end, or is longer than a record can be, is passed over and not kept.
func TestFiguresOfRubbish(t *testing.T) {
	path := filepath.Join(t.TempDir(), "metrics.jsonl")
	rubbish := strings.Repeat("x", metrics.MaxLine+metrics.MaxLine/2)
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(rubbish)
	f := NewFigures(path)
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

// What others have written steers no terminal, and no rank is looked for where none is.
func TestTextsOfOthers(t *testing.T) {
	const steer = "\x1b]0;x\a\x9b2J\n"
	step, nobody := 3, -9
	for _, s := range []Status{
		{Name: steer, Job: "18", State: slurm.StateUnknown, Reason: steer},
		{Name: steer, Job: "18", State: slurm.StatePending, Reason: steer, Start: steer},
		{Name: steer, Step: &step, Steps: 9, Train: &metrics.Record{Step: 3, Loss: metrics.Of(1), SlowestRank: &nobody, SlowestRatio: metrics.Of(9)}},
		{Name: steer},
	} {
		s.Live = &rundir.Live{Time: time.Now(), JobID: s.Job, Phase: rundir.PhaseRunning, Detail: steer, Hosts: "n[1-2]" + steer, PerNode: 1, Ranks: 2, Joined: 2,
			Nodes: []rundir.NodeGroup{{State: "training", Hosts: steer, Ranks: []int{0}, Count: 1}, {State: "lost" + steer, Hosts: steer}}}
		s.Settle(steer, time.Now())
		s.hostOf(nobody)
		lines := append(View{}.Lines(&s, 200, time.Now()), Table([]Status{s}, 200)...)
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

func TestRestarts(t *testing.T) {
	done, lost := 0, 4
	for name, c := range map[string]struct {
		attempts []Attempt
		want     int
	}{
		"none":               {nil, 0},
		"it goes on":         {[]Attempt{{}}, 0},
		"finished, and more": {[]Attempt{{Exit: &done}, {}}, 0},
		"lost a rank":        {[]Attempt{{Exit: &lost, Then: "restarted"}, {Exit: &done}}, 1},
		"killed":             {[]Attempt{{}, {Exit: &done}}, 1},
		"failed for good":    {[]Attempt{{Exit: &lost}}, 0},
		"requeued":           {[]Attempt{{Exit: &lost, Then: "requeued"}}, 1},
	} {
		if got := (&Status{Attempts: c.attempts}).Restarts(); got != c.want {
			t.Errorf("%s: %d restarts, want %d", name, got, c.want)
		}
	}
}

func TestFailedAttempt(t *testing.T) {
	done, stopped, lost, rank := 0, 3, 4, 0
	for name, c := range map[string]struct {
		a    Attempt
		want bool
	}{
		"it goes on":          {Attempt{}, false},
		"done":                {Attempt{Exit: &done}, false},
		"asked to stop":       {Attempt{Exit: &stopped, Cause: "the time limit is near"}, false},
		"a program failed so": {Attempt{Exit: &stopped, Cause: "sh ended with exit code 3", Rank: &rank}, true},
		"lost":                {Attempt{Exit: &lost}, true},
	} {
		if got := c.a.Failed(); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func TestSpan(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "0s", 12 * time.Second: "12s", 200 * time.Second: "3m20s", 125 * time.Minute: "2h05m", 76 * time.Hour: "3d4h",
		59*time.Second + 600*time.Millisecond: "1m00s",
	} {
		if got := Span(d); got != want {
			t.Errorf("%v: %q, want %q", d, got, want)
		}
	}
}
