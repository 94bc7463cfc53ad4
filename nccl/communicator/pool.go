package communicator

import (
	"math/bits"
	"unsafe"
)

// pool is a lane's memory of the GPU, with as much of the host's that the GPU reads and
// writes by itself, in sizes of powers of two. It gives nothing back before the end:
// that would wait for the whole GPU.
type pool struct {
	all  []*piece
	free map[int][]*piece
}

type piece struct {
	gpu   unsafe.Pointer
	host  Host
	class int // the power of two
}

// take returns memory for some bytes, at least one.
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

// put takes memory back; nil is none.
func (p *pool) put(back *piece) {
	if back == nil {
		return
	}
	if p.free == nil {
		p.free = map[int][]*piece{}
	}
	p.free[back.class] = append(p.free[back.class], back)
}

// release gives everything back to the GPU.
func (p *pool) release(gpu GPU) {
	for _, m := range p.all {
		_ = gpu.Free(m.gpu)
		if m.host != nil {
			_ = m.host.Free()
		}
	}
}
