//go:build cuda

package driver

import "sync"

// Computation is a stream with operations that may still be held back.
type Computation interface {
	Stream() Stream
	// Flush enqueues the held-back operations in the stream.
	Flush()
}

// Order makes communication operations wait for the computation that was enqueued before them. It
// is for one goroutine that computes and another that performs operations, one at a time.
type Order struct {
	gpu         *GPU
	computation Computation
	after       func(Event)

	mu     sync.Mutex
	free   []Event
	before *Event // event of the previous operation, to be reused
}

// NewOrder orders operations after a computation on a GPU. It passes the event that the next
// operation must wait for to after.
func NewOrder(gpu *GPU, c Computation, after func(Event)) *Order {
	return &Order{gpu: gpu, computation: c, after: after}
}

// Mark records an event after all computation so far. The returned function makes the next
// operation wait for it. Operations are sequential: when one is requested, the previous one is
// done.
func (o *Order) Mark() func() error {
	o.computation.Flush()
	e, err := o.record()
	return func() error {
		if err != nil {
			return err
		}
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.before != nil {
			o.free = append(o.free, *o.before)
		}
		o.before = &e
		o.after(e)
		return nil
	}
}

func (o *Order) record() (e Event, err error) {
	entered, err := o.gpu.Enter()
	if err != nil {
		return e, err
	}
	defer entered.Leave()
	o.mu.Lock()
	if n := len(o.free); n > 0 {
		e, o.free = o.free[n-1], o.free[:n-1]
	} else {
		e, err = NewEvent(false)
	}
	o.mu.Unlock()
	if err == nil {
		err = o.computation.Stream().Record(e)
	}
	return e, err
}

// Close destroys the events. No operation may be in progress.
func (o *Order) Close() error {
	entered, err := o.gpu.Enter()
	if err != nil {
		return err
	}
	defer entered.Leave()
	if o.before != nil {
		o.free = append(o.free, *o.before)
	}
	for _, e := range o.free {
		if failed := e.Close(); err == nil {
			err = failed
		}
	}
	o.free, o.before = nil, nil
	return err
}
