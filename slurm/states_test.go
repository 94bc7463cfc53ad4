package slurm

import "testing"

// TestStateDone checks which states are final and which ones are successful.
func TestStateDone(t *testing.T) {
	for _, tt := range []struct {
		states          []State
		done, succeeded bool
	}{
		{states: []State{StatePending, StateConfiguring, StateRunning, StateSuspended, StateCompleting, StateRequeued, StateRequeueHold, StateUnknown, "SPECIAL_EXIT", "STAGE_OUT", ""}},
		{states: []State{StateFailed, StateCancelled, StateTimeout, StatePreempted, StateNodeFail, StateBootFail, StateDeadline, StateOutOfMemory, StateRevoked}, done: true},
		{states: []State{StateCompleted}, done: true, succeeded: true},
	} {
		for _, s := range tt.states {
			if j := (JobState{State: s}); j.Done() != tt.done || j.Succeeded() != tt.succeeded {
				t.Errorf("%s: got done %v, succeeded %v, want %v, %v", s, j.Done(), j.Succeeded(), tt.done, tt.succeeded)
			}
		}
	}
}

// TestParseState checks states that are truncated or have additional text.
func TestParseState(t *testing.T) {
	for s, want := range map[string]State{
		"RUNNING": StateRunning, "NODE_FAIL": StateNodeFail, "CANCELLED by 1000": StateCancelled, "COMPLETI+": "COMPLETI", "ZZ": "ZZ", "AA": "AA",
		"": StateUnknown, "running": StateUnknown, "12": StateUnknown,
	} {
		if got := parseState(s); got != want {
			t.Errorf("%q: got %q, want %q", s, got, want)
		}
	}
}

func TestJobStateString(t *testing.T) {
	for want, j := range map[string]JobState{
		"pending (Resources)": {State: StatePending, Reason: "Resources"}, "running": {State: StateRunning},
	} {
		if got := j.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// TestFormatExitCode checks Slurm's exit codes as text, with the names of signals.
func TestFormatExitCode(t *testing.T) {
	for exitCode, want := range map[string]string{
		"0:0":   "exit code 0",
		"3:0":   "exit code 3",
		"127:0": "exit code 127",
		"0:9":   "killed by signal 9 (SIGKILL)",
		"0:15":  "killed by signal 15 (SIGTERM)",
		"0:53":  "exit code 0:53", // not a signal: slurmstepd could not open a file
		"0:125": "exit code 0:125",
		"":      "exit code ",
		"x:y":   "exit code x:y",
	} {
		if got := FormatExitCode(exitCode); got != want {
			t.Errorf("%q: got %q, want %q", exitCode, got, want)
		}
	}
}

// TestAggregateStates checks the state of a job array with tasks in different states.
func TestAggregateStates(t *testing.T) {
	for _, tt := range []struct {
		states []State
		want   State
		reason string
	}{
		{states: []State{StateCompleted, StateCompleted}, want: StateCompleted, reason: "2 COMPLETED"},
		{states: []State{StateCompleted, StateFailed, StateTimeout}, want: StateFailed, reason: "1 COMPLETED, 1 FAILED, 1 TIMEOUT"},
		{states: []State{StateFailed, StatePending}, want: StatePending, reason: "1 FAILED, 1 PENDING"},
		{states: []State{StatePending, StateRunning, StateFailed}, want: StateRunning, reason: "1 PENDING, 1 RUNNING, 1 FAILED"},
		{states: []State{StateCompleted, StateUnknown}, want: StateUnknown, reason: "1 COMPLETED, 1 UNKNOWN"},
	} {
		var groups []taskGroup
		for i, s := range tt.states {
			groups = append(groups, taskGroup{first: i, count: 1, state: &JobState{State: s, Restarts: i - 1, ExitCode: string(s)}})
		}
		got := aggregateStates("18", groups)
		want := JobState{ID: "18", ArrayJobID: "18", State: tt.want, Reason: tt.reason, ExitCode: string(tt.want), Restarts: len(tt.states) - 2}
		if got != want {
			t.Errorf("%v: got %+v, want %+v", tt.states, got, want)
		}
	}
}
