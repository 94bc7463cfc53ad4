package collective

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/ddpbatch/ddpbatch/trainer/collective/internal/mesh"
	"github.com/ddpbatch/ddpbatch/trainer/collective/internal/sched"
)

const (
	// smallBytes is the largest buffer, in bytes, that every rank reduces redundantly, which takes
	// one synchronization instead of two.
	smallBytes = 16 << 10
	// windowBytes is the size of a window in bytes: three windows per rank fit the shared cache.
	windowBytes = 256 << 10
	windows     = 3
	// maxRanksPerNode is the maximum number of ranks that can share memory: a window has a cache
	// line for each.
	maxRanksPerNode = windowBytes / line
)

// board holds the published arguments of the ranks of a group.
type board interface {
	// slot returns the state that a rank publishes.
	slot(rank int) *slot
	// publish publishes this rank's arguments. They remain valid until the operation after the
	// next, which no rank begins before all have left this one.
	publish(rank int, turn uint64, c *Call, s mesh.Signature)
	// published returns the arguments of a rank. send returns its buffer, if that is visible.
	published(rank int, turn uint64) *entry
	send(rank int, turn uint64) []byte
	// visible reports whether a call's buffer is in memory that other ranks can access.
	visible(rank int, c *Call) bool
	// small and window return staging buffers of a rank in shared memory.
	small(rank int, turn uint64) []byte
	window(rank, i int) []byte
	// spinCount returns how many times to poll for another rank before yielding the core.
	spinCount() int
	// yield yields to other goroutines, and, if processes is set, to other processes, for the nth
	// time in one wait, from 0.
	yield(nth int, processes bool)
	name() string
	alloc(ctx context.Context, s *shared, bytes int) ([]byte, error)
	close() error
}

// slot is the published state of a rank. Its memory layout is the same in all processes.
type slot struct {
	phase   atomic.Uint64 // incremented when the rank starts to wait for the others
	core    atomic.Int32  // core of the last yield in this phase, plus 1; otherwise 0
	_       [line - 12]byte
	entries [2]entry
}

// entry is one operation of a rank.
type entry struct {
	signature mesh.Signature
	visible   bool
	area      int32 // index among the rank's areas of shared memory
	offset    uint64
	length    uint64
}

// publishesSend reports whether other ranks read the call's buffer.
func (c *Call) publishesSend(rank int) bool {
	if c.step != nil {
		return len(c.Send) > 0
	}
	switch c.Kind {
	case KindBarrier:
		return false
	case KindBroadcast, KindScatter:
		return rank == c.Root
	}
	return true
}

// spinLimit returns the spin count for the given number of ranks on this node.
func spinLimit(ranks int) int {
	if ranks > min(runtime.GOMAXPROCS(0), runtime.NumCPU()) {
		return 0 // the other rank may wait for this core
	}
	return maxSpins
}

// heap is the [board] of goroutines.
type heap struct {
	slots        []slot
	buffers      [][2][]byte
	smallBuffers [][2][]byte
	spins        int
	left         atomic.Int32 // ranks that have not closed the board
	release      func()
}

// newHeap returns a board of n ranks. It calls forget when all ranks have closed it.
func newHeap(n int, forget func()) *heap {
	h := &heap{release: forget, slots: make([]slot, n), buffers: make([][2][]byte, n), smallBuffers: make([][2][]byte, n), spins: spinLimit(n)}
	h.left.Store(int32(n))
	for r := range n {
		h.smallBuffers[r] = [2][]byte{aligned(smallBytes), aligned(smallBytes)}
	}
	return h
}

// aligned returns memory that begins at a cache line.
func aligned(n int) []byte {
	b := make([]byte, n+line)
	skip := -int(uintptr(unsafe.Pointer(&b[0]))) & (line - 1)
	return b[skip:][:n:n]
}

func (h *heap) slot(rank int) *slot { return &h.slots[rank] }

func (h *heap) publish(rank int, turn uint64, c *Call, s mesh.Signature) {
	h.slots[rank].entries[turn%2] = entry{signature: s, visible: true}
	h.buffers[rank][turn%2] = c.Send
}

func (h *heap) published(rank int, turn uint64) *entry { return &h.slots[rank].entries[turn%2] }
func (h *heap) send(rank int, turn uint64) []byte      { return h.buffers[rank][turn%2] }
func (h *heap) visible(int, *Call) bool                { return true }
func (h *heap) small(rank int, turn uint64) []byte     { return h.smallBuffers[rank][turn%2] }
func (h *heap) window(int, int) []byte                 { panic("collective: goroutines need no windows") }
func (h *heap) spinCount() int                         { return h.spins }
func (h *heap) name() string                           { return "memory" }

func (h *heap) close() error {
	if h.left.Add(-1) == 0 {
		h.release()
	}
	return nil
}

// yield always yields to other goroutines, which include the ranks.
func (h *heap) yield(_ int, processes bool) {
	runtime.Gosched()
	if processes {
		sched.Yield()
	}
}

func (h *heap) alloc(context.Context, *shared, int) ([]byte, error) { return nil, nil }

// heaps holds the boards of all groups of one process.
type heaps struct {
	mu  sync.Mutex
	all map[uint64]*heap
}

// boardFor returns a group's board. The first rank that calls it creates the board.
func (h *heaps) boardFor(id uint64, n int) *heap {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.all == nil {
		h.all = map[uint64]*heap{}
	}
	if h.all[id] == nil {
		h.all[id] = newHeap(n, func() { h.remove(id) })
	}
	return h.all[id]
}

func (h *heaps) remove(id uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.all, id)
}
