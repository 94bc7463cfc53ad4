package checkpointing

import (
	"runtime"
	"slices"
	"sync"

	"github.com/ddpbatch/ddpbatch/trainer/checkpoint"
	"github.com/ddpbatch/ddpbatch/trainer/ddp"
	"github.com/ddpbatch/ddpbatch/trainer/device"
	"github.com/ddpbatch/ddpbatch/trainer/optim"
)

// CopyElements returns the number of elements that this rank copies for an asynchronous save.
func (s *State) CopyElements() (n int) {
	if s.Sharder.Strategy == ddp.DDP && s.Comm.Rank() != 0 {
		return 0
	}
	count := func(t device.Tensor) []float32 { n += t.Len(); return nil }
	s.values(count)
	s.Optimizer.StateBy(count)
	return n
}

// AllocCopies allocates the memory for copies, if saves are asynchronous and this rank has a part
// of them, and touches it: the first access to a page takes several times as long as the copy. A
// [device.Accelerator] copies to pinned memory at the speed of its bus. Without pinned memory, copies are
// slower, and AllocCopies returns the reason.
func (s *Saver) AllocCopies() (slow error) {
	d, n := s.State.Device, s.State.CopyElements()
	if !s.Async || n == 0 {
		return nil
	}
	if d.Host() {
		n = 0
		for _, parts := range s.State.pieces(s.reader()) {
			for _, p := range parts {
				n += len(p.Data)
			}
		}
		buffer := d.Alloc(device.Float32, n)
		d.Zero(buffer)
		s.copyBuffer = buffer.Floats()
		return nil
	}
	if s.copyBuffer, slow = d.Accelerator().Pin(n); slow == nil {
		return nil
	}
	s.copyBuffer = slices.Repeat([]float32{1}, n)
	return slow
}

// reader returns the function that reads the state to save. On the host, it returns the memory
// itself, which copyPieces copies later. Otherwise it copies, to s.copyBuffer if it is allocated.
func (s *Saver) reader() optim.Read {
	rest := s.copyBuffer
	if s.State.Device.Host() || rest == nil {
		return s.State.readTensor
	}
	return func(t device.Tensor) []float32 {
		to := rest[:t.Len()]
		rest = rest[len(to):]
		s.State.Device.Read(to, t)
		return to
	}
}

// copyChunk is the number of elements that a goroutine copies at a time.
const copyChunk = 1 << 18

// copyPieces replaces pieces in host memory by copies.
func (s *Saver) copyPieces(pieces map[string][]checkpoint.Part) {
	if !s.State.Device.Host() {
		return
	}
	type chunk struct{ to, from []float32 }
	var chunks []chunk
	rest := s.copyBuffer
	for _, parts := range pieces {
		for i, p := range parts {
			to, from := rest[:len(p.Data)], p.Data
			rest, parts[i].Data = rest[len(to):], to
			for len(from) > 0 {
				n := min(len(from), copyChunk)
				chunks = append(chunks, chunk{to[:n], from[:n]})
				to, from = to[n:], from[n:]
			}
		}
	}
	threads := s.Threads
	if threads == 0 {
		threads = runtime.GOMAXPROCS(0)
	}
	var wg sync.WaitGroup
	for t := range threads {
		wg.Go(func() {
			for i := t; i < len(chunks); i += threads {
				copy(chunks[i].to, chunks[i].from)
			}
		})
	}
	wg.Wait()
}
