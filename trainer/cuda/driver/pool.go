//go:build cuda

package driver

import (
	"errors"
	"fmt"
	"slices"
	"sync"
)

const (
	granule = 512     // bytes to which sizes are rounded up
	small   = 1 << 20 // sizes from here on are asked of the driver one by one
)

// Slab is the bytes of memory that small sizes are parts of.
const Slab = 8 << 20

// Pool is memory of one GPU that is planned: got before the first step, and kept when
// it is given back, for the next that asks for as much. Getting it does not wait for
// the GPU then. It may be used from several goroutines that have the GPU bound.
//
// Memory that is given back may be got again at once. So it must not be in use by a
// stream other than that of its next user.
type Pool struct {
	// Apart has each size, as it is, asked of the driver by itself, so that tools which
	// know the driver's allocations (compute-sanitizer, the simulator) find what reaches
	// beyond one. It is to be set before the first Alloc.
	Apart bool

	mu    sync.Mutex
	whole []Ptr           // what the driver gave
	sizes map[Ptr]int64   // of what is in use
	free  map[int64][]Ptr // by size
	rest  Ptr             // of the last slab
	left  int64
	stats PoolStats
}

// PoolStats are a pool's figures in bytes.
type PoolStats struct {
	Used, Peak int64 // given out, now and at most
	Reserved   int64 // got from the driver
}

// NewPool makes an empty pool for the GPU that is bound when it is used.
func NewPool() *Pool { return &Pool{sizes: map[Ptr]int64{}, free: map[int64][]Ptr{}} }

// Alloc returns n bytes (n >= 0), aligned to 256, with anything in them.
func (p *Pool) Alloc(n int64) (Ptr, error) {
	size := max(granule, (n+granule-1)/granule*granule)
	if p.Apart {
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
	if size >= small || p.Apart {
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

// release gives the driver what no one uses, but for parts of slabs, and says whether
// there was any.
func (p *Pool) release() bool {
	any := false
	for size, list := range p.free {
		if size < small && !p.Apart {
			continue
		}
		for _, at := range list {
			if Free(at) != nil {
				return false // the driver is beyond help, and Alloc's error says how
			}
			p.whole = slices.DeleteFunc(p.whole, func(w Ptr) bool { return w == at })
			p.stats.Reserved -= size
			any = true
		}
		delete(p.free, size)
	}
	return any
}

// Free gives memory of Alloc back.
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

// Stats returns the figures.
func (p *Pool) Stats() PoolStats {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stats
}

// Close gives all memory to the driver, also what is in use.
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
