package launch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/jobs/outcome"
	"github.com/ddpbatch/ddpbatch/trainer"
	"github.com/ddpbatch/ddpbatch/trainer/checkpoint"
	"github.com/ddpbatch/ddpbatch/trainer/collective"
	"github.com/ddpbatch/ddpbatch/trainer/collective/element"
)

// flaky is a communicator that changes the gradients that a rank receives in one step.
type flaky struct {
	collective.Communicator
	step, at int
}

func (c *flaky) Do(ctx context.Context, call collective.Call) error {
	err := c.Communicator.Do(ctx, call)
	if call.Kind != collective.KindAllReduce || call.Type != element.Float32 {
		return err
	}
	if c.step++; c.step == c.at {
		element.View[float32](call.Recv)[0] += 1e-3
	}
	return err
}

// train runs a rank of the built-in trainer. In the first attempt, the rank at the end of
// BEHAVIOUR receives wrong gradients in step 17.
func train(joined *Rank, job *jobs.Job, dir string) (exit int, failure error) {
	ctx := joined.Session.Context()
	comm, err := joined.Connect(ctx)
	if err != nil {
		return 1, err
	}
	defer comm.Close()
	at := 0 // no fault; all ranks must have the same type of communicator
	if os.Getenv(envAttempt) == "1" && strings.HasSuffix(os.Getenv("BEHAVIOUR"), fmt.Sprintf(" %d", joined.Info.Rank)) {
		at = 17
	}
	_, err = trainer.Run(ctx, trainer.Options{Job: job, Run: "run", Checkpoints: filepath.Join(dir, "checkpoints"), Comm: &flaky{Communicator: comm, at: at},
		Threads: 1, Observe: func(trainer.Event) {}})
	if err != nil && joined.Session.Context().Err() != nil {
		err = context.Cause(joined.Session.Context()) // another rank has already reported the error
	}
	if err != nil {
		return 1, err
	}
	return 0, nil
}

const training = `[restart]
max_without_progress = %d
[train]
device = "cpu"
epochs = 2
batch = 5
[train.model]
kind = "mlp"
hidden = [16]
[train.data]
kind = "synthetic"
task = "classification"
samples = 200
inputs = 5
outputs = 4
[train.optimizer]
kind = "adam"
lr = 0.01
[checkpoint]
every = "5 steps"
keep = 2
`

// TestDivergedRunEndsWithTheSameValues checks that a rank that diverges ends the attempt
// before its values are saved. The launcher starts the ranks again, and the run ends with the
// values of an undisturbed run. With two ranks, the failure does not name a failed rank.
func TestDivergedRunEndsWithTheSameValues(t *testing.T) {
	final := func(faulty string) (said string, sums map[string]string) {
		result, said, err := launched(t, 2, "train, fault on rank "+faulty, fmt.Sprintf(training, 2), nil)
		if err != nil || result.Exit != 0 || result.Failure != nil {
			t.Fatalf("%+v, %v\n%s", result, err, said)
		}
		entries, err := checkpoint.List(lastDir.Checkpoints())
		if err != nil || len(entries) == 0 || entries[0].Err != nil || !entries[0].Manifest.Finished {
			t.Fatalf("%+v, %v", entries, err)
		}
		sums = map[string]string{}
		for _, f := range entries[0].Manifest.Files {
			sums[f.Name] = f.SHA256
		}
		return said, sums
	}
	_, want := final("none")
	for _, faulty := range []string{"0", "1"} {
		said, got := final(faulty)
		if !maps.Equal(got, want) {
			t.Errorf("fault on rank %s: different values at the end", faulty)
		}
		if !strings.Contains(said, "after step 20 the weights of rank 0 and rank 1 differ, and no majority") || !strings.Contains(said, "starting again") {
			t.Errorf("fault on rank %s: %s", faulty, said)
		}
		events, err := lastDir.ReadAttempts()
		if err != nil || len(events) != 4 || events[1].Rank != nil || events[1].Host != "" {
			t.Errorf("fault on rank %s: attempts %+v, %v", faulty, events, err)
		}
	}
}

// TestFailureOfATieBlamesNoRank checks that the failure of a tie lists both ranks as suspects
// and names no failed rank.
func TestFailureOfATieBlamesNoRank(t *testing.T) {
	result, said, err := launched(t, 2, "train, fault on rank 0", fmt.Sprintf(training, 0), nil)
	if err != nil || result.Exit != exitFailed || result.Failure == nil {
		t.Fatalf("%+v, %v\n%s", result, err, said)
	}
	text, err := os.ReadFile(lastDir.Failure())
	var f outcome.Failure
	if err := errors.Join(err, json.Unmarshal(text, &f)); err != nil {
		t.Fatal(err)
	}
	if f.First.Rank != -1 || !strings.Contains(f.First.Reason, "rank 0 on ") || !strings.Contains(f.First.Reason, "rank 1 on ") || !strings.HasPrefix(f.First.Advice, "suspected nodes: ") {
		t.Errorf("%+v", f.First)
	}
}
