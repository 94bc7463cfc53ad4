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
	// smallRoom is the largest buffer in bytes that every rank reduces by itself, which
	// takes one wait instead of two.
	smallRoom = 16 << 10
	// windowRoom is the bytes of a window: three of each rank fit the shared cache.
	windowRoom = 256 << 10
	windows    = 3
	// mostOnNode is how many ranks may share memory: a window has a line for each.
	mostOnNode = windowRoom / line
)

// board is where the ranks of a group show each other what they bring.
type board interface {
	// slot is what a rank shows to all.
	slot(rank int) *slot
	// show says what this rank brings to an operation. It stays until the operation
	// after the next, which no rank begins before all have left this one.
	show(rank int, turn uint64, c *Call, s mesh.Signature)
	// shown is what a rank has said, and send the memory that it brings, if that is
	// visible.
	shown(rank int, turn uint64) *entry
	send(rank int, turn uint64) []byte
	// visible reports whether a call's buffer is in memory that others can read.
	visible(rank int, c *Call) bool
	// small and window are rooms of a rank in common memory.
	small(rank int, turn uint64) []byte
	window(rank, i int) []byte
	// looks is how often to look for another rank before letting others run.
	looks() int
	// giveWay lets others run, the nth time in one wait, from 0.
	giveWay(nth int)
	name() string
	alloc(ctx context.Context, s *shared, bytes int) ([]byte, error)
	close() error
}

// slot is what a rank shows, in memory of one layout in all processes.
type slot struct {
	phase   atomic.Uint64 // the rank raises it when it waits for the others
	core    atomic.Int32  // where it was, from 1, when it last gave way since; or 0
	_       [line - 12]byte
	entries [2]entry
}

// entry is one operation of a rank.
type entry struct {
	signature mesh.Signature
	visible   bool
	area      int32 // of the rank's memory that others can read
	offset    uint64
	length    uint64
}

// brings reports whether other ranks look at the call's buffer.
func (c *Call) brings(rank int) bool {
	if c.look != nil {
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

// patience is how often to look for another rank of so many that run here at a time.
func patience(ranks int) int {
	if ranks > min(runtime.GOMAXPROCS(0), runtime.NumCPU()) {
		return 0 // it may wait for this one's core
	}
	return looks
}

// heap is the [board] of goroutines.
type heap struct {
	slots   []slot
	buffers [][2][]byte
	rooms   [][2][]byte
	spins   int
	left    atomic.Int32 // ranks that have not closed it
	forget  func()
}

// newHeap returns a board of n ranks; forget is called when all have closed it.
func newHeap(n int, forget func()) *heap {
	h := &heap{forget: forget, slots: make([]slot, n), buffers: make([][2][]byte, n), rooms: make([][2][]byte, n), spins: patience(n)}
	h.left.Store(int32(n))
	for r := range n {
		h.rooms[r] = [2][]byte{aligned(smallRoom), aligned(smallRoom)}
	}
	return h
}

// aligned is memory that begins with a cache line.
func aligned(n int) []byte {
	b := make([]byte, n+line)
	skip := -int(uintptr(unsafe.Pointer(&b[0]))) & (line - 1)
	return b[skip:][:n:n]
}

func (h *heap) slot(rank int) *slot { return &h.slots[rank] }

func (h *heap) show(rank int, turn uint64, c *Call, s mesh.Signature) {
	h.slots[rank].entries[turn%2] = entry{signature: s, visible: true}
	h.buffers[rank][turn%2] = c.Send
}

func (h *heap) shown(rank int, turn uint64) *entry { return &h.slots[rank].entries[turn%2] }
func (h *heap) send(rank int, turn uint64) []byte  { return h.buffers[rank][turn%2] }
func (h *heap) visible(int, *Call) bool            { return true }
func (h *heap) small(rank int, turn uint64) []byte { return h.rooms[rank][turn%2] }
func (h *heap) window(int, int) []byte             { panic("collective: goroutines need no windows") }
func (h *heap) looks() int                         { return h.spins }
func (h *heap) name() string                       { return "memory" }

func (h *heap) close() error {
	if h.left.Add(-1) == 0 {
		h.forget()
	}
	return nil
}

// giveWay lets other goroutines run, which the ranks are, and other processes.
func (h *heap) giveWay(int) {
	runtime.Gosched()
	sched.Yield()
}

func (h *heap) alloc(context.Context, *shared, int) ([]byte, error) { return nil, nil }

// heaps are the boards of all groups of one process.
type heaps struct {
	mu  sync.Mutex
	all map[uint64]*heap
}

// of is a group's board, which the first of its ranks makes.
func (h *heaps) of(id uint64, n int) *heap {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.all == nil {
		h.all = map[uint64]*heap{}
	}
	if h.all[id] == nil {
		h.all[id] = newHeap(n, func() { h.forget(id) })
	}
	return h.all[id]
}

func (h *heaps) forget(id uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.all, id)
}
