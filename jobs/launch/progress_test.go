package launch

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/jobs/rundir"
	"github.com/ddpbatch/ddpbatch/trainer/checkpoint"
	"github.com/ddpbatch/ddpbatch/trainer/safetensors"
)

// TestProgress checks that only a verified checkpoint counts as progress, at the start and
// later.
func TestProgress(t *testing.T) {
	o, _, _ := inJob(t, trains, nil)
	o.Dir = rundir.Dir{Path: t.TempDir()}
	save := func(step int, damage bool) {
		t.Helper()
		tensor := safetensors.Tensor{Name: "w", Shape: []int{2}, Data: []float32{1, float32(step)}}
		path, err := checkpoint.Save(o.Dir.Checkpoints(), &checkpoint.Manifest{Step: step}, checkpoint.Files{checkpoint.ModelFile: {tensor}})
		if err != nil {
			t.Fatal(err)
		}
		if damage {
			if err := os.Truncate(filepath.Join(path, checkpoint.ModelFile), 5); err != nil {
				t.Fatal(err)
			}
		}
	}
	p := watchProgress(t.Context(), o)
	if p.advancedSinceStart() {
		t.Error("nothing is progress")
	}
	save(10, false)
	save(20, true)
	p = watchProgress(t.Context(), o)
	for i, tt := range []struct {
		save, damaged  int
		further, since bool
	}{{0, 0, false, false}, {0, 30, false, false}, {15, 0, true, true}, {0, 40, false, true}, {25, 0, true, true}} {
		if tt.save > 0 {
			save(tt.save, false)
		}
		if tt.damaged > 0 {
			save(tt.damaged, true)
		}
		if further := p.advanced(); further != tt.further || p.advancedSinceStart() != tt.since {
			t.Errorf("%d: further %v, since %v; want %+v", i, further, p.advancedSinceStart(), tt)
		}
	}
}

// TestBackOff checks that the delay before a restart grows up to a maximum.
func TestBackOff(t *testing.T) {
	last := time.Duration(0)
	for without, want := range map[int]string{1: "", 2: " in 2s", 3: " in 4s", 5: " in 16s", 6: " in 30s", 1000: " in 30s"} {
		if got := formatDelay(restartDelay(without)); got != want {
			t.Errorf("restart %d comes%s, want%s", without, got, want)
		}
	}
	for without := range 100 {
		if p := restartDelay(without); p < last || p > maxRestartDelay {
			t.Errorf("restart %d comes in %s, the one before in %s", without, p, last)
		} else {
			last = p
		}
	}
}

// TestRest checks that a signal, the time limit, and a canceled context end a delay.
func TestRest(t *testing.T) {
	signals := make(chan os.Signal, 1)
	o := Options{Signals: signals}
	signals <- syscall.SIGTERM
	if got := o.waitBeforeRestart(t.Context(), time.Hour, nil); got != syscall.SIGTERM {
		t.Errorf("got %v", got)
	}
	near := make(chan struct{})
	close(near)
	if got := o.waitBeforeRestart(t.Context(), time.Hour, near); got != nil {
		t.Errorf("got %v", got)
	}
}
