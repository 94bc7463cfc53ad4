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

// saveAsync saves asynchronously. Training pauses only to copy this rank's state. There is memory
// for one copy only. So saveAsync first waits for a save in progress, and no requested checkpoint is
// skipped.
//
// If ranks write parts, each rank sends a flag (extraSaveInFlight) with the gradients of every step
// until it has written its part. After the first step in which no rank sends the flag, rank 0
// commits, also in the background.
func (r *run) saveAsync(ctx context.Context) error {
	defer r.Progress.enter(phaseSaving)()
	defer r.Trace.Add(trace.Save, 0, r.Trace.Now())
	began := time.Now()
	if err := r.waitAsyncSave(ctx); err != nil {
		return err
	}
	s, err := r.beginSave(ctx)
	if s == nil || err != nil {
		return err
	}
	r.copyPieces(s.pieces)
	r.asyncSave = s
	s.goAsync(func() {
		r.writeSave(s)
		if !s.sharded {
			r.commitSave(ctx, s)
		}
	})
	s.stalled = time.Since(began)
	return nil
}

// goAsync runs f in a background goroutine.
func (s *pendingSave) goAsync(f func()) {
	s.done = make(chan struct{})
	go func() {
		defer close(s.done)
		f()
		s.idleSince = time.Now()
	}()
}

// saveInFlight reports whether this rank is still writing its part in the background.
func (r *run) saveInFlight() bool {
	s := r.asyncSave
	return s != nil && s.sharded && !s.exchanged && !s.isIdle()
}

// isIdle reports whether no background goroutine is running for this save.
func (s *pendingSave) isIdle() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

// pollAsyncSave polls the save in the background after a step.
func (r *run) pollAsyncSave(ctx context.Context) error {
	s := r.asyncSave
	switch {
	case s == nil:
		return nil
	case s.sharded && !s.exchanged:
		if r.outcome.saveInFlight || r.outcome.at.Step < s.at.Step { // the outcome may be of a step before the save
			return nil
		}
		return r.finalizeSave(ctx)
	case !s.isIdle():
		return nil
	}
	return r.finishAsyncSave()
}

// waitAsyncSave waits for the save in the background, if one is in progress.
func (r *run) waitAsyncSave(ctx context.Context) error {
	for r.asyncSave != nil {
		s := r.asyncSave
		select {
		case <-s.done:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		next := r.finishAsyncSave
		if s.sharded && !s.exchanged {
			next = func() error { return r.finalizeSave(ctx) }
		}
		if err := next(); err != nil {
			return err
		}
	}
	return nil
}

// finalizeSave finishes a save after all ranks have written their parts: the ranks exchange the
// results, and rank 0 commits.
func (r *run) finalizeSave(ctx context.Context) error {
	defer r.Trace.Add(trace.Save, 0, r.Trace.Now())
	s, began := r.asyncSave, time.Now()
	if err := r.exchangeResults(ctx, s); err != nil {
		return err
	}
	if r.Comm.Rank() != 0 || s.err != nil {
		return r.finishAsyncSave()
	}
	s.goAsync(func() { r.commitSave(ctx, s) })
	s.stalled += time.Since(began)
	return nil
}

// finishAsyncSave reports the result of the save in the background and clears it.
func (r *run) finishAsyncSave() error {
	s := r.asyncSave
	r.asyncSave = nil
	r.Trace.AddUntil(trace.AsyncSave, 0, s.began, s.idleSince)
	return r.continueAfterSaveError(r.finishSave(s))
}

// closeAsyncSave waits for the save in progress when the run fails, so that no goroutine remains.
// It completes the save if this rank can do so without the others. The state is from before the
// failure.
func (r *run) closeAsyncSave() {
	if s := r.asyncSave; s != nil {
		<-s.done
		if !s.sharded || s.exchanged {
			_ = r.finishSave(s) // the run has failed for another reason
		}
	}
}

// needsCopies reports whether this rank saves asynchronously, from its own copies.
func (r *run) needsCopies() bool {
	return r.Job.Checkpoint.Async && (r.ddpOptions().Strategy != ddp.DDP || r.Comm.Rank() == 0)
}

// allocCopies allocates the memory for copies and touches it: the first access to a page takes
// several times as long as the copy. A [device.Accelerator] copies to pinned memory at the speed of its
// bus. Without pinned memory, copies are slower, and allocCopies emits a warning.
func (r *run) allocCopies() {
	if !r.needsCopies() {
		return
	}
	n := 0
	if r.device.Host() {
		for _, parts := range r.stateParts() {
			for _, p := range parts {
				n += len(p.Data)
			}
		}
		buffer := r.device.Alloc(device.Float32, n)
		r.device.Zero(buffer)
		r.copyBuffer = buffer.Floats()
		return
	}
	count := func(t device.Tensor) []float32 { n += t.Len(); return nil }
	r.values(count)
	r.optimizer.StateBy(count)
	buffer, err := r.device.Accelerator().Pin(n)
	if r.copyBuffer = buffer; err == nil {
		return
	}
	r.Observe(Event{Kind: Unpinned, Err: err})
	const page = 4096 / 4
	r.copyBuffer = make([]float32, n)
	for at := 0; at < n; at += page {
		r.copyBuffer[at] = 1
	}
}

// stateReader returns the function that reads the state to save. On the host, it returns the memory
// itself, which copyPieces copies later. Otherwise it copies, to r.copyBuffer if it is allocated.
func (r *run) stateReader() optim.Read {
	rest := r.copyBuffer
	if r.device.Host() || rest == nil {
		return r.readTensor
	}
	return func(t device.Tensor) []float32 {
		to := rest[:t.Len()]
		rest = rest[len(to):]
		r.device.Read(to, t)
		return to
	}
}

// copyChunk is the number of elements that a goroutine copies at a time.
const copyChunk = 1 << 18

// copyPieces replaces pieces in host memory by copies.
func (r *run) copyPieces(pieces map[string][]checkpoint.Part) {
	if !r.device.Host() {
		return
	}
	type chunk struct{ to, from []float32 }
	var chunks []chunk
	rest := r.copyBuffer
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
