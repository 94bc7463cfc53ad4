package communicator

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"
	"unsafe"

	"github.com/ddpbatch/ddpbatch/nccl/libnccl"
	"github.com/ddpbatch/ddpbatch/trainer/collective"
)

// lane is one communicator of NCCL's with a stream and a thread: its operations follow
// each other. When it is open, all that changes belongs to the thread, but for broken.
type lane struct {
	library    *libnccl.Library
	gpu        GPU
	rank, size int
	timeout    time.Duration
	thread     *thread
	failed     func(kind collective.Kind, number uint64, err error) // the first failure, from the thread
	comm       libnccl.Comm
	out        *libnccl.Comm // where NCCL writes comm
	pins       runtime.Pinner
	stream     Stream
	scratch    unsafe.Pointer

	mu     sync.Mutex
	broken error

	under  []*operation // on the stream, in its order
	events []Event      // to be used again
	looks  int
	pool   pool
}

// openLane makes all of a lane but NCCL's communicator.
func openLane(o *Options, rank, size int, failed func(collective.Kind, uint64, error)) (*lane, error) {
	l := &lane{library: o.Library, gpu: o.GPU, rank: rank, size: size, timeout: o.Timeout, failed: failed, out: new(libnccl.Comm)}
	l.pins.Pin(l.out)
	var err error
	if l.thread, err = startThread(o.GPU, l.poll); err != nil {
		return nil, fmt.Errorf("use GPU %s: %w", o.GPU.ID(), err)
	}
	l.thread.do(forever, func() {
		if l.stream, err = l.gpu.NewStream(); err == nil {
			l.scratch, err = l.gpu.Alloc(1)
		}
	})
	if err != nil {
		l.thread.do(forever, l.release)
		return nil, fmt.Errorf("prepare GPU %s: %w", o.GPU.ID(), err)
	}
	return l, nil
}

// forever bounds nothing: for what cannot wait for another rank.
const forever = time.Hour

// failure is what has ended the lane.
func (l *lane) failure() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.broken
}

// give ends the lane with an error, if nothing has ended it before.
func (l *lane) give(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.broken == nil {
		l.broken = err
	}
}

// begin has an operation be put on the stream, after all that were before. Where it
// leaves an event that is done when begin returns: nobody could wait for it before.
func (l *lane) begin(ctx context.Context, o *operation) {
	placed := make(chan struct{})
	work := func() {
		defer close(placed)
		if err := l.enqueue(ctx, o); err != nil {
			l.failed(o.call.Kind, o.number, err)
			l.under = append(l.under, o)
			l.stop()
		}
	}
	select {
	case l.thread.work <- work:
		if o.before != nil {
			<-placed
		}
	case <-l.thread.ended:
		o.err = l.failure()
		close(o.done)
	}
}

func (l *lane) enqueue(ctx context.Context, o *operation) (err error) {
	if err := l.failure(); err != nil {
		return err
	}
	if o.after != nil {
		if err := l.stream.Wait(o.after); err != nil {
			return fmt.Errorf("wait for the computation: %w", err)
		}
	}
	if o.copies != nil {
		if err := o.copies.in(l, &o.call); err != nil {
			return fmt.Errorf("copy to the GPU: %w", err)
		}
	}
	if err := l.launch(&o.call); err != nil {
		return err
	}
	if err := l.settle(ctx, time.Now().Add(l.timeout)); err != nil {
		return err
	}
	if o.copies != nil {
		if err := o.copies.out(l); err != nil {
			return fmt.Errorf("copy from the GPU: %w", err)
		}
	}
	if o.before != nil {
		if err := l.stream.Record(o.before); err != nil {
			return fmt.Errorf("mark the operation's end: %w", err)
		}
	}
	if n := len(l.events); n > 0 {
		o.event, l.events = l.events[n-1], l.events[:n-1]
	} else if o.event, err = l.gpu.NewEvent(); err != nil {
		return fmt.Errorf("make an event: %w", err)
	}
	if err := l.stream.Record(o.event); err != nil {
		return fmt.Errorf("mark the operation's end: %w", err)
	}
	l.under = append(l.under, o)
	return nil
}

