package collective_test

import (
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/trainer/collective"
)

// TestAllReduceLeavesNoGarbage checks that an all-reduce in memory allocates no more than the call
// itself, for every size. Training does not allocate memory, so garbage would accumulate until the
// next collection.
func TestAllReduceLeavesNoGarbage(t *testing.T) {
	const times, most = 20, 2 << 10 // bytes per rank and call
	for _, ranks := range []int{2, 3, 4} {
		for _, elements := range []int{16, 1 << 18} {
			comms := collective.Local(ranks, 20*time.Second)
			sum := func(times int) {
				var all sync.WaitGroup
				for _, c := range comms {
					all.Go(func() {
						buf := make([]float32, elements)
						for range times {
							if err := c.Do(t.Context(), collective.AllReduce(buf, collective.Sum)); err != nil {
								t.Error(err)
							}
						}
					})
				}
				all.Wait()
			}
			var before, middle, after runtime.MemStats
			runtime.ReadMemStats(&before)
			sum(1)
			runtime.ReadMemStats(&middle)
			sum(1 + times)
			runtime.ReadMemStats(&after)
			first, all := middle.TotalAlloc-before.TotalAlloc, after.TotalAlloc-middle.TotalAlloc
			if each := (int(all) - int(first)) / times / ranks; each > most {
				t.Errorf("%d ranks, %d elements: %d bytes of garbage of each call, want at most %d", ranks, elements, each, most)
			}
			for _, c := range comms {
				c.Close()
			}
		}
	}
}
