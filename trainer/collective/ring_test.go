package collective

import (
	"sync"
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/trainer/collective/internal/mesh"
)

// earlyCounter counts messages with data that are sent before the receiver has requested them.
type earlyCounter struct {
	mu        sync.Mutex
	requested map[earlyKey]bool
	early     int
}

type earlyKey struct {
	from, to int
	mesh.Key
}

// countingMesh is the mesh of a rank. If slow is set, the rank requests each message late.
type countingMesh struct {
	mesh.Mesh
	rank  int
	slow  bool
	count *earlyCounter
}

func (m countingMesh) Receive(from int, h mesh.Head, b []byte) *mesh.Transfer {
	if m.slow && h.Step < readyStep {
		time.Sleep(10 * time.Millisecond)
	}
	m.count.mu.Lock()
	m.count.requested[earlyKey{from, m.rank, h.Key}] = true
	m.count.mu.Unlock()
	return m.Mesh.Receive(from, h, b)
}

func (m countingMesh) Send(to int, h mesh.Head, b []byte) *mesh.Transfer {
	m.count.mu.Lock()
	if len(b) > 0 && !m.count.requested[earlyKey{m.rank, to, h.Key}] {
		m.count.early++
	}
	m.count.mu.Unlock()
	return m.Mesh.Send(to, h, b)
}

// TestLargeRingWaitsForSlowRank checks that the ranks before a slow rank send it no message of a large
// reduction that it has not requested, because the memory for such messages is limited.
func TestLargeRingWaitsForSlowRank(t *testing.T) {
	was := maxUnpacedBytes
	maxUnpacedBytes = 0
	defer func() { maxUnpacedBytes = was }()
	const n, elements = 6, 6 * 100_000 // parts exceed the size that is sent without an announcement
	count := &earlyCounter{requested: map[earlyKey]bool{}}
	var wg sync.WaitGroup
	for r, m := range mesh.Local(n, nil) {
		w := &world{rank: r, size: n, mesh: countingMesh{m, r, r == 0, count}, timeout: time.Minute,
			waiting: new(waitedRank), detector: newDivergenceDetector(), ended: make(chan struct{})}
		e := &messages{world: w, members: []int{0, 1, 2, 3, 4, 5}, rank: r}
		wg.Go(func() {
			buf := make([]float32, elements)
			for i := range buf {
				buf[i] = float32(r + i%7)
			}
			c := AllReduce(buf, Sum)
			if err := e.run(t.Context(), 0, &c); err != nil {
				t.Errorf("rank %d: %v", r, err)
				return
			}
			for i, v := range buf {
				if want := float32(n*(n-1)/2 + n*(i%7)); v != want {
					t.Errorf("rank %d: element %d is %v, want %v", r, i, v, want)
					return
				}
			}
		})
	}
	wg.Wait()
	if count.early > 0 {
		t.Errorf("%d messages were sent before they were requested", count.early)
	}
}
