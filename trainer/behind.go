package trainer

import (
	"context"
	"runtime"
	"sync"
	"time"

	"github.com/ddpbatch/ddpbatch/trainer/checkpoint"
	"github.com/ddpbatch/ddpbatch/trainer/ddp"
	"github.com/ddpbatch/ddpbatch/trainer/device"
	"github.com/ddpbatch/ddpbatch/trainer/optim"
	"github.com/ddpbatch/ddpbatch/trainer/trace"
)

// saveBehind saves asynchronously. Training pauses only to copy this rank's state. There is memory
// for one copy, so saveBehind first waits for a save in progress: no requested checkpoint is
// skipped.
//
// If ranks write parts, each rank sends a flag with the gradients of every step until it has
// written its part. After the step in which no rank sends the flag, rank 0 commits, also in the
// background.
func (r *run) saveBehind(ctx context.Context) error {
	defer r.Progress.enter(phaseSaving)()
	defer r.Trace.Add(trace.Save, 0, r.Trace.Now())
	began := time.Now()
	if err := r.settle(ctx); err != nil {
		return err
	}
	s, err := r.begin(ctx)
	if s == nil || err != nil {
		return err
	}
	r.copyOf(s.pieces)
	r.behind = s
	s.beside(func() {
		r.write(s)
		if !s.divided {
			r.commit(ctx, s)
		}
	})
	s.stalled = time.Since(began)
	return nil
}

// beside runs f in a background goroutine.
func (s *saving) beside(f func()) {
	s.done = make(chan struct{})
	go func() {
		defer close(s.done)
		f()
		s.idleSince = time.Now()
	}()
}

// unwritten reports whether this rank is still writing its part in the background.
func (r *run) unwritten() bool {
	s := r.behind
	return s != nil && s.divided && !s.told && !s.idle()
}

// idle reports whether the background goroutine has ended.
func (s *saving) idle() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

// attend polls the save in the background after a step.
func (r *run) attend(ctx context.Context) error {
	s := r.behind
	switch {
	case s == nil:
		return nil
	case s.divided && !s.told:
		if r.sharder.Extra()[extraUnwritten] > 0 {
			return nil
		}
		return r.conclude(ctx)
	case !s.idle():
		return nil
	}
	return r.settled()
}

// settle waits for the save in the background, if one is in progress.
func (r *run) settle(ctx context.Context) error {
	for r.behind != nil {
		s := r.behind
		select {
		case <-s.done:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		next := r.settled
		if s.divided && !s.told {
			next = func() error { return r.conclude(ctx) }
		}
		if err := next(); err != nil {
			return err
		}
	}
	return nil
}

// conclude finishes a save after all ranks have written their parts: the ranks exchange the
// results, and rank 0 commits.
func (r *run) conclude(ctx context.Context) error {
	defer r.Trace.Add(trace.Save, 0, r.Trace.Now())
	s, began := r.behind, time.Now()
	if err := r.agree(ctx, s); err != nil {
		return err
	}
	if r.Comm.Rank() != 0 || s.err != nil {
		return r.settled()
	}
	s.beside(func() { r.commit(ctx, s) })
	s.stalled += time.Since(began)
	return nil
}

// settled reports the result of the save in the background and clears it.
func (r *run) settled() error {
	s := r.behind
	r.behind = nil
	r.Trace.AddUntil(trace.Behind, 0, s.began, s.idleSince)
	return r.tolerate(r.saved(s))
}

// leave waits for the save in progress when the run fails, so that no goroutine remains. It
// completes the save if this rank can do so without the others. The state is from before the
// failure.
func (r *run) leave() {
	if s := r.behind; s != nil {
		<-s.done
		if !s.divided || s.told {
			_ = r.saved(s) // the run has failed for another reason
		}
	}
}

// copied reports whether this rank saves asynchronously, from its own copies.
func (r *run) copied() bool {
	return r.Job.Checkpoint.Async && (r.spreading().Strategy != ddp.DDP || r.Comm.Rank() == 0)
}

// reserve allocates the memory for copies and touches it: the first access to a page takes several
// times as long as the copy. A [device.Pinner] copies to pinned memory at the speed of its bus.
// Without pinned memory, copies are slower, and reserve emits a warning.
func (r *run) reserve() {
	if !r.copied() {
		return
	}
	n := 0
	if r.device.Host() {
		for _, parts := range r.pieces() {
			for _, p := range parts {
				n += len(p.Data)
			}
		}
		room := r.device.Alloc(device.Float32, n)
		r.device.Zero(room)
		r.copies = room.Floats()
		return
	}
	count := func(t device.Tensor) []float32 { n += t.Len(); return nil }
	r.values(count)
	r.optimizer.StateBy(count)
	if d, ok := r.device.(device.Pinner); ok {
		room, err := d.Pin(n)
		if r.copies = room; err == nil {
			return
		}
		r.Observe(Event{Kind: Unpinned, Err: err})
	}
	const page = 4096 / 4
	r.copies = make([]float32, n)
	for at := 0; at < n; at += page {
		r.copies[at] = 1
	}
}

// copying returns the function that reads the state to save. On the host, it returns the memory
// itself, which copyOf copies later. Otherwise it copies, to r.copies if it is allocated.
func (r *run) copying() optim.Read {
	room := r.copies
	if r.device.Host() || room == nil {
		return r.floats
	}
	return func(t device.Tensor) []float32 {
		to := room[:t.Len()]
		room = room[len(to):]
		r.device.Read(to, t)
		return to
	}
}

// copyChunk is the number of elements that a goroutine copies at a time.
const copyChunk = 1 << 18

// copyOf replaces pieces in host memory by copies.
func (r *run) copyOf(pieces map[string][]checkpoint.Part) {
	if !r.device.Host() {
		return
	}
	type chunk struct{ to, from []float32 }
	var chunks []chunk
	room := r.copies
	for _, parts := range pieces {
		for i, p := range parts {
			to, from := room[:len(p.Data)], p.Data
			room, parts[i].Data = room[len(to):], to
			for len(from) > 0 {
				n := min(len(from), copyChunk)
				chunks = append(chunks, chunk{to[:n], from[:n]})
				to, from = to[n:], from[n:]
			}
		}
	}
	threads := r.Threads
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
