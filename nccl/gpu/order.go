//go:build cuda

package gpu

import (
	"sync"

	"github.com/ddpbatch/ddpbatch/nccl/communicator"
	"github.com/ddpbatch/ddpbatch/trainer/cuda/driver"
)

// Order has operations of a communicator come after what a stream was given before
// they were asked for. It is for one goroutine that computes and one that communicates.
type Order struct {
	gpu    *GPU
	comm   *communicator.Comm
	stream driver.Stream

	mu     sync.Mutex
	free   []driver.Event
	before *driver.Event // of the operation before, to be used again
}

// NewOrder orders a communicator after a stream of the same GPU.
func (g *GPU) NewOrder(c *communicator.Comm, computation driver.Stream) *Order {
	return &Order{gpu: g, comm: c, stream: computation}
}

// Mark returns what has the communicator's next operation come after all that the stream
// holds now. Operations follow each other: when one is asked for, that before is done.
func (o *Order) Mark() func() error {
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
		o.comm.After(e)
		return nil
	}
}

func (o *Order) record() (e driver.Event, err error) {
	unbind, err := o.gpu.device.Bind()
	if err != nil {
		return e, err
	}
	defer unbind()
	o.mu.Lock()
	if n := len(o.free); n > 0 {
		e, o.free = o.free[n-1], o.free[:n-1]
	} else {
		e, err = driver.NewEvent(false)
	}
	o.mu.Unlock()
	if err == nil {
		err = o.stream.Record(e)
	}
	return e, err
}

// Close frees events, when no operation is under way.
func (o *Order) Close() error {
	unbind, err := o.gpu.device.Bind()
	if err != nil {
		return err
	}
	defer unbind()
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
