package communicator

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/ddpbatch/ddpbatch/nccl/libnccl"
)

// A lane is an NCCL communicator with a stream and a thread. Its operations run in sequence.
// After it is open, only the thread may access fields that change, except those that mu guards.
type lane struct {
	library    *libnccl.Library
	gpu        GPU
	rank, size int
	timeout    time.Duration // of each operation
	grace      time.Duration // for the owner, after the timeout
	thread     *thread
	owner      laneOwner
	comm       libnccl.Comm
	out        *libnccl.Comm // NCCL writes comm here
	pins       runtime.Pinner
	stream     Stream

	mu       sync.Mutex // guards the next three fields
	broken   error
	unused   []Event // reusable events
	progress progress

	pending []*operation // operations on the stream, in order
	events  []Event      // all events
	polls   int
}

// A laneOwner is notified of problems, on the lane's thread.
type laneOwner interface {
	// failed reports the first failure.
	failed(o *operation, err error)
	// overdue reports that an operation has not ended within its timeout. Soon afterward the operation
	// fails. Until then, the owner can report a better reason.
	overdue(o *operation)
}

// progress is the progress of a rank's operations on its GPU.
type progress struct {
	ended   uint64     // number of operations that have ended
	current *operation // the operation after them, or nil if it is not in the stream
	waits   bool       // the GPU has not reached the current operation
}

// openLane creates a lane without its NCCL communicator.
func openLane(o *Options, owner laneOwner) (*lane, error) {
	l := &lane{library: o.Library, gpu: o.GPU, rank: o.Control.Rank(), size: o.Control.Size(), timeout: o.Timeout, grace: 2 * diagnoseTimeout(o.Timeout), owner: owner, out: new(libnccl.Comm)}
	if o.Check {
		l.grace = o.Timeout/4 + 100*time.Millisecond // the checks have the same timeout, and name the missing rank
	}
	l.pins.Pin(l.out)
	var err error
	if l.thread, err = startThread(o.GPU, l.poll); err != nil {
		l.pins.Unpin() // a pinned pointer that becomes unreachable crashes the process
		return nil, fmt.Errorf("use GPU %s: %w", o.GPU.ID(), err)
	}
	l.thread.do(localTimeout, func() {
		l.stream, err = l.gpu.NewStream()
	})
	if err != nil {
		l.thread.do(localTimeout, l.free)
		return nil, fmt.Errorf("prepare GPU %s: %w", o.GPU.ID(), err)
	}
	return l, nil
}

// localTimeout is the timeout of work that does not wait for another rank.
const localTimeout = time.Hour

// failure returns the error that ended the lane, or nil.
func (l *lane) failure() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.broken
}

// setFailure ends the lane with an error, if it has not ended yet.
func (l *lane) setFailure(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.broken == nil {
		l.broken = err
	}
}

// gpuError names the GPU in an error of its driver, and what the lane was doing.
func (l *lane) gpuError(doing string, err error) error {
	return fmt.Errorf("GPU %s: %s: %w", l.gpu.ID(), doing, err)
}

// begin puts an operation on the stream, after all earlier ones.
func (l *lane) begin(ctx context.Context, o *operation) {
	work := func() {
		if err := l.enqueue(ctx, o); err != nil {
			l.owner.failed(o, err)
			l.pending = append(l.pending, o)
			l.stop()
			return
		}
		close(o.launched)
	}
	select {
	case l.thread.work <- work:
	case <-l.thread.ended:
		o.err = l.failure()
		close(o.done)
	}
}

// enqueue enqueues an operation on the stream. It runs on the lane's thread, and returns when NCCL has
// accepted the operation, usually before it ends.
func (l *lane) enqueue(ctx context.Context, o *operation) (err error) {
	if err := l.failure(); err != nil {
		return err
	}
	if o.after != nil {
		if err := l.stream.Wait(o.after); err != nil {
			return l.gpuError("wait for the computation", err)
		}
	}
	if o.begin, err = l.record(); err != nil {
		return l.gpuError("record the start of the operation", err)
	}
	if err := l.launch(o); err != nil {
		return err
	}
	if len(l.pending) == 0 {
		l.setProgress(o.number, o, false)
	}
	if err := l.waitAsync(ctx, time.Now().Add(l.timeout), o); err != nil {
		return err
	}
	if o.end, err = l.record(); err != nil {
		return l.gpuError("record the end of the operation", err)
	}
	l.pending = append(l.pending, o)
	return nil
}

func (l *lane) record() (e Event, err error) {
	l.mu.Lock()
	if n := len(l.unused); n > 0 {
		e, l.unused = l.unused[n-1], l.unused[:n-1]
	}
	l.mu.Unlock()
	if e == nil {
		if e, err = l.gpu.NewEvent(); err != nil {
			return nil, err
		}
		l.events = append(l.events, e)
	}
	return e, l.stream.Record(e)
}

// release makes events reusable.
func (l *lane) release(events ...Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unused = append(l.unused, events...)
}

func (l *lane) getProgress() progress {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.progress
}

// setProgress records the progress: the operations before o have ended.
func (l *lane) setProgress(ended uint64, o *operation, waits bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.progress = progress{ended, o, waits}
}

