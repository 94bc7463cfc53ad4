package slurm

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestNodeStates(t *testing.T) {
	for state, want := range map[NodeState][2]bool{ // down, draining
		"allocated": {}, "mixed": {}, "idle": {}, "mixed-": {}, "completing": {}, "maint": {}, "allocated+": {},
		"draining": {false, true}, "drained": {true, true}, "draining*": {true, true},
		"down": {true}, "down*": {true}, "allocated*": {true}, "fail": {true}, "failing": {true}, "error": {true},
		"powering_down": {true}, "down~": {true}, "down$": {true},
	} {
		if got := [2]bool{state.Down(), state.Draining()}; got != want {
			t.Errorf("%q: down, draining %v, want %v", state, got, want)
		}
	}
	got := parseNodeStates("n1|allocated\nn1|allocated\nn2|DOWN*\n\ncut off\n|x\nn3|\n")
	if want := map[string]NodeState{"n1": "allocated", "n2": "down*"}; !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func FuzzParseNodeStates(f *testing.F) {
	f.Add("n1|allocated\nn2|down*\n")
	f.Fuzz(func(t *testing.T, out string) {
		for name, state := range parseNodeStates(out) {
			if name == "" || strings.ContainsAny(name, "|\n") || state == "" {
				t.Errorf("%q is %q", name, state)
			}
		}
	})
}

// The four files are what `scontrol show job --oneliner` of 22.05.8 printed.
func TestPreemption(t *testing.T) {
	for name, want := range map[string]Preemption{
		"running": NotPreempted, "grace": Preempted, "completing": TakenBack, "requeued": TakenBack,
	} {
		text, err := os.ReadFile(filepath.Join("testdata", "preemption", name+".txt"))
		if err != nil {
			t.Fatal(err)
		}
		if got := parsePreemption(string(text), 0); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if got := parsePreemption("JobState=RUNNING Restarts=1 PreemptTime=None Command=/x PreemptTime=2026-11-21T17:26:49", 1); got != NotPreempted {
		t.Errorf("a command that looks like a field: %q", got)
	}
	// scancel, and a time limit.
	for _, state := range []string{"CANCELLED", "COMPLETING", "TIMEOUT"} {
		if got := parsePreemption("JobState="+state+" Restarts=2 PreemptTime=None", 2); got != NotPreempted {
			t.Errorf("%s: %q", state, got)
		}
	}
}

func FuzzParsePreemption(f *testing.F) {
	f.Add("JobState=RUNNING Restarts=0 PreemptTime=2026-11-21T17:26:49", 0)
	f.Fuzz(func(t *testing.T, out string, restarts int) {
		if got := parsePreemption(out, restarts); got == Preempted && !strings.Contains(out, "JobState=RUNNING") {
			t.Errorf("%q: %q", out, got)
		}
	})
}
