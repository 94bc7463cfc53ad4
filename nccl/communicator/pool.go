package communicator

import (
	"math/bits"
	"unsafe"
)

// A pool holds a lane's GPU memory and an equal amount of host memory that the GPU can access
// directly, in sizes of powers of two. It frees memory only at the end, because freeing waits
// for the whole GPU.
type pool struct {
	all  []*piece
	free map[int][]*piece
}

type piece struct {
	gpu   unsafe.Pointer
	host  Host
	class int // log2 of the size
}

// take returns memory of at least the given size.
func (p *pool) take(gpu GPU, bytes int) (*piece, error) {
	class := bits.Len(uint(max(bytes, 512) - 1))
	if n := len(p.free[class]); n > 0 {
		taken := p.free[class][n-1]
		p.free[class] = p.free[class][:n-1]
		return taken, nil
	}
	made := &piece{class: class}
	var err error
	if made.gpu, err = gpu.Alloc(1 << class); err != nil {
		return nil, err
	}
	p.all = append(p.all, made)
	made.host, err = gpu.AllocHost(1 << class)
	return made, err
}

// put returns memory to the pool; nil is allowed.
func (p *pool) put(back *piece) {
	if back == nil {
		return
	}
	if p.free == nil {
		p.free = map[int][]*piece{}
	}
	p.free[back.class] = append(p.free[back.class], back)
}

// release frees all memory.
func (p *pool) release(gpu GPU) {
	for _, m := range p.all {
		_ = gpu.Free(m.gpu)
		if m.host != nil {
			_ = m.host.Free()
		}
	}
}
