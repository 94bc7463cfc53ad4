//go:build cuda

package driver

import (
	"errors"
	"fmt"
	"slices"
	"sync"
)

const (
	granule = 512     // sizes are rounded up to this many bytes
	small   = 1 << 20 // sizes from this one are allocated individually
)

// Slab is the size of the allocations in bytes that small sizes share.
const Slab = 8 << 20

// Pool is a memory pool for one GPU. It is filled before the first step and caches freed memory for
// the next allocation of the same size, which then does not synchronize with the GPU. Several
// goroutines that have bound the GPU may use it concurrently.
//
// Freed memory may be reused immediately. So it must not be in use by any stream except the
// stream of its next user.
type Pool struct {
	// SeparateAllocations makes each allocation a separate driver allocation of the exact size, so
	// that tools that track the driver's allocations (compute-sanitizer, the simulator) detect
	// out-of-bounds accesses. It must be set before the first Alloc.
	SeparateAllocations bool

	mu    sync.Mutex
	whole []Ptr           // allocations from the driver
	sizes map[Ptr]int64   // sizes of memory in use
	free  map[int64][]Ptr // free memory by size
	rest  Ptr             // rest of the last slab
	left  int64
	stats PoolStats
}

// PoolStats holds the sizes of a pool in bytes.
type PoolStats struct {
	Used, Peak int64 // allocated by users, now and at most
	Reserved   int64 // allocated from the driver
}

// NewPool returns an empty pool for the GPU that is bound when it is used.
func NewPool() *Pool { return &Pool{sizes: map[Ptr]int64{}, free: map[int64][]Ptr{}} }

// Alloc returns n bytes (n >= 0), aligned to 256 bytes and uninitialized.
func (p *Pool) Alloc(n int64) (Ptr, error) {
	size := max(granule, (n+granule-1)/granule*granule)
	if p.SeparateAllocations {
		size = max(1, n)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	at, err := p.take(size)
	if err != nil {
		var e *Error
		if errors.As(err, &e) {
			e.What += fmt.Sprintf("; of this process's %d bytes, %d are in use", p.stats.Reserved, p.stats.Used)
		}
		return 0, err
	}
	p.sizes[at] = size
	p.stats.Used += size
	p.stats.Peak = max(p.stats.Peak, p.stats.Used)
	return at, nil
}

func (p *Pool) take(size int64) (Ptr, error) {
	if list := p.free[size]; len(list) > 0 {
		p.free[size] = list[:len(list)-1]
		return list[len(list)-1], nil
	}
	if size >= small || p.SeparateAllocations {
		return p.reserve(size)
	}
	if p.left < size {
		if p.left > 0 {
			p.free[p.left] = append(p.free[p.left], p.rest)
			p.left = 0
		}
		at, err := p.reserve(Slab)
		if err != nil {
			return 0, err
		}
		p.rest, p.left = at, Slab
	}
	at := p.rest
	p.rest += Ptr(size)
	p.left -= size
	return at, nil
}

func (p *Pool) reserve(size int64) (Ptr, error) {
	at, err := Alloc(size)
	if errors.Is(err, OutOfMemory) && p.release() {
		at, err = Alloc(size)
	}
	if err != nil {
		return 0, err
	}
	p.whole = append(p.whole, at)
	p.stats.Reserved += size
	return at, nil
}

// release returns unused memory to the driver, except for parts of slabs, and reports whether there
// was any.
func (p *Pool) release() bool {
	any := false
	for size, list := range p.free {
		if size < small && !p.SeparateAllocations {
			continue
		}
		for _, at := range list {
			if Free(at) != nil {
				return false // the driver has failed, and Alloc's error reports it
			}
			p.whole = slices.DeleteFunc(p.whole, func(w Ptr) bool { return w == at })
			p.stats.Reserved -= size
			any = true
		}
		delete(p.free, size)
	}
	return any
}

// Free releases memory from Alloc.
func (p *Pool) Free(at Ptr) {
	p.mu.Lock()
	defer p.mu.Unlock()
	size, ok := p.sizes[at]
	if !ok {
		panic(fmt.Sprintf("driver: %v is not memory of this pool", at))
	}
	delete(p.sizes, at)
	p.free[size] = append(p.free[size], at)
	p.stats.Used -= size
}

// Stats returns the sizes.
func (p *Pool) Stats() PoolStats {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stats
}

// Close returns all memory to the driver, including memory in use.
func (p *Pool) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	for _, at := range p.whole {
		errs = append(errs, Free(at))
	}
	p.whole, p.left, p.stats = nil, 0, PoolStats{}
	clear(p.sizes)
	clear(p.free)
	return errors.Join(errs...)
}