// connect creates NCCL's communicator of all ranks that have id.
func (l *lane) connect(ctx context.Context, id libnccl.UniqueID, limit time.Duration) (err error) {
	in := l.thread.do(limit+closeTimeout, func() {
		config := libnccl.NewConfig(l.library.Version)
		if err = l.library.CommInitRank(l.out, l.size, id, l.rank, &config); err == nil {
			l.comm = *l.out
			err = l.waitAsync(ctx, time.Now().Add(limit), nil)
		}
		if err != nil {
			l.abort()
		}
	})
	if !in {
		return fmt.Errorf("NCCL did not return from its initialization within %s", limit+closeTimeout)
	}
	return err
}

// waitAsync waits until NCCL has completed an asynchronous call, which is part of o unless o is nil.
func (l *lane) waitAsync(ctx context.Context, deadline time.Time, o *operation) error {
	for still := 0; ; still++ {
		busy, err := l.library.AsyncError(l.comm)
		if !busy || err != nil {
			return err
		}
		if err := l.failure(); err != nil {
			return err
		}
		if err := context.Cause(ctx); err != nil {
			return err
		}
		if now := time.Now(); now.After(deadline) {
			if o == nil || now.After(deadline.Add(l.grace)) {
				return errBusy
			}
			l.reportOverdue(o)
		}
		if pause := pollDelay(still); pause > 0 {
			time.Sleep(pause)
		} else {
			runtime.Gosched()
		}
	}
}

// errBusy means that a call of NCCL took too long.
var errBusy = errors.New("NCCL is still waiting for other ranks")

var errClosed = errors.New("the communicator was closed")

// poll checks the operations on the stream.
func (l *lane) poll() (progress, busy bool) {
	for len(l.pending) > 0 {
		o := l.pending[0]
		ended, err := o.end.Done()
		if err == nil && ended {
			o.took, err = o.end.Since(o.begin)
		}
		if err != nil {
			err = l.gpuError("query the end of the operation", err)
		} else if !ended {
			if err = l.checkProgress(o); err == nil {
				return progress, true
			}
		}
		if err != nil {
			l.owner.failed(o, err)
			l.stop()
			return true, false
		}
		l.pending = l.pending[1:]
		var next *operation
		if len(l.pending) > 0 {
			next = l.pending[0]
		}
		l.setProgress(o.number+1, next, false)
		progress = true
		o.ended = time.Now()
		close(o.done)
	}
	l.pending = nil
	return progress, false
}

// checkProgress checks at intervals whether the current operation of the GPU can still end.
func (l *lane) checkProgress(o *operation) error {
	if l.polls++; l.polls%16 != 0 {
		return nil
	}
	if err := l.failure(); err != nil {
		return err
	}
	if _, err := l.library.AsyncError(l.comm); err != nil {
		return err
	}
	now := time.Now()
	if o.began.IsZero() {
		reached, err := o.begin.Done()
		l.setProgress(o.number, o, !reached)
		if err != nil {
			return l.gpuError("query the start of the operation", err)
		}
		if !reached {
			return nil
		}
		o.began = now
	}
	switch late := now.Sub(o.began) - l.timeout; {
	case late > l.grace:
		return timeoutError(l.timeout)
	case late > 0:
		l.reportOverdue(o)
	}
	return nil
}

func (l *lane) reportOverdue(o *operation) {
	if !o.isOverdue {
		o.isOverdue = true
		l.owner.overdue(o)
	}
}

// stop aborts NCCL's communicator, so that nothing uses the buffers, and fails all operations
// in progress.
func (l *lane) stop() {
	l.abort()
	for _, o := range l.pending {
		o.err = l.failure()
		close(o.done)
	}
	l.pending = nil
}

// abort aborts all work of NCCL, regardless of the other ranks.
func (l *lane) abort() {
	if l.comm == 0 {
		l.comm = *l.out // from an initialization in progress
	}
	if l.comm != 0 {
		_ = l.library.CommAbort(l.comm) // ignore: a consequence of the first failure
	}
	l.comm, *l.out = 0, 0
}

// closeTimeout limits how long closing a lane waits.
const closeTimeout = 10 * time.Second

// close closes the lane. If well is false, it aborts and does not wait for other ranks. If it
// returns an error, NCCL may still use the buffers.
func (l *lane) close(well bool) error {
	l.setFailure(errClosed)
	in := l.thread.do(closeTimeout, func() {
		if !well || len(l.pending) > 0 || !l.finish() {
			l.stop()
		}
		l.free()
	})
	if !in {
		// The thread is inside NCCL or the driver, and may never return.
		return fmt.Errorf("NCCL did not release its communicator within %s", closeTimeout)
	}
	return nil
}

// finish closes NCCL's communicator without an abort, and reports whether this succeeded.
func (l *lane) finish() bool {
	if l.comm == 0 {
		return true
	}
	deadline := time.Now().Add(closeTimeout / 2)
	if err := l.library.CommFinalize(l.comm); err != nil {
		return false
	}
	for {
		busy, err := l.library.AsyncError(l.comm)
		if err != nil || busy && time.Now().After(deadline) {
			return false
		}
		if !busy {
			err = l.library.CommDestroy(l.comm)
			l.comm, *l.out = 0, 0
			return err == nil
		}
		time.Sleep(50 * time.Microsecond)
	}
}

// free frees GPU resources after NCCL's communicator is closed, and ends the thread. It
// ignores errors: they mean that the GPU and its context are lost.
func (l *lane) free() {
	if l.stream != nil {
		_ = l.stream.Close()
	}
	for _, e := range l.events { // the driver frees an event after it has happened
		_ = e.Close()
	}
	l.pins.Unpin()
	l.thread.ending = true
}
