package slurm

import "testing"

// What the caller remembers stands in for what Slurm has forgotten, and only for
// that.
func TestRemember(t *testing.T) {
	fake := newFakeSlurm(t, map[string]string{
		"squeue": `echo '7|7|N/A|RUNNING|n1|0:10|N/A|N/A|0|0|None|x'`,
		"sacct":  `echo 'Slurm accounting storage is disabled' >&2; exit 1`,
	})
	fake.Remember = func(id string) (JobState, bool) {
		return JobState{ID: id, State: StateCancelled, Restarts: -1}, id != "9"
	}
	states, err := fake.State(t.Context(), "7", "8_2", "9")
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []State{StateRunning, StateCancelled, StateUnknown} {
		if states[i].State != want {
			t.Errorf("job %s is %s, want %s", states[i].ID, states[i].State, want)
		}
	}
}
