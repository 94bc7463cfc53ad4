package mpi

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"sync"
	"time"
	"unsafe"

	"github.com/ddpbatch/ddpbatch/trainer/collective"
	"github.com/ddpbatch/ddpbatch/trainer/collective/element"
	"github.com/ddpbatch/ddpbatch/trainer/collective/internal/sched"
	"github.com/ddpbatch/ddpbatch/trainer/collective/mpi/libmpi"
)

// process is the state of MPI in this process.
type process struct {
	lib     *libmpi.Library
	timeout time.Duration
	memory  arena
	hosts   []string
	maxTag  int
	// allRanks holds all ranks.
	allRanks []int
	halves   [2][]libmpi.Handle // reductions of bfloat16 and float16, by element.Op

	end      chan chan error // makes the thread that initialized MPI finalize it
	finalize func() error    // calls finalizeOnce once

	// mu serializes calls of MPI and guards the fields below.
	mu         sync.Mutex
	comm       libmpi.Handle // this package's duplicate of MPI_COMM_WORLD
	rank, size int
	notes      notes
	broken     *collective.Error
	ended      bool // the communicator of all ranks is closed
	finalizing bool // MPI_Finalize has been called: no further MPI call is allowed
}

// start initializes MPI on a dedicated thread, which is retained to finalize it.
func (p *process) start(ctx context.Context) error {
	ready := make(chan error, 1)
	p.end = make(chan chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: this is MPI's main thread
		err := p.initialize()
		ready <- err
		if err == nil {
			result := <-p.end
			// Call it without the mutex: it may never return, but Close must.
			p.mu.Lock()
			p.finalizing = true
			p.mu.Unlock()
			result <- p.lib.Finalize()
		}
	}()
	select {
	case err := <-ready:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// initialize initializes MPI and duplicates the communicator of all ranks, once for operations and once
// for notes.
func (p *process) initialize() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	provided, err := p.lib.Init()
	if err != nil {
		return err
	}
	if !libmpi.Serialized(provided) {
		return fmt.Errorf("its thread support level is %d, below MPI_THREAD_SERIALIZED", provided)
	}
	world := p.lib.World()
	if p.rank, err = p.lib.CommRank(world); err != nil {
		return err
	}
	if p.size, err = p.lib.CommSize(world); err != nil {
		return err
	}
	if p.maxTag, err = p.lib.MaxTag(world); err != nil {
		return err
	}
	if p.comm, err = p.copyOf(world); err != nil {
		return err
	}
	if p.notes.comm, err = p.copyOf(world); err != nil {
		return err
	}
	return p.makeHalves()
}

// copyOf duplicates a communicator and makes its errors returned.
func (p *process) copyOf(c libmpi.Handle) (libmpi.Handle, error) {
	own, err := p.lib.CommDup(c)
	if err != nil {
		return 0, err
	}
	return own, p.lib.CommSetErrorsReturn(own)
}

// makeHalves creates reductions for the types that MPI does not have.
func (p *process) makeHalves() error {
	for i, t := range []element.Type{element.BFloat16, element.Float16} {
		p.halves[i] = make([]libmpi.Handle, len(element.Ops())+1)
		for _, o := range element.Ops() {
			var err error
			p.halves[i][o], err = p.lib.OpCreate(func(in, inout unsafe.Pointer, count int) {
				a, b := unsafe.Slice((*byte)(in), count*t.Size()), unsafe.Slice((*byte)(inout), count*t.Size())
				o.Combine(t, b, a, b)
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

const (
	// spins is the number of polls of a request before wait yields the core after each poll.
	spins = 200
	// noteEvery is the number of polls after which wait reads the notes of other ranks.
	noteEvery = 64
	// drainTimeout limits how long a rank waits for messages in transit when an operation fails or a
	// communicator closes. Some waits use only a part of it.
	drainTimeout = time.Second
)

// After spinTime, the awaited rank is unlikely to arrive soon: the waiting rank sleeps for
// pollInterval between two polls, and computation gets the core.
const (
	spinTime     = 2 * time.Millisecond
	pollInterval = 50 * time.Microsecond
)

// waiting is a request with the conditions under which it fails.
type waiting struct {
	request *libmpi.Handle
	// failureReason returns the reason why the request cannot finish, or nil. It is called with the
	// mutex held.
	failureReason func() error
	// awaitsRanks is set if the request depends on ranks that may not have arrived. Otherwise they have
	// arrived, and the transfer progresses only while it is polled.
	awaitsRanks bool
}

// wait polls a request until it finishes, ctx ends, or it cannot finish.
func (p *process) wait(ctx context.Context, w waiting) error {
	var since time.Time
	for looks := 1; ; looks++ {
		p.mu.Lock()
		done, err := p.test(w.request)
		if err == nil && !done && looks%noteEvery == 0 {
			if err = p.readNotes(); err == nil {
				err = w.failureReason()
			}
		}
		p.mu.Unlock()
		if done || err != nil {
			return err
		}
		if looks <= spins {
			continue
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		// Other goroutines run first, then other processes.
		runtime.Gosched()
		sched.Yield()
		if since.IsZero() {
			since = time.Now()
		}
		if w.awaitsRanks && time.Since(since) > spinTime {
			time.Sleep(pollInterval)
		}
	}
}

// test reports whether a request has finished. The caller holds the mutex.
func (p *process) test(request *libmpi.Handle) (bool, error) {
	if p.finalizing {
		return false, net.ErrClosed
	}
	return p.lib.Test(request)
}

// finalizeTimeout limits MPI_Finalize. All ranks have closed when it is called, so a process loses
// nothing if it exits without it. MPICH's MPI_Finalize (found in 4.0.2 with UCX 1.13) may never
// return over TCP: each rank flushes its connections, which the other rank must poll, and then
// waits for the launcher without polling. A late rank then flushes without success.
const finalizeTimeout = 5 * time.Second

// finalizeOnce finalizes MPI after every rank has closed. It waits for the ranks, because a launcher
// may stop all ranks when one exits without MPI_Finalize, and one of them may still save. Its
// errors are for the log: the process can exit.
func (p *process) finalizeOnce() error {
	if p.failed() != nil {
		return nil
	}
	if err := p.awaitClosed(); err != nil {
		return fmt.Errorf("end without MPI_Finalize: %w", err)
	}
	result := make(chan error, 1)
	p.end <- result
	select {
	case err := <-result:
		return err
	case <-time.After(finalizeTimeout):
		return fmt.Errorf("end without MPI_Finalize, which did not return within %s", finalizeTimeout)
	}
}

// awaitClosed waits until all ranks have sent their close notes, then stops receiving notes. A
// failed rank never closes.
func (p *process) awaitClosed() error {
	for end := time.Now().Add(p.timeout); ; time.Sleep(100 * time.Microsecond) {
		missing, err := p.pollClosed()
		if err != nil || missing < 0 {
			return err
		}
		if time.Now().After(end) {
			return fmt.Errorf("rank %d (%s) did not close within %s", missing, p.hosts[missing], p.timeout)
		}
	}
}

// pollClosed reads notes and returns a rank that has not closed. It returns -1 if all have
// closed; then no more notes arrive.
func (p *process) pollClosed() (missing int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.readNotes(); err != nil {
		return 0, err
	}
	if p.notes.abort != nil {
		return 0, p.notes.abort
	}
	missing = p.notes.firstOpen(0, p.size, p.rank)
	if missing < 0 {
		err = p.stopNotes()
	}
	return missing, err
}

// failed returns the failure of this process, or nil.
func (p *process) failed() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.broken == nil {
		return nil
	}
	return p.broken
}

var errCommunicatorClosed = errors.New("that rank has closed its communicator")
