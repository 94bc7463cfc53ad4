//go:build cuda

package driver

import "sync"

// Computation is what operations come after: a stream, and what is held back from it.
type Computation interface {
	Stream() Stream
	// Flush gives the stream what is held back.
	Flush()
}

// Order has operations beside a computation come after what that was asked for before
// they were. It is for one goroutine that computes and one that performs operations,
// one after another.
type Order struct {
	gpu         *GPU
	computation Computation
	after       func(Event)

	mu     sync.Mutex
	free   []Event
	before *Event // of the operation before, to be used again
}

// NewOrder orders operations after a computation on a GPU: after gets the event that the next
// one must wait for.
func NewOrder(gpu *GPU, c Computation, after func(Event)) *Order {
	return &Order{gpu: gpu, computation: c, after: after}
}

// Mark returns what has the next operation come after all that the computation was asked
// for until now.
// Operations follow each other: when one is asked for, that before is done.
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

// Close frees events, when no operation is under way.
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
