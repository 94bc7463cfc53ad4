package conformance

import (
	"fmt"
	"slices"
	"testing"

	"github.com/ddpbatch/ddpbatch/trainer/collective"
	"github.com/ddpbatch/ddpbatch/trainer/collective/element"
)

// sizes are the default numbers of elements: none, fewer than one per rank, and odd ones.
var sizes = []int{0, 1, 3, 64, 1021}

// operations tests every operation with every type, and with many sizes for one type.
func operations(t *testing.T, comms []collective.Communicator, m Member) {
	each(t, comms, func(c collective.Communicator) error {
		for _, kind := range element.Types() {
			of := sizes
			if kind == element.Float32 {
				of = slices.Concat(sizes, m.Sizes)
			}
			for _, size := range of {
				if err := allOperations(t, c, kind, size, m.ScaledMean); err != nil {
					return fmt.Errorf("%v, %d elements: %w", kind, size, err)
				}
			}
		}
		return nil
	})
}

// allOperations tests all operations with n elements per rank.
func allOperations(t *testing.T, c collective.Communicator, kind collective.Type, n int, scaledMean bool) error {
	ranks, rank := c.Size(), c.Rank()
	do := func(what string, call collective.Call, got, want []byte) error {
		call.Type = kind
		if err := c.Do(t.Context(), call); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		return same(what, got, want)
	}
	ops := []collective.Op{collective.Sum, collective.Mean}
	if n < 100 {
		ops = element.Ops()
	}
	roots := []int{0, ranks - 1}
	for _, o := range ops {
		times, result := 1, o
		if o == collective.Mean && scaledMean {
			times, result = ranks, collective.Sum // the mean of n times the value
		}
		input := multiples(kind, rank, 0, n, times)
		b := slices.Clone(input)
		if err := do(fmt.Sprint("all-reduce ", o), collective.Call{Kind: collective.KindAllReduce, Op: o, Send: b, Recv: b},
			b, reduced(kind, result, ranks, 0, n)); err != nil {
			return err
		}
		for _, root := range roots {
			b := slices.Clone(input)
			want := input
			if rank == root {
				want = reduced(kind, result, ranks, 0, n)
			}
			if err := do(fmt.Sprint("reduce ", o, " to ", root), collective.Call{Kind: collective.KindReduce, Op: o, Root: root, Send: b, Recv: b},
				b, want); err != nil {
				return err
			}
		}
		long, part := multiples(kind, rank, 0, n*ranks, times), aligned(kind, n)
		before := slices.Clone(long)
		if err := do(fmt.Sprint("reduce-scatter ", o), collective.Call{Kind: collective.KindReduceScatter, Op: o, Send: long, Recv: part},
			part, reduced(kind, result, ranks, rank*n, n)); err != nil {
			return err
		}
		if err := same("what reduce-scatter was given", long, before); err != nil {
			return err
		}
	}
	return moved(c, kind, n, roots, do)
}

