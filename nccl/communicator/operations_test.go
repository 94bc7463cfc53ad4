//go:build cuda

package communicator_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/ddpbatch/ddpbatch/nccl/communicator"
	"github.com/ddpbatch/ddpbatch/trainer/collective/conformance"
	"github.com/ddpbatch/ddpbatch/trainer/collective/element"
	"github.com/ddpbatch/ddpbatch/trainer/cuda/library"
	"github.com/ddpbatch/ddpbatch/trainer/device"
)

// floats is memory for a test: simulated GPU memory is host memory, so it is valid on the GPU.
type floats []float32

func (f floats) tensor() device.Tensor { return device.Host(f) }

// value returns element i of a rank in round k. Sums of values are exact in bfloat16.
func value(rank, i, k int) float32 { return float32((rank+1)*(i%5) + k) }

// run returns a function that waits until an operation has ended.
func run(ctx context.Context) func(*communicator.Work, error) error {
	return func(w *communicator.Work, err error) error {
		if err != nil {
			return err
		}
		if err := w.Wait(ctx); err != nil {
			return err
		}
		if ended, took := w.Time(); ended.IsZero() || took < 0 {
			return fmt.Errorf("the operation ended at %v, after %v", ended, took)
		}
		w.Release()
		return nil
	}
}

// operations checks all operations of a rank on buffers with the given number of elements per rank.
func operations(t *testing.T, c *communicator.Comm, part int) error {
	n, whole := c.Size(), part*c.Size()
	for k := range 3 {
		own, sum, all := make(floats, whole), make(floats, whole), make(floats, whole)
		for i := range whole {
			own[i], all[i] = value(c.Rank(), i, k), value(i/part, i%part, k)
			for r := range n {
				sum[i] += value(r, i, k)
			}
		}
		first := c.Rank() * part
		check := func(what string, got, want []float32) {
			if !slices.Equal(got, want) {
				t.Errorf("%s of %d elements on %d ranks, round %d: rank %d has wrong results", what, whole, n, k, c.Rank())
			}
		}

		buf := slices.Clone(own)
		if err := run(t.Context())(c.AllReduce(t.Context(), buf.tensor())); err != nil {
			return err
		}
		check("all-reduce", buf, sum)

		half := make([]element.BF16, whole)
		element.Round(half, own)
		if err := run(t.Context())(c.AllReduce(t.Context(), bf16(half))); err != nil {
			return err
		}
		element.Widen(buf, half)
		check("all-reduce in bfloat16", buf, sum)

		shard := make(floats, part)
		if err := run(t.Context())(c.ReduceScatter(t.Context(), shard.tensor(), slices.Clone(own).tensor())); err != nil {
			return err
		}
		check("reduce-scatter", shard, sum[first:first+part])
		buf = slices.Clone(own)
		if err := run(t.Context())(c.ReduceScatter(t.Context(), buf.tensor().Slice(first, first+part), buf.tensor())); err != nil {
			return err
		}
		check("reduce-scatter in place", buf[first:first+part], sum[first:first+part])

		buf = make(floats, whole)
		if err := run(t.Context())(c.AllGather(t.Context(), buf.tensor(), floats(all[first:first+part]).tensor())); err != nil {
			return err
		}
		check("all-gather", buf, all)
		buf = make(floats, whole)
		copy(buf[first:], all[first:first+part])
		if err := run(t.Context())(c.AllGather(t.Context(), buf.tensor(), buf.tensor().Slice(first, first+part))); err != nil {
			return err
		}
		check("all-gather in place", buf, all)
	}
	return nil
}

func bf16(v []element.BF16) device.Tensor {
	return device.At(device.BFloat16, unsafe.Pointer(unsafe.SliceData(v)), len(v))
}

// TestOperations checks the results of all operations.
func TestOperations(t *testing.T) {
	for _, c := range []struct {
		file  string
		ranks int
		check bool
	}{{library.NCCL, 1, true}, {library.NCCL, 2, true}, {library.NCCL, 3, false}, {library.NCCL, 4, true}, {old, 2, true}} {
		t.Run(fmt.Sprintf("%s, %d ranks, checks %t", c.file, c.ranks, c.check), func(t *testing.T) {
			comms, _ := ranks(t, c.ranks, setting{c.file, c.check, time.Minute})
			conformance.Every(t, c.ranks, func(r int) (struct{}, error) {
				for _, part := range []int{1, 1001, 16_385} {
					if err := operations(t, comms[r], part); err != nil {
						return struct{}{}, err
					}
				}
				return struct{}{}, comms[r].Close()
			})
		})
	}
}

// TestWrongArguments checks that invalid arguments are detected even without checks.
func TestWrongArguments(t *testing.T) {
	comms, _ := ranks(t, 1, setting{library.NCCL, false, time.Minute})
	err := run(t.Context())(comms[0].AllGather(t.Context(), make(floats, 3).tensor(), make(floats, 2).tensor()))
	if err == nil || !strings.Contains(err.Error(), "a buffer of 2 elements to a buffer of 3 elements, with 1 ranks") {
		t.Errorf("got %v", err)
	}
	if err := comms[0].Close(); err != nil {
		t.Errorf("close: %v", err)
	}
}

// TestDifferentOperations checks that ranks that call different operations all report it.
func TestDifferentOperations(t *testing.T) {
	comms, _ := ranks(t, 2, setting{library.NCCL, true, time.Minute})
	errs := conformance.Every(t, 2, func(r int) (error, error) {
		if r == 0 {
			return run(t.Context())(comms[0].AllReduce(t.Context(), make(floats, 8).tensor())), nil
		}
		return run(t.Context())(comms[1].AllGather(t.Context(), make(floats, 8).tensor(), make(floats, 4).tensor())), nil
	})
	for r, err := range errs {
		if err == nil || !strings.Contains(err.Error(), "have diverged") {
			t.Errorf("rank %d says %v", r, err)
		}
	}
}

// TestCancellation checks that an operation that waits for a rank ends with its context, and
// returns the cause.
func TestCancellation(t *testing.T) {
	comms, _ := ranks(t, 2, setting{library.NCCL, true, time.Hour})
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("rank 7 was lost")
	time.AfterFunc(50*time.Millisecond, func() { cancel(cause) })
	if err := run(ctx)(comms[0].AllReduce(ctx, make(floats, 8).tensor())); !errors.Is(err, cause) {
		t.Errorf("got %v, want %v", err, cause)
	}
}
