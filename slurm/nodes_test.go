package slurm

import (
	"maps"
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
