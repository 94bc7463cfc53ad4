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

// saveBehind saves while training goes on, which waits for a copy of what this rank
// keeps. There is memory for one copy: a save that is under way still is waited for,
// because none that the job asks for is left out.
//
// Where ranks write parts, each tells the others with the gradients of every step
// whether it has written its own; after the step in which all have, rank 0 commits, in
// the background too.
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
			r.commit(s)
		}
	})
	s.stalled = time.Since(began)
	return nil
}

// beside does something in the background.
func (s *saving) beside(f func()) {
	s.done = make(chan struct{})
	go func() {
		defer close(s.done)
		f()
		s.idleSince = time.Now()
	}()
}

// unwritten says that other ranks must wait for what this one writes in the background.
func (r *run) unwritten() bool {
	s := r.behind
	return s != nil && s.divided && !s.told && !s.idle()
}

// idle says that nothing is written in the background.
func (s *saving) idle() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

// attend takes note, after a step, of what has become of a save in the background.
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

// settle waits for the save in the background, if there is one.
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

// conclude has all ranks, each of which has written its parts, agree, and rank 0 commit.
func (r *run) conclude(ctx context.Context) error {
	defer r.Trace.Add(trace.Save, 0, r.Trace.Now())
	s, began := r.behind, time.Now()
	if err := r.agree(ctx, s); err != nil {
		return err
	}
	if r.Comm.Rank() != 0 || s.err != nil {
		return r.settled()
	}
	s.beside(func() { r.commit(s) })
	s.stalled += time.Since(began)
	return nil
}

// settled ends the save in the background.
func (r *run) settled() error {
	s := r.behind
	r.behind = nil
	r.Trace.AddUntil(trace.Behind, 0, s.began, s.idleSince)
	return r.tolerate(r.saved(s))
}

// leave waits, when the run ends in failure, for what is being written: no goroutine
// stays, and a state from before the failure is saved if this rank can do so alone.
func (r *run) leave() {
	if s := r.behind; s != nil {
		<-s.done
		if !s.divided || s.told {
			_ = r.saved(s) // the run has failed for another reason
		}
	}
}

// copied says that this rank saves in the background, from copies of its own.
func (r *run) copied() bool {
	return r.Job.Checkpoint.Async && (r.spreading().Strategy != ddp.DDP || r.Comm.Rank() == 0)
}

// reserve gets memory for copies, and touches it: memory that is touched for the first
// time is some times slower than copying. To that of [device.Pinner] a device copies at the
// speed of its bus; where there is none, copies are slower, and that is told.
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

// copying reads what is to be saved: on the host the memory itself, of which copyOf makes
// copies; else copies, in the memory for them if there is some.
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

// copyChunk is the elements that a goroutine copies at a time.
const copyChunk = 1 << 18

// copyOf replaces pieces in the host's memory by copies of them.
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
