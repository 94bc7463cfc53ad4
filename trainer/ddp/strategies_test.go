package ddp

import (
	"fmt"
	"math"
	"testing"

	"github.com/ddpbatch/ddpbatch/trainer/nn"
	"github.com/ddpbatch/ddpbatch/trainer/trace"
)

// TestStrategiesGiveTheSameBits checks for every strategy, number of ranks, and bucket size that
// values, averages, loss, and norm after a few steps are bit-identical to the results of DDP.
func TestStrategiesGiveTheSameBits(t *testing.T) {
	for _, n := range []int{1, 2, 3, 4} {
		for _, with := range []Options{{Bucket: 64}, {Bucket: 3 << 10}, {Bucket: 1 << 20}, {Bucket: 3 << 10, BF16: true}} {
			want := ""
			for _, strategy := range Strategies() {
				ranks := newRanks(t, n, gptOptions, Options{Strategy: strategy, FirstBucket: with.Bucket / 4, Bucket: with.Bucket, BF16: with.BF16})
				seen := make([]string, n)
				onAllRanks(t, ranks, func(r *rank) error {
					for range 8 {
						if err := r.train(t.Context()); err != nil {
							return err
						}
						seen[r.comm.rank] += fmt.Sprint(r.loss, r.norm, " ")
					}
					return nil
				})
				seen[0] += fmt.Sprint(whole(ranks))
				if want == "" {
					want = seen[0]
				}
				if seen[0] != want {
					t.Errorf("%s on %d ranks with buckets of %d bytes: other bits than with ddp", strategy, n, with.Bucket)
				}
				for _, r := range ranks[1:] {
					if len(seen[r.comm.rank]) < 8 || seen[0][:len(seen[r.comm.rank])] != seen[r.comm.rank] {
						t.Errorf("%s on %d ranks: rank %d sees other losses or norms than rank 0", strategy, n, r.comm.rank)
					}
				}
			}
		}
	}
}

// TestShardsOfLargeParameters checks that a parameter of several chunks arrives unchanged, on
// whichever ranks its shards are.
func TestShardsOfLargeParameters(t *testing.T) {
	shape := gptOptions
	shape.Vocabulary = 3*chunk/shape.Width + 1
	want := ""
	for _, strategy := range Strategies() {
		for _, n := range []int{1, 3} {
			got := fmt.Sprint(whole(newRanks(t, n, shape, Options{Strategy: strategy})))
			if want == "" {
				want = got
			}
			if got != want {
				t.Errorf("%s on %d ranks: other values", strategy, n)
			}
		}
	}
}

// TestStepsAllocateNothing checks that a step does not allocate memory after the first steps, with
// and without a trace.
func TestStepsAllocateNothing(t *testing.T) {
	for _, strategy := range Strategies() {
		for _, with := range []struct {
			ranks int
			bf16  bool
		}{{1, false}, {2, false}, {2, true}} {
			n := with.ranks
			ranks := newRanks(t, n, gptOptions, Options{Strategy: strategy, FirstBucket: 1 << 10, Bucket: 3 << 10, BF16: with.bf16})
			next, done := make(chan bool), make(chan error)
			for _, r := range ranks[1:] {
				go func() {
					for range next {
						done <- r.train(t.Context())
					}
				}()
			}
			step := func() {
				for range ranks[1:] {
					next <- true
				}
				if err := ranks[0].train(t.Context()); err != nil {
					t.Error(err)
				}
				for range ranks[1:] {
					if err := <-done; err != nil {
						t.Error(err)
					}
				}
			}
			recorder := trace.New(1, 8)
			recorder.Reserve(100)
			if err := recorder.Begin(1, func() error { return nil }); err != nil {
				t.Fatal(err)
			}
			step()
			step()
			before := ranks[0].memory.bytes
			if a := testing.AllocsPerRun(5, step); a != 0 {
				t.Errorf("%s on %d ranks: %v allocations in a step", strategy, n, a)
			}
			ranks[0].queue.trace = recorder
			if a := testing.AllocsPerRun(5, step); a != 0 {
				t.Errorf("%s on %d ranks: %v allocations in a step that is recorded", strategy, n, a)
			}
			if after := ranks[0].memory.bytes; after != before {
				t.Errorf("%s on %d ranks: %d bytes more of the device's memory", strategy, n, after-before)
			}
			close(next)
		}
	}
}

// TestMemoryFollowsTheFormulas checks that memory follows the formulas of the ZeRO paper within
// 10%, including temporary memory.
func TestMemoryFollowsTheFormulas(t *testing.T) {
	shape := nn.GPTOptions{Vocabulary: 40, Context: 16, Layers: 24, Heads: 2, Width: 32}
	psi := shape.NumParams()
	for _, c := range []struct {
		strategy       Strategy
		noSync         bool
		whole, divided float64
	}{{DDP, false, 16, 0}, {ZeRO1, false, 8, 8}, {ZeRO2, false, 4, 12}, {ZeRO3, false, 0, 16}, {ZeRO2, true, 8, 8}, {ZeRO3, true, 4, 12}} {
		for _, n := range []int{1, 2, 4} {
			strategy := c.strategy
			ranks := newRanks(t, n, shape, Options{Strategy: strategy, NoSync: c.noSync, FirstBucket: 4 << 10, Bucket: 4 * 4 * 32 * 32})
			onAllRanks(t, ranks, func(r *rank) error {
				for range 2 {
					if err := r.train(t.Context()); err != nil {
						return err
					}
				}
				return nil
			})
			want := psi * (c.whole + c.divided/float64(n))
			for _, r := range ranks {
				lent := int64(0)
				for _, slot := range append(r.grads.list, r.Sharder.values.list...) {
					lent += int64(slot.memory.Len() * slot.memory.Type().Size())
				}
				if lent > r.SlotBytes()*5/4 || lent < r.SlotBytes()*3/4 {
					t.Errorf("%s, rank %d of %d: %d bytes are lent, foreseen were %d", strategy, r.comm.rank, n, lent, r.SlotBytes())
				}
				if got := float64(r.memory.bytes); math.Abs(got-want) > want/10 {
					t.Errorf("%s, rank %d of %d: %.3g bytes, want %.3g: %+.1f%%", strategy, r.comm.rank, n, got, want, 100*(got/want-1))
				} else if r.comm.rank == 0 {
					t.Logf("%s on %d: %+.1f%%", strategy, n, 100*(got/want-1))
				}
			}
		}
	}
}

// TestTraffic checks that ranks send twice the number of parameters per step, and three times with
// ZeRO3, except for buckets that are still in memory.
func TestTraffic(t *testing.T) {
	for _, strategy := range Strategies() {
		for _, size := range []int{4, 2} { // bytes of a gradient
			ranks := newRanks(t, 2, gptOptions, Options{Strategy: strategy, FirstBucket: 1 << 10, Bucket: 3 << 10, BF16: size == 2})
			step := func() {
				onAllRanks(t, ranks, func(r *rank) error { return r.train(t.Context()) })
			}
			step()
			step()
			m := ranks[0].comm
			m.reduced, m.given = 0, 0
			step()
			all := ranks[0].layout.elements
			most := map[Strategy]int{DDP: 0, ZeRO1: all, ZeRO2: all, ZeRO3: 2 * all}[strategy]
			if m.reduced != size*all || m.given > most || m.given < most*8/10 {
				t.Errorf("%s: %d bytes reduced of %d elements, %d gathered, want at most %d", strategy, m.reduced, all, m.given, most)
			}
		}
	}
}
