package conformance

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/trainer/collective"
	"github.com/ddpbatch/ddpbatch/trainer/collective/element"
)

// messages tests sends and receives with several tags, received in a different order.
func messages(t *testing.T, comms []collective.Communicator) {
	if comms[0].Size() < 2 {
		return
	}
	each(t, comms, func(c collective.Communicator) error {
		next, previous := (c.Rank()+1)%c.Size(), (c.Rank()+c.Size()-1)%c.Size()
		for _, n := range []int{0, 1, 1000, 300_001} {
			var sends []*collective.Request
			for tag := range 3 {
				for nth := range 2 {
					sends = append(sends, c.Start(t.Context(), collective.Send(element.View[float32](numbers(element.Float32, c.Rank(), 10*tag+nth, n)), next, tag)))
				}
			}
			for _, tag := range []int{2, 0, 1} {
				for nth := range 2 {
					got := make([]float32, n)
					if err := c.Do(t.Context(), collective.Receive(got, previous, tag)); err != nil {
						return err
					}
					if err := same(fmt.Sprint("message ", nth, " of tag ", tag), element.Bytes(got), numbers(element.Float32, previous, 10*tag+nth, n)); err != nil {
						return err
					}
				}
			}
			for _, s := range sends {
				if err := s.Wait(); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// requests starts many operations in the background. They run in order.
func requests(t *testing.T, comms []collective.Communicator) {
	each(t, comms, func(c collective.Communicator) error {
		const n = 5000
		var buffers [][]int64
		var started []*collective.Request
		for i := range 20 {
			b := make([]int64, n)
			for j := range b {
				b[j] = int64(i + c.Rank())
			}
			buffers = append(buffers, b)
			started = append(started, c.Start(t.Context(), collective.AllReduce(b, collective.Max)))
		}
		for i, r := range started {
			<-r.Done()
			if err := r.Wait(); err != nil {
				return err
			}
			if want := int64(i + c.Size() - 1); buffers[i][0] != want || buffers[i][n-1] != want {
				return fmt.Errorf("request %d gave %d and %d, want %d", i, buffers[i][0], buffers[i][n-1], want)
			}
		}
		return nil
	})
}

// groups splits ranks by parity, in reverse order, and uses both groups at the same time.
func groups(t *testing.T, comms []collective.Communicator) {
	each(t, comms, func(c collective.Communicator) error {
		color := c.Rank() % 2
		if c.Rank() == 4 {
			color = -1
		}
		g, err := c.Split(t.Context(), color, -c.Rank())
		if err != nil {
			return err
		}
		if color < 0 {
			if g != nil {
				return fmt.Errorf("a group without a color")
			}
			return c.Do(t.Context(), collective.Barrier())
		}
		var want []int32
		for r := c.Size() - 1; r >= 0; r-- {
			if r%2 == color && r != 4 {
				want = append(want, int32(r))
			}
		}
		if g.Size() != len(want) || int(want[g.Rank()]) != c.Rank() {
			return fmt.Errorf("rank %d of %d, want the index of %d in %v", g.Rank(), g.Size(), c.Rank(), want)
		}
		got := make([]int32, len(want))
		if err := g.Do(t.Context(), collective.AllGather(got, []int32{int32(c.Rank())})); err != nil {
			return err
		}
		if !slices.Equal(got, want) {
			return fmt.Errorf("gathered %v, want %v", got, want)
		}
		// Ranks may start with the operation of either the group or the world.
		wide, narrow := make([]float32, 50_000), make([]float32, 50_000)
		for i := range wide {
			wide[i], narrow[i] = 1, 1
		}
		whole := c.Start(t.Context(), collective.Barrier())
		if err := g.Do(t.Context(), collective.AllReduce(narrow, collective.Sum)); err != nil {
			return err
		}
		if err := whole.Wait(); err != nil {
			return err
		}
		if narrow[0] != float32(len(want)) || narrow[49_999] != float32(len(want)) {
			return fmt.Errorf("the group's sum is %v", narrow[0])
		}
		return g.Close()
	})
}

// keys tests that ranks are ordered by keys of any size, then by rank.
func keys(t *testing.T, comms []collective.Communicator) {
	all := []int{math.MaxInt, math.MinInt, 0, math.MinInt, -1}
	each(t, comms, func(c collective.Communicator) error {
		key := all[c.Rank()%len(all)]
		g, err := c.Split(t.Context(), 0, key)
		if err != nil {
			return err
		}
		want := 0
		for r := range c.Size() {
			if other := all[r%len(all)]; other < key || other == key && r < c.Rank() {
				want++
			}
		}
		if g.Rank() != want {
			return fmt.Errorf("position %d with key %d, want %d", g.Rank(), key, want)
		}
		return g.Close()
	})
}

// barrier tests that no rank leaves before the last has entered.
func barrier(t *testing.T, comms []collective.Communicator) {
	var entered atomic.Int32
	each(t, comms, func(c collective.Communicator) error {
		time.Sleep(time.Duration(c.Rank()) * 10 * time.Millisecond)
		entered.Add(1)
		if err := c.Do(t.Context(), collective.Barrier()); err != nil {
			return err
		}
		if n := int(entered.Load()); n != c.Size() {
			return fmt.Errorf("left when %d had entered", n)
		}
		return nil
	})
}

// bits tests that all ranks get the same bits, in every run and from every operation that reduces a
// buffer of the same length. Rounding depends on the order.
func bits(t *testing.T, m Member) {
	sizes := append([]int{1001, 30_000, 200_001}, m.Sizes...)
	for _, n := range m.Ranks {
		if n == 1 {
			continue
		}
		first := make([][]float32, len(sizes))
		for run := range 2 {
			comms := connect(t, m, n, long)
			for i, size := range sizes {
				size /= n // length of a rank's part
				results := make([]reductions, n)
				each(t, comms, func(c collective.Communicator) (err error) {
					results[c.Rank()], err = reduce(t, c, size, run)
					return err
				})
				if run == 0 {
					first[i] = results[0].all
				}
				for r, got := range results {
					if !bytes.Equal(element.Bytes(got.all), element.Bytes(first[i])) {
						t.Fatalf("%d ranks, %d elements, run %d: rank %d has other bits", n, n*size, run, r)
					}
					if m.AnyOrder {
						continue
					}
					if !bytes.Equal(element.Bytes(got.part), element.Bytes(first[i][r*size:][:size])) {
						t.Errorf("%d ranks, %d elements: reduce-scatter gives rank %d other bits than all-reduce", n, n*size, r)
					}
					if got.whole != nil && !bytes.Equal(element.Bytes(got.whole), element.Bytes(first[i])) {
						t.Errorf("%d ranks, %d elements: reduce gives rank %d other bits than all-reduce", n, n*size, r)
					}
				}
			}
		}
	}
}

// reductions holds the sums of the same elements by all reducing operations.
type reductions struct{ all, part, whole []float32 }

// reduce computes them for parts of size elements per rank.
func reduce(t *testing.T, c collective.Communicator, size, root int) (r reductions, err error) {
	all, err := collective.Alloc[float32](t.Context(), c, c.Size()*size)
	if all == nil {
		all = make([]float32, c.Size()*size)
	}
	values := wideRange(c.Rank(), len(all))
	copy(all, values)
	r = reductions{all: all, part: make([]float32, size)}
	whole := slices.Clone(values)
	for _, call := range []collective.Call{
		collective.ReduceScatter(r.part, all, collective.Sum),
		collective.Reduce(whole, collective.Sum, root),
		collective.AllReduce(all, collective.Sum),
	} {
		if err == nil {
			err = c.Do(t.Context(), call)
		}
	}
	if c.Rank() == root {
		r.whole = whole
	} else if err == nil && !slices.Equal(whole, values) {
		err = fmt.Errorf("reduce changed the buffer of a rank that is not its root")
	}
	return r, err
}

// wideRange returns values of many magnitudes, whose sum depends on the order.
func wideRange(rank, n int) []float32 {
	g := rand.New(rand.NewPCG(1, uint64(rank)))
	buf := make([]float32, n)
	for i := range buf {
		buf[i] = float32(g.NormFloat64() * math.Exp(5*g.NormFloat64()))
	}
	return buf
}