// connect makes NCCL's communicator of all ranks that have id.
func (l *lane) connect(ctx context.Context, id libnccl.UniqueID, limit time.Duration) (err error) {
	in := l.thread.do(limit+patienceAtEnd, func() {
		config := libnccl.NewConfig(l.library.Version)
		if err = l.library.CommInitRank(l.out, l.size, id, l.rank, &config); err == nil {
			l.comm = *l.out
			err = l.settle(ctx, time.Now().Add(limit))
		}
		if err != nil {
			l.abort()
		}
	})
	if !in {
		return fmt.Errorf("NCCL did not return from its initialisation within %s", limit+patienceAtEnd)
	}
	return err
}

// settle waits until NCCL has done what it said it was still at.
func (l *lane) settle(ctx context.Context, deadline time.Time) error {
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
		if time.Now().After(deadline) {
			return errBusy
		}
		if pause := patience(still); pause > 0 {
			time.Sleep(pause)
		} else {
			runtime.Gosched()
		}
	}
}

// errBusy is a call of NCCL's that took too long.
var errBusy = errors.New("NCCL is still waiting for other ranks")

var errClosed = errors.New("the communicator was closed")

// poll looks after what is on the stream.
func (l *lane) poll() (progress, busy bool) {
	for len(l.under) > 0 {
		o := l.under[0]
		happened, err := o.event.Done()
		if err != nil {
			err = fmt.Errorf("GPU %s: %w", l.gpu.ID(), err)
		} else if !happened {
			if err = l.look(o); err == nil {
				return progress, true
			}
		}
		if err != nil {
			l.failed(o.call.Kind, o.number, err)
			l.stop()
			return true, false
		}
		l.events = append(l.events, o.event)
		l.under = l.under[1:]
		progress = true
		if o.copies != nil {
			o.copies.arrived(l)
		}
		close(o.done)
	}
	l.under = nil
	return progress, false
}

// look asks now and then whether the operation that the GPU is at can still end.
func (l *lane) look(o *operation) error {
	if l.looks++; l.looks%16 != 0 {
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
		if o.after != nil {
			if ready, err := o.after.Done(); err != nil || !ready {
				return err
			}
		}
		o.began = now
	}
	if now.Sub(o.began) > l.limit() {
		return hang(l.timeout)
	}
	return nil
}

// limit is the timeout with some grace: the host's communicator, which knows who is
// missing, speaks first.
func (l *lane) limit() time.Duration { return l.timeout + l.timeout/4 + 100*time.Millisecond }

// stop takes NCCL's communicator away, so that nothing works on buffers any more, and
// has all that is under way fail.
func (l *lane) stop() {
	l.abort()
	for _, o := range l.under {
		if o.event != nil {
			l.events = append(l.events, o.event)
		}
		o.err = l.failure()
		close(o.done)
	}
	l.under = nil
}

// abort has NCCL end everything, whatever the other ranks do.
func (l *lane) abort() {
	if l.comm == 0 {
		l.comm = *l.out // of an initialisation that has not ended
	}
	if l.comm != 0 {
		_ = l.library.CommAbort(l.comm) // there is a failure already, of which this is a consequence
	}
	l.comm, *l.out = 0, 0
}

// patienceAtEnd bounds what the end of a lane waits for.
const patienceAtEnd = 10 * time.Second

// close ends the lane: in order if all is well, else by an abort, which does not wait
// for other ranks. It returns when nothing uses buffers any more.
func (l *lane) close(well bool) error {
	l.give(errClosed)
	in := l.thread.do(patienceAtEnd, func() {
		if !well || len(l.under) > 0 || !l.finish() {
			l.stop()
		}
		l.release()
	})
	if !in {
		// It is inside of NCCL or the driver, and may never come back.
		return fmt.Errorf("NCCL did not let go of its communicator within %s", patienceAtEnd)
	}
	return nil
}

// finish ends NCCL's communicator without an abort, if that goes.
func (l *lane) finish() bool {
	if l.comm == 0 {
		return true
	}
	deadline := time.Now().Add(patienceAtEnd / 2)
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

// release gives back what the GPU has lent, after NCCL is gone, and ends the thread.
// An error has no one to care: the GPU is lost, and its context with it.
func (l *lane) release() {
	l.pool.release(l.gpu)
	if l.scratch != nil {
		_ = l.gpu.Free(l.scratch)
	}
	if l.stream != nil {
		_ = l.stream.Close()
	}
	for _, e := range l.events { // which have all happened: freeing memory waits
		_ = e.Close()
	}
	l.pins.Unpin()
	l.thread.ending = true
}
