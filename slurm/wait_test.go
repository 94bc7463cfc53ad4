package slurm

import (
	"context"
	"errors"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ddpbatch/ddpbatch/internal/hints"
)

// squeueStates returns a script for squeue that prints one state per call, and the last one
// in all later calls. The state "down" means that the controller does not respond, and
// "gone" that it has no record of the job.
func squeueStates(states ...string) string {
	return `n=$(/bin/cat "$FAKE/n" 2>/dev/null || echo 0); n=$((n+1)); echo $n >"$FAKE/n"
set -- ` + "'" + strings.Join(states, "' '") + `'
while [ $n -gt 1 ] && [ $# -gt 1 ]; do shift; n=$((n-1)); done
case $1 in
down) ` + controllerDown + `;;
gone) ` + unknownID + `;;
esac
echo "12|12|N/A|$1|n1|0:05|s|e|1|0|None"`
}

// TestWait checks Wait with real processes. Only the time between them is simulated.
func TestWait(t *testing.T) {
	fake := newFakeSlurm(t, map[string]string{
		"squeue": squeueStates("PENDING", "RUNNING", "down", "RUNNING", "RUNNING", "RUNNING", "COMPLETING", "COMPLETED"),
		"sacct":  noAccounting,
	})
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var seen []State
		var at []time.Duration
		j, err := fake.Wait(t.Context(), "12", func(j JobState) {
			seen = append(seen, j.State)
			at = append(at, time.Since(start))
		})
		if err != nil || !j.Succeeded() || j.Restarts != 1 || j.ExitCode != "0:0" {
			t.Errorf("got %+v, %v", j, err)
		}
		wantSeen := []State{StatePending, StateRunning, StateRunning, StateRunning, StateRunning, StateCompleting, StateCompleted}
		if !slices.Equal(seen, wantSeen) {
			t.Errorf("got states %v, want %v", seen, wantSeen)
		}
		// The intervals are 1, 2, 4, 8, 15, 15, and 15 s. The third call failed.
		wantAt := []time.Duration{0, 1, 7, 15, 30, 45, 60}
		for i := range wantAt {
			wantAt[i] *= time.Second
		}
		if !slices.Equal(at, wantAt) {
			t.Errorf("got states at %v, want %v", at, wantAt)
		}
	})
}

// TestWaitUnknownTimeout checks that a wait ends if Slurm does not report the job's state for too
// long.
func TestWaitUnknownTimeout(t *testing.T) {
	tests := []struct {
		name, squeue string
		last         State
		failing      bool
	}{
		{name: "controller down", squeue: squeueStates("RUNNING", "down"), last: StateRunning, failing: true},
		{name: "never known", squeue: squeueStates("gone"), last: StateUnknown},
		{name: "forgotten", squeue: squeueStates("RUNNING", "gone"), last: StateRunning},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			fake := newFakeSlurm(t, map[string]string{"squeue": tt.squeue, "sacct": noAccounting})
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				j, err := fake.Wait(t.Context(), "12", nil)
				if err == nil || !strings.Contains(err.Error(), "job 12: state unknown for 10m") || j.State != tt.last || j.Done() {
					t.Errorf("got %+v, %v", j, err)
				}
				if waited := time.Since(start); waited < unknownTimeout || waited > unknownTimeout+2*maxPollInterval {
					t.Errorf("returned after %s", waited)
				}
				if got := hints.Of(err); !strings.Contains(got, "squeue --jobs=12") {
					t.Errorf("got hint %q", got)
				}
				var failed *CommandError
				if errors.As(err, &failed) != tt.failing {
					t.Errorf("%v: got failed call %v, want %v", err, !tt.failing, tt.failing)
				}
			})
		})
	}
}

// TestWaitForPendingJob checks that a job may be pending for any time.
func TestWaitForPendingJob(t *testing.T) {
	fake := newFakeSlurm(t, map[string]string{"squeue": squeueStates("PENDING"), "sacct": noAccounting})
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 2*unknownTimeout)
		defer cancel()
		j, err := fake.Wait(ctx, "12", nil)
		if !errors.Is(err, context.DeadlineExceeded) || j.State != StatePending {
			t.Errorf("got %+v, %v", j, err)
		}
	})
}