// moved tests the operations that do not reduce.
func moved(c collective.Communicator, kind collective.Type, n int, roots []int,
	do func(string, collective.Call, []byte, []byte) error) error {
	ranks, rank := c.Size(), c.Rank()
	input := numbers(kind, rank, 0, n)
	var together, pieces []byte
	for r := range ranks {
		together = append(together, numbers(kind, r, 0, n)...)
		pieces = append(pieces, numbers(kind, r, rank*n, n)...)
	}
	for _, root := range roots {
		b := slices.Clone(input)
		if err := do(fmt.Sprint("broadcast from ", root), collective.Call{Kind: collective.KindBroadcast, Root: root, Send: b, Recv: b},
			b, numbers(kind, root, 0, n)); err != nil {
			return err
		}
		var gathered, want []byte
		if rank == root {
			gathered, want = aligned(kind, n*ranks), together
		}
		if err := do(fmt.Sprint("gather to ", root), collective.Call{Kind: collective.KindGather, Root: root, Send: input, Recv: gathered},
			gathered, want); err != nil {
			return err
		}
		var dealt []byte
		if rank == root {
			dealt = numbers(kind, root, 0, n*ranks)
		}
		part := aligned(kind, n)
		if err := do(fmt.Sprint("scatter from ", root), collective.Call{Kind: collective.KindScatter, Root: root, Send: dealt, Recv: part},
			part, numbers(kind, root, rank*n, n)); err != nil {
			return err
		}
	}
	b := aligned(kind, n*ranks)
	if err := do("all-gather", collective.Call{Kind: collective.KindAllGather, Send: input, Recv: b}, b, together); err != nil {
		return err
	}
	b = aligned(kind, n*ranks)
	own := b[rank*n*kind.Size():][:n*kind.Size()]
	copy(own, input)
	if err := do("all-gather in place", collective.Call{Kind: collective.KindAllGather, Send: own, Recv: b}, b, together); err != nil {
		return err
	}
	b = aligned(kind, n*ranks)
	return do("all-to-all", collective.Call{Kind: collective.KindAllToAll, Send: numbers(kind, rank, 0, n*ranks), Recv: b}, b, pieces)
}

// sums tests the calls that training makes.
func sums(t *testing.T, comms []collective.Communicator) {
	each(t, comms, func(c collective.Communicator) error {
		single, double := []float32{float32(c.Rank()), 1}, []float64{float64(c.Rank()), 1}
		if err := c.Do(t.Context(), collective.AllReduce(single, collective.Sum)); err != nil {
			return err
		}
		if err := c.Do(t.Context(), collective.AllReduce(double, collective.Sum)); err != nil {
			return err
		}
		n := float64(c.Size())
		if want := []float64{n * (n - 1) / 2, n}; !slices.Equal(double, want) || float64(single[0]) != want[0] || float64(single[1]) != want[1] {
			return fmt.Errorf("sums %v and %v, want %v", single, double, want)
		}
		b := []byte{byte(c.Rank())}
		if err := c.Do(t.Context(), collective.Broadcast(b, c.Size()-1)); err != nil || int(b[0]) != c.Size()-1 {
			return fmt.Errorf("broadcast gave %v, %w", b, err)
		}
		return c.Do(t.Context(), collective.Barrier())
	})
}

// memory tests operations in the communicator's memory, and in a mix with other memory.
func memory(t *testing.T, comms []collective.Communicator) {
	each(t, comms, func(c collective.Communicator) error {
		const n = 100_003
		fast, err := collective.Alloc[float32](t.Context(), c, n+c.Rank())
		if err != nil {
			return err
		}
		if fast == nil {
			fast = make([]float32, n+c.Rank())
		}
		if len(fast) != n+c.Rank() {
			return fmt.Errorf("%d elements", len(fast))
		}
		for _, shift := range []int{0, 1} {
			b := element.Bytes(fast)[4*shift:][: 4*(n-1) : 4*(n-1)]
			// In one round, rank 0 uses other memory.
			if shift == 1 && c.Rank() == 0 {
				b = aligned(element.Float32, n-1)
			}
			copy(b, numbers(element.Float32, c.Rank(), 0, n-1))
			if err := c.Do(t.Context(), collective.Call{Kind: collective.KindAllReduce, Type: element.Float32, Op: collective.Sum, Send: b, Recv: b}); err != nil {
				return err
			}
			if err := same("all-reduce", b, reduced(element.Float32, collective.Sum, c.Size(), 0, n-1)); err != nil {
				return err
			}
		}
		return moved(c, element.Float32, 1000, []int{0}, func(what string, call collective.Call, got, want []byte) error {
			call.Type = element.Float32
			if len(call.Send) > 0 && len(call.Recv) > 0 && &call.Send[0] != &call.Recv[0] && call.Kind != collective.KindAllGather {
				b := element.Bytes(fast)[:len(call.Send)]
				copy(b, call.Send)
				call.Send = b
			}
			if err := c.Do(t.Context(), call); err != nil {
				return err
			}
			return same(what, got, want)
		})
	})
}
