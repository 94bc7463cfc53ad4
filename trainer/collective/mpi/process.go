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

// process is MPI in this process.
type process struct {
	lib     *libmpi.Library
	timeout time.Duration
	memory  arena
	hosts   []string
	maxTag  int
	// everyone is all ranks.
	everyone []int
	halves   [2][]libmpi.Handle // reductions of bfloat16 and float16, by element.Op

	// end asks the thread that initialised MPI to finalise it, once.
	end      chan chan error
	once     sync.Once
	endError error

	// mu makes calls of MPI one at a time, and guards what follows.
	mu         sync.Mutex
	comm       libmpi.Handle // a copy of MPI_COMM_WORLD: this package's own
	rank, size int
	notes      notes
	broken     *collective.Error
	ended      bool // the communicator of all is closed
	finalizing bool // MPI_Finalize has begun: MPI must not be called any more
}

// start initialises MPI on a thread of its own, which is kept for its end.
func (p *process) start(ctx context.Context) error {
	ready := make(chan error, 1)
	p.end = make(chan chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread is MPI's main one
		err := p.initialise()
		ready <- err
		if err == nil {
			over := <-p.end
			// Not with the mutex held: it may never return, and Close must.
			p.mu.Lock()
			p.finalizing = true
			p.mu.Unlock()
			over <- p.lib.Finalize()
		}
	}()
	select {
	case err := <-ready:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (p *process) initialise() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	provided, err := p.lib.Init()
	if err != nil {
		return err
	}
	if !libmpi.Serialized(provided) {
		return fmt.Errorf("it grants threads level %d only, not MPI_THREAD_SERIALIZED", provided)
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

// copyOf makes a communicator of the same ranks whose errors are returned.
func (p *process) copyOf(c libmpi.Handle) (libmpi.Handle, error) {
	own, err := p.lib.CommDup(c)
	if err != nil {
		return 0, err
	}
	return own, p.lib.CommSetErrorsReturn(own)
}

// makeHalves makes reductions of the types that MPI does not have.
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

// How a request is waited for: so many looks at once, then the core is left to others
// after each; every so many looks the notes of other ranks are read.
const (
	spins      = 200
	noteEvery  = 64
	settleTime = time.Second
)

// A rank that is waited for longer than patience is not about to come: whoever waits
// sleeps between two looks, and computation gets the core.
const (
	patience = 2 * time.Millisecond
	nap      = 50 * time.Microsecond
)

// waiting is a request and what may become of it.
type waiting struct {
	request *libmpi.Handle
	// trouble is why the request never will be over. It is asked with the mutex held.
	trouble func() error
	// others is that the request depends on other ranks coming; else they are there,
	// and the transfer moves only when it is looked at.
	others bool
}

// wait polls a request until it is over, ctx ends, or there is trouble.
func (p *process) wait(ctx context.Context, w waiting) error {
	var since time.Time
	for looks := 1; ; looks++ {
		p.mu.Lock()
		done, err := p.test(w.request)
		if err == nil && !done && looks%noteEvery == 0 {
			if err = p.readNotes(); err == nil {
				err = w.trouble()
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
		// Other goroutines first, then other processes.
		runtime.Gosched()
		sched.Yield()
		if since.IsZero() {
			since = time.Now()
		}
		if w.others && time.Since(since) > patience {
			time.Sleep(nap)
		}
	}
}

// test looks whether a request is over. The mutex is held.
func (p *process) test(request *libmpi.Handle) (bool, error) {
	if p.finalizing {
		return false, net.ErrClosed
	}
	return p.lib.Test(request)
}

// endTime bounds MPI_Finalize. When it is called all ranks have closed, so that nothing is
// at stake if a process ends without it. MPICH's (seen in 4.0.2 with UCX 1.13) may never
// return over TCP: each rank flushes its connections, for which the other must look at
// them, and then waits for the launcher without looking; a rank that is late then flushes
// in vain.
const endTime = 5 * time.Second

// finalize ends MPI after every rank has said that it closes. It waits for those: a
// launcher may end all ranks when one leaves without MPI_Finalize, and one of them may
// still be saving. Its errors are for the log: the process can end.
func (p *process) finalize() error {
	p.once.Do(func() { p.endError = p.finalizeOnce() })
	return p.endError
}

func (p *process) finalizeOnce() error {
	if p.failed() != nil {
		return nil
	}
	if err := p.awaitClosed(); err != nil {
		return fmt.Errorf("end without MPI_Finalize: %w", err)
	}
	over := make(chan error, 1)
	p.end <- over
	select {
	case err := <-over:
		return err
	case <-time.After(endTime):
		return fmt.Errorf("end without MPI_Finalize, which did not return within %s", endTime)
	}
}

// awaitClosed waits for the notes of all ranks that they close, and stops to receive
// notes. A rank that gives up never closes.
func (p *process) awaitClosed() error {
	for end := time.Now().Add(p.timeout); ; time.Sleep(100 * time.Microsecond) {
		missing, err := p.lookForClosed()
		if err != nil || missing < 0 {
			return err
		}
		if time.Now().After(end) {
			return fmt.Errorf("rank %d (%s) did not close within %s", missing, p.hosts[missing], p.timeout)
		}
	}
}

// lookForClosed reads notes and returns a rank that has not closed; -1 if all have, and
// then no more notes come.
func (p *process) lookForClosed() (missing int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.readNotes(); err != nil {
		return 0, err
	}
	if p.notes.told != nil {
		return 0, p.notes.told
	}
	missing = p.notes.open(0, p.size, p.rank)
	if missing < 0 {
		err = p.stopNotes()
	}
	return missing, err
}

// failed is the failure of this process, nil if there is none.
func (p *process) failed() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.broken == nil {
		return nil
	}
	return p.broken
}

var errEnded = errors.New("that rank has closed its communicator")