// TestWaitWithoutSlurm checks that a wait without Slurm or with an invalid ID fails immediately.
func TestWaitWithoutSlurm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		_, err := Client{}.Wait(t.Context(), "12", nil)
		if !errors.Is(err, exec.ErrNotFound) || time.Since(start) > 0 {
			t.Errorf("got %v after %s", err, time.Since(start))
		}
		if _, err := (Client{}).Wait(t.Context(), "x", nil); err == nil {
			t.Error("job x: got no error")
		}
	})
}

// TestWaitAll checks that WaitAll queries all array tasks in one call. Task 0 ends at the second
// query and is not queried again. Task 1 ends at the third.
func TestWaitAll(t *testing.T) {
	fake := newFakeSlurm(t, map[string]string{
		"squeue": record + `n=$(/bin/cat "$FAKE/n" 2>/dev/null || echo 0); n=$((n+1)); echo $n >"$FAKE/n"
case $n in 1) a=RUNNING b=PENDING c=PENDING;; 2) a=FAILED b=RUNNING c=PENDING;; 3) a= b=COMPLETED c=COMPLETING;; *) a= b= c=COMPLETED;; esac
test -z "$a" || echo "19|18|0|$a|n1|0:05|s|e|0|256|None"
test -z "$b" || echo "20|18|1|$b|n1|0:05|s|e|0|0|None"
echo "12|N/A|N/A|$c|n1|0:05|s|e|0|0|None"`,
		"sacct": record + noAccounting,
	})
	synctest.Test(t, func(t *testing.T) {
		var seen []string
		got, err := fake.WaitAll(t.Context(), []string{"18_0", "12", "18_1"}, func(states []JobState) {
			var s []string
			for _, j := range states {
				s = append(s, string(j.State))
			}
			seen = append(seen, strings.Join(s, " "))
		})
		if err != nil || len(got) != 3 || got[0].State != StateFailed || got[0].ExitCode != "1:0" || got[1].ID != "12" || !got[2].Succeeded() {
			t.Errorf("got %+v, %v", got, err)
		}
		want := []string{"RUNNING PENDING PENDING", "FAILED PENDING RUNNING", "FAILED COMPLETING COMPLETED", "FAILED COMPLETED COMPLETED"}
		if !slices.Equal(seen, want) {
			t.Errorf("got states %q, want %q", seen, want)
		}
	})
	var queries []string
	for _, call := range fake.calls(t) {
		queries = append(queries, call[0]+" "+call[4])
	}
	want := []string{"squeue --jobs=12,18", "squeue --jobs=12,18", "squeue --jobs=12,18", "squeue --jobs=12"}
	if !slices.Equal(queries, want) {
		t.Errorf("got queries %q, want %q", queries, want)
	}
}

// TestWaitAllUnknownTimeout checks that WaitAll stops waiting for a job of unknown state, but
// waits for the others.
func TestWaitAllUnknownTimeout(t *testing.T) {
	fake := newFakeSlurm(t, map[string]string{
		"squeue": `n=$(/bin/cat "$FAKE/n" 2>/dev/null || echo 0); n=$((n+1)); echo $n >"$FAKE/n"
s=RUNNING; test $n -lt 60 || s=COMPLETED; echo "12|N/A|N/A|$s|n1|0:05|s|e|0|0|None"`,
		"sacct": noAccounting,
	})
	synctest.Test(t, func(t *testing.T) {
		got, err := fake.WaitAll(t.Context(), []string{"13", "12"}, nil)
		if err == nil || !strings.Contains(err.Error(), "job 13: state unknown for 10m") {
			t.Errorf("got error %v", err)
		}
		if len(got) != 2 || got[0].State != StateUnknown || !got[1].Succeeded() {
			t.Errorf("got %+v", got)
		}
	})
	if got, err := fake.WaitAll(t.Context(), nil, nil); got != nil || err != nil {
		t.Errorf("no jobs: got %v, %v", got, err)
	}
	if _, err := fake.WaitAll(t.Context(), []string{"12", "--me"}, nil); err == nil {
		t.Error("option as ID: got no error")
	}
}
