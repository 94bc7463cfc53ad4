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
echo "12|12|N/A|$1|n1|0:05|s|e|1|0|None|j"`
}

// The programs are real processes; only the pauses between them are not.
func TestWait(t *testing.T) {
	fake := newFakeSlurm(t, map[string]string{
		"squeue": script("PENDING", "RUNNING", "down", "RUNNING", "RUNNING", "RUNNING", "COMPLETING", "COMPLETED"),
		"sacct":  noAccounts,
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
			fake := newFakeSlurm(t, map[string]string{"squeue": tt.squeue, "sacct": noAccounts})
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
	fake := newFakeSlurm(t, map[string]string{"squeue": script("PENDING"), "sacct": noAccounts})
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

// The elements of an array, one call for all of them at each time: element 0
// ends at the second poll and is not asked for again, 1 at the third.
func TestWaitAll(t *testing.T) {
	fake := newFakeSlurm(t, map[string]string{
		"squeue": record + `n=$(/bin/cat "$FAKE/n" 2>/dev/null || echo 0); n=$((n+1)); echo $n >"$FAKE/n"
case $n in 1) a=RUNNING b=PENDING c=PENDING;; 2) a=FAILED b=RUNNING c=PENDING;; 3) a= b=COMPLETED c=COMPLETING;; *) a= b= c=COMPLETED;; esac
test -z "$a" || echo "19|18|0|$a|n1|0:05|s|e|0|256|None|j"
test -z "$b" || echo "20|18|1|$b|n1|0:05|s|e|0|0|None|j"
echo "12|N/A|N/A|$c|n1|0:05|s|e|0|0|None|j"`,
		"sacct": record + noAccounts,
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
			t.Errorf("%+v, %v", got, err)
		}
		want := []string{"RUNNING PENDING PENDING", "FAILED PENDING RUNNING", "FAILED COMPLETING COMPLETED", "FAILED COMPLETED COMPLETED"}
		if !slices.Equal(seen, want) {
			t.Errorf("saw %q, want %q", seen, want)
		}
	})
	var asked []string
	for _, call := range fake.calls(t) {
		asked = append(asked, call[0]+" "+call[4])
	}
	want := []string{"squeue --jobs=12,18", "squeue --jobs=12,18", "squeue --jobs=12,18", "squeue --jobs=12"}
	if !slices.Equal(asked, want) {
		t.Errorf("asked %q, want %q", asked, want)
	}
}

// One job that nobody knows is given up; the others are waited for.
func TestWaitAllGivesOneUp(t *testing.T) {
	fake := newFakeSlurm(t, map[string]string{
		"squeue": `n=$(/bin/cat "$FAKE/n" 2>/dev/null || echo 0); n=$((n+1)); echo $n >"$FAKE/n"
s=RUNNING; test $n -lt 60 || s=COMPLETED; echo "12|N/A|N/A|$s|n1|0:05|s|e|0|0|None|j"`,
		"sacct": noAccounts,
	})
	synctest.Test(t, func(t *testing.T) {
		got, err := fake.WaitAll(t.Context(), []string{"13", "12"}, nil)
		if err == nil || !strings.Contains(err.Error(), "waiting for job 13: its state has been unknown for 10m") {
			t.Errorf("%v", err)
		}
		if len(got) != 2 || got[0].State != StateUnknown || !got[1].Succeeded() {
			t.Errorf("%+v", got)
		}
	})
	if got, err := fake.WaitAll(t.Context(), nil, nil); got != nil || err != nil {
		t.Errorf("no jobs: %v, %v", got, err)
	}
	if _, err := fake.WaitAll(t.Context(), []string{"12", "--me"}, nil); err == nil {
		t.Error("waited for an option")
	}
}
