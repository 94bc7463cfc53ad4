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
)

// script is an squeue that prints one line of its answers at each call and the
// last one for ever; an answer "down" is a controller that cannot be reached.
func script(answers ...string) string {
	return `n=$(/bin/cat "$FAKE/n" 2>/dev/null || echo 0); n=$((n+1)); echo $n >"$FAKE/n"
set -- ` + "'" + strings.Join(answers, "' '") + `'
while [ $n -gt 1 ] && [ $# -gt 1 ]; do shift; n=$((n-1)); done
case $1 in
down) ` + downSqueue + `;;
gone) ` + forgotten + `;;
esac
echo "12|$1|None|n1|0:05|s|e|j"`
}

// The programs are real processes; only the pauses between them are not.
func TestWait(t *testing.T) {
	done := show("JobId=12 JobName=j\n   JobState=COMPLETED Reason=None\n   Requeue=1 Restarts=1 ExitCode=0:0\n")
	fake := newFakeSlurm(t, map[string]string{
		"squeue":   script("PENDING", "RUNNING", "down", "RUNNING", "RUNNING", "RUNNING", "COMPLETING", "COMPLETED"),
		"scontrol": done, "sacct": noAccounts,
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
			t.Errorf("saw %v, want %v", seen, wantSeen)
		}
		// 1, 2, 4, 8, 15, 15 and 15 seconds of pause; the third call failed.
		wantAt := []time.Duration{0, 1, 7, 15, 30, 45, 60}
		for i := range wantAt {
			wantAt[i] *= time.Second
		}
		if !slices.Equal(at, wantAt) {
			t.Errorf("asked at %v, want %v", at, wantAt)
		}
	})
}

func TestWaitGivesUp(t *testing.T) {
	tests := []struct {
		name, squeue string
		last         State
		failing      bool
	}{
		{"controller down", script("RUNNING", "down"), StateRunning, true},
		{"never heard of", script("gone"), StateUnknown, false},
		{"forgotten", script("RUNNING", "gone"), StateRunning, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			fake := newFakeSlurm(t, map[string]string{"squeue": tt.squeue, "scontrol": forgotten, "sacct": noAccounts})
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				j, err := fake.Wait(t.Context(), "12", nil)
				if err == nil || !strings.Contains(err.Error(), "its state has been unknown for 10m") || j.State != tt.last || j.Done() {
					t.Errorf("got %+v, %v", j, err)
				}
				if waited := time.Since(start); waited < patience || waited > patience+2*lastPoll {
					t.Errorf("gave up after %s", waited)
				}
				if hint := hintOf(err); !strings.Contains(hint, "squeue --jobs=12") {
					t.Errorf("hint %q", hint)
				}
				var failed *CommandError
				if errors.As(err, &failed) != tt.failing {
					t.Errorf("%v: wraps a failed call: %v, want %v", err, !tt.failing, tt.failing)
				}
			})
		})
	}
}

// A long queue is not a reason to give up.
func TestWaitIsPatient(t *testing.T) {
	fake := newFakeSlurm(t, map[string]string{"squeue": script("PENDING"), "scontrol": forgotten, "sacct": noAccounts})
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
		defer cancel()
		j, err := fake.Wait(ctx, "12", nil)
		if !errors.Is(err, context.DeadlineExceeded) || j.State != StatePending {
			t.Errorf("got %+v, %v", j, err)
		}
	})
}

func TestWaitWithoutSlurm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		_, err := Client{}.Wait(t.Context(), "12", nil)
		if !errors.Is(err, exec.ErrNotFound) || time.Since(start) > 0 {
			t.Errorf("got %v after %s", err, time.Since(start))
		}
		if _, err := (Client{}).Wait(t.Context(), "x", nil); err == nil {
			t.Error("waited for job x")
		}
	})
}
