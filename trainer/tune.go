package trainer

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/ddpbatch/ddpbatch/internal/atomicfile"
	"github.com/ddpbatch/ddpbatch/internal/safefile"
	"github.com/ddpbatch/ddpbatch/trainer/collective"
	"github.com/ddpbatch/ddpbatch/trainer/cuda/engine"
	"github.com/ddpbatch/ddpbatch/trainer/device"
)

// algorithmsFile is the file in the run directory that records the fastest algorithms of cuBLASLt, for
// each type of GPU and version of cuBLASLt that ran the run.
const (
	algorithmsFile = "algorithms.json"
	maxAlgorithms  = 16 << 20 // bytes; a model has up to a hundred multiplications of 400 bytes
)

// tune makes all ranks use the recorded algorithms of cuBLASLt, with train.tune_matmul. If none are
// recorded for rank 0's GPU and its version of cuBLASLt, it first times them on rank 0. Ranks with a
// different GPU or version use recorded algorithms for it, or else cuBLASLt's default algorithms. The
// other ranks wait for rank 0 in a collective operation of the rehearsal.
func (r *run) tune(ctx context.Context) (err error) {
	if !r.train.TuneMatmul || r.gpu == nil || !r.loop.hasSteps() {
		return nil
	}
	defer device.Recover(&err)
	var recorded []engine.Algorithms
	if r.Comm.Rank() == 0 && r.RunDir != nil {
		recorded = loadAlgorithms(r.RunDir)
	}
	if err := r.useAlgorithms(ctx, &recorded); err != nil {
		return err
	}
	isKnown := len(r.gpu.Algorithms().Products) > 0
	if err := collective.BroadcastJSON(ctx, r.Comm, &isKnown, 0); err != nil {
		return fmt.Errorf("share whether algorithms are recorded: %w", err)
	}
	if isKnown {
		return nil
	}
	if r.Comm.Rank() == 0 {
		r.gpu.StartTuning()
	}
	if err := r.loop.rehearse(ctx); err != nil {
		return fmt.Errorf("time the algorithms of matrix multiplications: %w", err)
	}
	if r.Comm.Rank() == 0 {
		r.gpu.StopTuning()
		if timed := r.gpu.Algorithms(); len(timed.Products) > 0 { // a linear model may only use kernels
			recorded = append(slices.DeleteFunc(recorded, timed.Matches), timed)
			if r.RunDir != nil {
				if err := saveAlgorithms(r.RunDir, recorded); err != nil {
					return fmt.Errorf("record the algorithms of matrix multiplications: %w", err)
				}
			}
			r.Observe(Event{Kind: Tuned, Algorithms: &timed})
		}
	}
	return r.useAlgorithms(ctx, &recorded)
}

// useAlgorithms shares rank 0's algorithms, and makes this rank's GPU use those that match it.
func (r *run) useAlgorithms(ctx context.Context, recorded *[]engine.Algorithms) error {
	if err := collective.BroadcastJSON(ctx, r.Comm, recorded, 0); err != nil {
		return fmt.Errorf("share the recorded algorithms of matrix multiplications: %w", err)
	}
	if i := slices.IndexFunc(*recorded, r.gpu.Algorithms().Matches); i >= 0 {
		r.gpu.UseAlgorithms((*recorded)[i])
	}
	return nil
}

// algorithms is the content of algorithmsFile.
type algorithms struct {
	GPUs []engine.Algorithms `json:"gpus"`
}

// loadAlgorithms returns the algorithms that are recorded in a run directory. A file that does not
// exist, that another user can change, or that is invalid records none.
func loadAlgorithms(dir *os.Root) []engine.Algorithms {
	f, err := safefile.OpenIn(dir, algorithmsFile, safefile.NoFollow)
	if err != nil {
		return nil
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || safefile.CheckOwner(info) != nil || safefile.WritersOf(info) != safefile.OwnerOnly {
		return nil
	}
	text, err := safefile.ReadAll(f, f.Name(), maxAlgorithms)
	var a algorithms
	if err != nil || json.Unmarshal(text, &a) != nil {
		return nil
	}
	return a.GPUs
}

func saveAlgorithms(dir *os.Root, a []engine.Algorithms) error {
	return atomicfile.WriteIn(dir, algorithmsFile, atomicfile.Options{}, func(w io.Writer) error {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(algorithms{a})
	})
}

// rehearse runs the forward and backward passes and the reductions of a step without its update. It
// changes nothing that later steps use. The step has the samples of the first step of the epoch: the
// next one may be the last, with fewer samples.
func (l *loop) rehearse(ctx context.Context) (err error) {
	defer device.Recover(&err)
	steps := l.order.steps(position{Epoch: l.pos.Epoch})
	if len(steps) == 0 {
		return nil
	}
	l.loader.Start(batchesOf(steps[:1]))
	defer l.loader.Stop()
	if err := l.passes(ctx, &steps[0]); err != nil {
		return err
	}
	return l.stepper.discard(ctx)
}
