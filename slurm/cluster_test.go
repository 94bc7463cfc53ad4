package slurm

import (
	"errors"
	"maps"
	"strings"
	"testing"
)

// TestVersion checks the version of Slurm in the formats of different packages.
func TestVersion(t *testing.T) {
	for output, want := range map[string]string{
		"slurm 23.11.4": "23.11.4", "slurm-wlm 22.05.8": "22.05.8", "slurm 25.05.0-0rc1": "25.05.0-0rc1", "unknown": "", "": "",
	} {
		fake := newFakeSlurm(t, map[string]string{"sbatch": "echo '" + output + "'"})
		got, err := fake.Version(t.Context())
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q: got %q, %v, want %q", output, got, err, want)
		}
	}
	if _, err := newFakeSlurm(t, map[string]string{"sbatch": mustNotRun}).Version(t.Context()); !errors.As(err, new(*CommandError)) {
		t.Errorf("got %v, want a *CommandError", err)
	}
}

// TestParseConfig checks which lines of scontrol's output are settings.
func TestParseConfig(t *testing.T) {
	got := parseConfig(`Configuration data as of 2026-01-01T00:00:00
AccountingStorageType   = accounting_storage/none
KillWait                = 30 sec
SLURM_VERSION           = 22.05.8
SlurmctldParameters     = (null)
Az09_                   = limits of the characters
a@                      = x
a[                      = x
a` + "`" + `                      = x
a{                      = x
a/                      = x
a:                      = x

Cgroup Support Configuration:
KillWait                = 7

Slurmctld(primary) at control is UP
`)
	want := map[string]string{"AccountingStorageType": "accounting_storage/none", "KillWait": "30 sec", "SLURM_VERSION": "22.05.8", "SlurmctldParameters": "(null)",
		"Az09_": "limits of the characters"}
	if !maps.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// FuzzParseConfig checks that no setting has an empty name or control characters.
func FuzzParseConfig(f *testing.F) {
	f.Add("0\r0 = ")
	f.Add("A = b\nA = c\n = d\nB  =  \x1b[0m\n")
	f.Fuzz(func(t *testing.T, out string) {
		for key, value := range parseConfig(out) {
			if key == "" || strings.ContainsAny(key+value, "\n\r\x1b") {
				t.Errorf("got %q = %q", key, value)
			}
		}
	})
}

// TestNodeState checks which states of a node count as down or draining.
func TestNodeState(t *testing.T) {
	for _, tt := range []struct {
		states         string
		down, draining bool
	}{
		{states: "allocated mixed idle mixed- completing maint allocated+ planned"},
		{states: "draining", draining: true},
		{states: "drained draining*", down: true, draining: true},
		{states: "down down* allocated* fail failing error powering_down powered_down down~ down$ unknown", down: true},
	} {
		for s := range strings.FieldsSeq(tt.states) {
			if s := NodeState(s); s.Down() != tt.down || s.Draining() != tt.draining {
				t.Errorf("%q: got down %v, draining %v, want %v, %v", s, s.Down(), s.Draining(), tt.down, tt.draining)
			}
		}
	}
}

// TestNodeStates checks that invalid lines of sinfo are skipped, and that the error names the
// nodes.
func TestNodeStates(t *testing.T) {
	fake := newFakeSlurm(t, map[string]string{"sinfo": record + show("n1|allocated\nn1|allocated\nn2|DOWN*\n\ncut off\n|x\nn3|\n")})
	got, err := fake.NodeStates(t.Context(), []string{"n1", "n2", "n3", "n4"})
	if want := map[string]NodeState{"n1": "allocated", "n2": "down*"}; err != nil || !maps.Equal(got, want) {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
	if calls := fake.calls(t); len(calls) != 1 || !strings.Contains(strings.Join(calls[0], " "), " --nodes=n[1-4] ") {
		t.Errorf("got calls %q", calls)
	}
	if _, err := newFakeSlurm(t, map[string]string{"sinfo": "exit 1"}).NodeStates(t.Context(), []string{"n1"}); err == nil || !strings.Contains(err.Error(), "n1") {
		t.Errorf("got %v, want an error that names n1", err)
	}
}

// FuzzParseNodeStates checks that any accepted line has a node and a state.
func FuzzParseNodeStates(f *testing.F) {
	f.Add("n1|allocated\nn2|down*\n")
	f.Fuzz(func(t *testing.T, out string) {
		for name, state := range parseNodeStates(out) {
			if name == "" || strings.ContainsAny(name, "|\n") || state == "" {
				t.Errorf("got %q is %q", name, state)
			}
		}
	})
}
