package checkpointing

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/trainer/checkpoint"
	"github.com/ddpbatch/ddpbatch/trainer/collective"
	"github.com/ddpbatch/ddpbatch/trainer/cpu"
	"github.com/ddpbatch/ddpbatch/trainer/ddp"
	"github.com/ddpbatch/ddpbatch/trainer/nn"
	"github.com/ddpbatch/ddpbatch/trainer/optim"
)

// rank is a rank with a linear model, and what its Saver reports.
type rank struct {
	*Saver
	saved   []string // paths
	unsaved []error
}

// eachRank calls f concurrently on the given number of ranks. change may alter the options.
func eachRank(t *testing.T, n int, strategy ddp.Strategy, dir string, change func(*Options), f func(ctx context.Context, r *rank) error) {
	t.Helper()
	comms := collective.Local(n, 5*time.Minute)
	errs := make(chan error, n)
	for i, c := range comms {
		go func() {
			defer c.Close()
			r, err := newRank(c, strategy, dir, change)
			if err == nil {
				err = f(t.Context(), r)
			}
			if err != nil {
				err = fmt.Errorf("rank %d: %w", i, err)
			}
			errs <- err
		}()
	}
	for range comms {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if t.Failed() {
		t.FailNow()
	}
}

func newRank(c collective.Communicator, strategy ddp.Strategy, dir string, change func(*Options)) (*rank, error) {
	d := cpu.New(1)
	model, err := nn.NewLinear(5, 3)
	if err != nil {
		return nil, err
	}
	model.Plan(nn.Plan{Device: d, Batch: 1, Train: true})
	s := &State{Comm: c, Device: d, Params: model.Params()}
	s.Sharder = ddp.New(ddp.NewCommunicator(c), d, s.Params, ddp.Options{Strategy: strategy, Extra: 1})
	if s.Optimizer, err = optim.New(d, s.Sharder.Parts(), optim.Options{Kind: optim.KindSGD, LR: 0.1, Momentum: 0.9}); err != nil {
		return nil, err
	}
	r := &rank{}
	o := Options{Dir: dir, Run: "run", Retention: checkpoint.Retention{Newest: 9}, Async: true, MismatchHint: "the hint",
		Manifest: func() (*checkpoint.Manifest, error) {
			return &checkpoint.Manifest{Step: 7, Optimizer: optim.KindSGD}, nil
		},
		Saved:   func(_ *checkpoint.Manifest, path string, _, _ time.Duration) { r.saved = append(r.saved, path) },
		Unsaved: func(err error) { r.unsaved = append(r.unsaved, err) },
	}
	if change != nil {
		change(&o)
	}
	r.Saver = New(s, o)
	err = r.State.Scatter(context.Background(), Origin{}, false, func(send ddp.SendParam) error {
		for i := range s.Params {
			err := send(i, func(at int, values []float32) error {
				for j := range values {
					values[j] = float32(100*i + at + j)
				}
				return nil
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return r, r.AllocCopies()
}

// expect returns an error unless the Saver is in one of the phases.
func (r *rank) expect(when string, phases ...phase) error {
	if got := r.currentPhase(); !slices.Contains(phases, got) {
		return fmt.Errorf("%s: phase %s, want one of %v", when, got, phases)
	}
	return nil
}

// TestPhasesFollowTheTable checks that a Saver enters only the phases that nextPhases lists.
func TestPhasesFollowTheTable(t *testing.T) {
	for from, next := range nextPhases {
		for to := range nextPhases {
			func() {
				defer func() {
					if refused := recover() != nil; refused == slices.Contains(next, to) {
						t.Errorf("from %s to %s: refused is %t", from, to, refused)
					}
				}()
				(&Saver{phase: from}).enter(to)
			}()
		}
	}
}

// TestPhasesOfAnAsyncSave checks the phases of an asynchronous save of the whole state, and of one
// in parts, whose ranks wait for each other.
func TestPhasesOfAnAsyncSave(t *testing.T) {
	for _, tt := range []struct {
		ranks    int
		strategy ddp.Strategy
	}{{1, ddp.DDP}, {2, ddp.DDP}, {3, ddp.ZeRO1}, {3, ddp.ZeRO3}} {
		t.Run(fmt.Sprintf("%s on %d", tt.strategy, tt.ranks), func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "checkpoints")
			eachRank(t, tt.ranks, tt.strategy, dir, nil, func(ctx context.Context, r *rank) error {
				root, sharded := r.State.Comm.Rank() == 0, tt.strategy != ddp.DDP
				if err := errors.Join(r.expect("new", idle), r.SavePeriodic(ctx, 7)); err != nil {
					return err
				}
				if !root && !sharded {
					return r.expect("nothing to write", idle)
				}
				<-r.current.done
				if sharded {
					// A rank still writes, or the outcome belongs to a step before the save.
					for _, poll := range []func() error{func() error { return r.Poll(ctx, 7, true) }, func() error { return r.Poll(ctx, 6, false) }} {
						if err := errors.Join(poll(), r.expect("before the others have written", written)); err != nil {
							return err
						}
					}
					if r.InFlight() {
						return errors.New("in flight after writing")
					}
					if err := r.Poll(ctx, 7, false); err != nil {
						return err
					}
					if !root {
						return r.expect("after the exchange", idle)
					}
					if err := r.expect("after the exchange", committing, committed); err != nil {
						return err
					}
					<-r.current.done
				}
				if err := errors.Join(r.expect("on disk", committed), r.Poll(ctx, 8, false), r.expect("reported", idle)); err != nil {
					return err
				}
				if len(r.saved) != 1 || len(r.unsaved) != 0 {
					return fmt.Errorf("saved %v, unsaved %v", r.saved, r.unsaved)
				}
				return checkpoint.Verify(ctx, r.saved[0])
			})
		})
	}
}

// TestSavedStateIsRestored checks that ranks with a different strategy get the state that was saved.
func TestSavedStateIsRestored(t *testing.T) {
	for _, to := range ddp.Strategies() {
		dir := filepath.Join(t.TempDir(), "checkpoints")
		eachRank(t, 2, ddp.ZeRO2, dir, nil, func(ctx context.Context, r *rank) error { return r.Save(ctx, 7) })
		eachRank(t, 3, to, dir, nil, func(ctx context.Context, r *rank) error {
			want := r.State.pieces(r.reader())
			var from Origin
			if r.State.Comm.Rank() == 0 {
				var skipped []error
				var err error
				if from, skipped, err = r.Open(ctx, func(*checkpoint.Manifest) error { return nil }); err != nil || len(skipped) > 0 {
					return fmt.Errorf("%w, skipped %v", err, skipped)
				}
				defer from.Close()
			}
			for _, v := range r.State.values(r.State.readTensor) {
				clear(v)
			}
			if err := r.State.Scatter(ctx, from, false, nil); err != nil {
				return err
			}
			for i, p := range r.State.pieces(r.reader())[checkpoint.ModelFile] {
				if w := want[checkpoint.ModelFile][i]; p.Tensor != w.Tensor || !slices.Equal(p.Data, w.Data) {
					return fmt.Errorf("%s is %v, want %v", p.Tensor, p.Data, w.Data)
				}
			}
			return r.State.CompareAll(ctx, 7)
		})
	}
}

// TestFailureOfOneRankFailsTheSave checks that no checkpoint is created if a rank cannot write its
// part, and that training continues only after a periodic save.
func TestFailureOfOneRankFailsTheSave(t *testing.T) {
	for _, required := range []bool{false, true} {
		dir := t.TempDir()
		eachRank(t, 3, ddp.ZeRO1, dir, func(o *Options) { o.ContinueOnError = true }, func(ctx context.Context, r *rank) error {
			if r.State.Comm.Rank() == 1 {
				r.Dir = filepath.Join(dir, "not mounted")
			}
			save := r.SavePeriodic
			if required {
				save = r.Save
			}
			err := errors.Join(save(ctx, 7), r.Wait(ctx))
			if !required {
				if err != nil || len(r.unsaved) != 1 {
					return fmt.Errorf("%w, unsaved %v", err, r.unsaved)
				}
				err = r.unsaved[0]
			}
			if r.State.Comm.Rank() == 1 {
				if err == nil || !strings.Contains(hints.Of(err), "a file system that all nodes share") {
					return fmt.Errorf("%w, with hint %q", err, hints.Of(err))
				}
			} else if err == nil || !strings.Contains(err.Error(), "rank 1 could not write its part") {
				return fmt.Errorf("got %w", err)
			}
			return r.expect("reported", idle)
		})
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("required is %t: left %v, %v", required, left, err)
		}
	}
}

// TestMissingRankEndsSave checks that the timeout of collectives applies to a rank that does not begin a
// save, while no rank waits for a disk.
func TestMissingRankEndsSave(t *testing.T) {
	ended := make(chan struct{})
	eachRank(t, 2, ddp.DDP, t.TempDir(), nil, func(ctx context.Context, r *rank) error {
		if r.State.Comm.Rank() == 1 {
			<-ended
			return nil
		}
		defer close(ended)
		if err := r.Save(collective.WithTimeout(ctx, 300*time.Millisecond), 7); err == nil {
			return errors.New("the save succeeded")
		}
		return nil
	})
}

// TestSlowDiskIsNotATimeout checks that a rank may write for longer than the timeout of collectives
// before the next save begins.
func TestSlowDiskIsNotATimeout(t *testing.T) {
	for _, tt := range []struct {
		strategy ddp.Strategy
		slow     int // rank
	}{{ddp.DDP, 0}, {ddp.ZeRO1, 1}, {ddp.ZeRO3, 1}} {
		t.Run(tt.strategy.String(), func(t *testing.T) {
			t.Parallel()
			const timeout = 5 * time.Second
			eachRank(t, 2, tt.strategy, t.TempDir(), nil, func(ctx context.Context, r *rank) error {
				ctx = collective.WithTimeout(ctx, timeout)
				if err := r.SavePeriodic(ctx, 7); err != nil {
					return err
				}
				if r.State.Comm.Rank() == tt.slow {
					<-r.current.done
					slow := make(chan struct{})
					r.current.done = slow
					time.AfterFunc(timeout*3/2, func() { close(slow) })
				}
				return errors.Join(r.SavePeriodic(ctx, 7), r.Wait(ctx))
			})
		})
	}
}

// TestLostRankEndsWaitForDisk checks that the ranks that wait for rank 0 without a timeout detect that
// it is lost.
func TestLostRankEndsWaitForDisk(t *testing.T) {
	eachRank(t, 2, ddp.DDP, t.TempDir(), nil, func(ctx context.Context, r *rank) error {
		r.Saved = func(*checkpoint.Manifest, string, time.Duration, time.Duration) { r.State.Comm.Close() }
		if err := r.Save(ctx, 7); err == nil {
			return errors.New("the loss of rank 0 was not detected")
		}
		return nil
	})
}

// TestFailedPruneIsNotAFailedSave checks that a checkpoint is reported as saved if old checkpoints
// cannot be removed. Here, another run seems to have replaced the directory.
func TestFailedPruneIsNotAFailedSave(t *testing.T) {
	for _, continues := range []bool{false, true} {
		eachRank(t, 1, ddp.DDP, t.TempDir(), func(o *Options) { o.ContinueOnError = continues }, func(ctx context.Context, r *rank) error {
			r.CheckDir = func() error { r.Run = "another"; return nil } // called before the checkpoint is written
			err := r.Save(ctx, 7)
			if len(r.saved) != 1 || (err == nil) != continues || (len(r.unsaved) == 1) != continues {
				return fmt.Errorf("continues is %t: saved %v, unsaved %v, error %w", continues, r.saved, r.unsaved, err)
			}
			return nil
		})
	}
}

// failing is a communicator that has lost its connections.
type failing struct{ collective.Communicator }

func (failing) Do(context.Context, collective.Call) error {
	return errors.New("the connection is lost")
}

// TestCloseReportsOnlyCommitted checks that Close, after a failure of training, reports a
// checkpoint that is on disk, but not one that needs other ranks or whose exchange has failed.
func TestCloseReportsOnlyCommitted(t *testing.T) {
	for _, tt := range []struct {
		name     string
		strategy ddp.Strategy
		exchange bool
		want     phase
		saved    int
	}{
		{name: "whole state", strategy: ddp.DDP, want: idle, saved: 1},
		{name: "parts", strategy: ddp.ZeRO1, want: written},
		{name: "failed exchange", strategy: ddp.ZeRO1, exchange: true, want: failed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			eachRank(t, 2, tt.strategy, dir, nil, func(ctx context.Context, r *rank) error {
				if err := r.SavePeriodic(ctx, 7); err != nil {
					return err
				}
				if tt.exchange {
					<-r.current.done
					r.State.Comm = failing{r.State.Comm}
					if err := r.Wait(ctx); err == nil || !strings.Contains(err.Error(), "save checkpoint of step 7: the connection is lost") {
						return fmt.Errorf("got %w", err)
					}
				}
				r.Close()
				if root := r.State.Comm.Rank() == 0; len(r.saved) != tt.saved && root || r.phase != tt.want && (root || tt.saved == 0) {
					return fmt.Errorf("saved %v, phase %s, want %d times and %s", r.saved, r.phase, tt.saved, tt.want)
				}
				return nil
			})
			if entries, err := checkpoint.List(dir); err != nil || len(entries) != tt.saved {
				t.Errorf("checkpoints %v, %v", entries, err)
			}
		})
	}
}

// TestNonFiniteParameterIsNotSaved checks that a save with such a parameter always ends the run.
func TestNonFiniteParameterIsNotSaved(t *testing.T) {
	dir := t.TempDir()
	eachRank(t, 1, ddp.DDP, dir, func(o *Options) { o.ContinueOnError = true }, func(ctx context.Context, r *rank) error {
		r.State.Params[0].Data.Floats()[2] = float32(math.NaN())
		var found NonFiniteError
		if err := errors.Join(r.SavePeriodic(ctx, 7), r.Wait(ctx)); !errors.As(err, &found) || found.FirstStep {
			return fmt.Errorf("got %w", err)
		}
		return r.expect("reported", idle)
	})
}

// TestUnusableCheckpointHasAHint checks the error for a checkpoint that the caller rejects.
func TestUnusableCheckpointHasAHint(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "checkpoints")
	eachRank(t, 1, ddp.DDP, dir, nil, func(ctx context.Context, r *rank) error {
		if _, _, err := r.Open(ctx, nil); err != nil {
			return fmt.Errorf("no checkpoint: %w", err)
		}
		if err := r.Save(ctx, 7); err != nil {
			return err
		}
		for want, rejected := range map[string]error{"the hint": errors.New("other data"), "its own": hints.Errorf("its own", "another run")} {
			_, _, err := r.Open(ctx, func(*checkpoint.Manifest) error { return rejected })
			if !errors.Is(err, rejected) || hints.Of(err) != want || !strings.Contains(err.Error(), r.saved[0]) {
				return fmt.Errorf("%w, with hint %q, want %q", err, hints.Of(err), want)
			}
		}
		return nil
	})
}

// TestImproved checks which evaluation is the best so far.
func TestImproved(t *testing.T) {
	for _, tt := range []struct {
		name      string
		retention checkpoint.Retention
		values    []float64
		want      []bool
	}{
		{"no metric", checkpoint.Retention{}, []float64{1}, []bool{false}},
		{"lowest", checkpoint.Retention{Best: "m"}, []float64{2, 3, 2, math.NaN(), 1}, []bool{true, false, false, false, true}},
		{"highest", checkpoint.Retention{Best: "m", Highest: true}, []float64{2, 3, 2}, []bool{true, true, false}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := New(nil, Options{Retention: tt.retention})
			for i, v := range tt.values {
				if got := s.Improved(map[string]float64{"m": v}); got != tt.want[i] {
					t.Errorf("value %d, %v: %t, want %t", i, v, got, tt.want[i])
				}
			}
		})
	}
}
