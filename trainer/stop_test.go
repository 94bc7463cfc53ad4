package trainer

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/trainer/checkpoint"
	"github.com/ddpbatch/ddpbatch/trainer/collective"
)

// counted asks a rank to stop when it begins the nth collective.
type counted struct {
	collective.Communicator
	call int
	stop chan struct{}
}

func (c *counted) Do(ctx context.Context, call collective.Call) error {
	if c.call--; c.call == 0 {
		close(c.stop)
	}
	return c.Communicator.Do(ctx, call)
}

// TestStopWhileCheckpointIsVerified checks that rank 0 stops reading a checkpoint when it is asked
// to stop, and that the other rank does not wait for it.
func TestStopWhileCheckpointIsVerified(t *testing.T) {
	j, dir := job(t, fmt.Sprintf(mlp, 8)), t.TempDir()
	_, _, errs := world(t, 2, j, dir, stopAfter(Trained, 7))
	ok(t, errs)
	before, err := checkpoint.List(dir)
	if err != nil || len(before) == 0 {
		t.Fatal(before, err)
	}
	events, result, errs := world(t, 2, j, dir, func(rank int, o *Options) {
		stop := make(chan struct{})
		o.Stop = stop
		if rank == 0 {
			o.Comm = &counted{o.Comm, 2, stop} // after the data, before the checkpoint
		}
	})
	ok(t, errs)
	if !result.Stopped {
		t.Errorf("got %+v, want it stopped", result)
	}
	for _, e := range events {
		if e.Kind == CheckpointSkipped || e.Kind == Started || e.Kind == Trained {
			t.Errorf("after the request to stop: %v", e)
		}
	}
	after, err := checkpoint.List(dir)
	if err != nil || len(after) != len(before) {
		t.Errorf("got %d checkpoints, want %d (%v)", len(after), len(before), err)
	}
}

// TestStopKeepsTheFailureOfData checks that a stop request does not replace the error of data that cannot
// be read.
func TestStopKeepsTheFailureOfData(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing.bin")
	_, result, errs := world(t, 1, job(t, fmt.Sprintf(tokensJob, missing)), t.TempDir(), func(_ int, o *Options) {
		stop := make(chan struct{})
		close(stop)
		o.Stop = stop
	})
	if errs[0] == nil || !strings.Contains(errs[0].Error(), "missing.bin") || result.Stopped {
		t.Errorf("got %+v, %v, want the error of the data", result, errs[0])
	}
}

// TestStopWhileDataAreRead checks that a rank stops reading its data when it is asked to stop, and
// that the ranks that have read theirs stop as well.
func TestStopWhileDataAreRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "data.csv")
	if err := os.WriteFile(path, []byte(strings.Repeat("1,2,3\n", 50)), 0o600); err != nil {
		t.Fatal(err)
	}
	text, after, _ := strings.Cut(fmt.Sprintf(mlp, 8), "[train.data]")
	_, optimizer, _ := strings.Cut(after, "[train.optimizer]")
	j := job(t, text+fmt.Sprintf("[train.data]\nkind = \"csv\"\ntask = \"regression\"\npath = %q\n[train.optimizer]", path)+optimizer)
	dir := t.TempDir()
	events, result, errs := world(t, 2, j, dir, func(rank int, o *Options) {
		if rank == 1 {
			stop := make(chan struct{})
			close(stop)
			o.Stop = stop
		}
	})
	ok(t, errs)
	if !result.Stopped || len(events) > 0 {
		t.Errorf("got %+v and %v, want it stopped before anything happened", result, events)
	}
	if entries, err := checkpoint.List(dir); err != nil || len(entries) > 0 {
		t.Errorf("got %v, %v", entries, err)
	}
}
