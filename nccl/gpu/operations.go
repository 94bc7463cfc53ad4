//go:build cuda

package gpu

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ddpbatch/ddpbatch/nccl/communicator"
	"github.com/ddpbatch/ddpbatch/trainer/cuda/driver"
	"github.com/ddpbatch/ddpbatch/trainer/ddp"
	"github.com/ddpbatch/ddpbatch/trainer/device"
)

// Operations runs the operations of a communicator next to a computation on the same GPU. Each side
// waits for the other on the GPU, not on the host. It implements [ddp.DeviceOperations].
type Operations struct {
	comm        *communicator.Comm
	gpu         *GPU
	computation driver.Computation
	order       *driver.Order

	// These are used on the computation's goroutine only.
	unused []driver.Event // reusable events
	events []driver.Event // all events
}

// NewOperations returns the operations of c, ordered with a computation on the GPU.
func (g *GPU) NewOperations(c *communicator.Comm, computation driver.Computation) *Operations {
	order := driver.NewOrder(g.device, computation, func(e driver.Event) { c.After(Event{e}) })
	return &Operations{comm: c, gpu: g, computation: computation, order: order}
}

// Rank implements [ddp.DeviceOperations].
func (o *Operations) Rank() int { return o.comm.Rank() }

// Size implements [ddp.DeviceOperations].
func (o *Operations) Size() int { return o.comm.Size() }

// AllReduce implements [ddp.DeviceOperations].
func (o *Operations) AllReduce(ctx context.Context, buf device.Tensor) (ddp.Work, error) {
	return o.work(o.comm.AllReduce(ctx, buf))
}

// ReduceScatter implements [ddp.DeviceOperations].
func (o *Operations) ReduceScatter(ctx context.Context, part, whole device.Tensor) (ddp.Work, error) {
	return o.work(o.comm.ReduceScatter(ctx, part, whole))
}

// AllGather implements [ddp.DeviceOperations].
func (o *Operations) AllGather(ctx context.Context, whole, part device.Tensor) (ddp.Work, error) {
	return o.work(o.comm.AllGather(ctx, whole, part))
}

// Mark makes the next operation wait for the computation so far: see [ddp.Communicator].
func (o *Operations) Mark() func() error {
	wait := o.order.Mark()
	return func() error { return o.wrap(wait()) }
}

// wrap names the GPU in an error of its driver.
func (o *Operations) wrap(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("GPU %s: %w", o.gpu.id, err)
}

// Close closes the communicator. If it returns an error, NCCL may still use the GPU's memory.
func (o *Operations) Close() error {
	err := errors.Join(o.comm.Close(), o.order.Close())
	entered, failed := o.gpu.device.Enter()
	if failed != nil {
		return errors.Join(err, failed)
	}
	defer entered.Leave()
	for _, e := range o.events {
		err = errors.Join(err, e.Close())
	}
	o.events = nil
	return err
}

func (o *Operations) work(w *communicator.Work, err error) (ddp.Work, error) {
	if err != nil {
		return nil, err
	}
	return &work{operations: o, work: w}, nil
}

// event returns an event that records the time.
func (o *Operations) event() (e driver.Event, err error) {
	if n := len(o.unused); n > 0 {
		e, o.unused = o.unused[n-1], o.unused[:n-1]
		return e, nil
	}
	if e, err = driver.NewEvent(true); err == nil {
		o.events = append(o.events, e)
	}
	return e, err
}

// work implements [ddp.Work].
type work struct {
	operations *Operations
	work       *communicator.Work
	joined     bool
	reached    driver.Event // with joined: where the computation waits for the operation
}

// Join makes the computation from now on wait for the operation, on the GPU.
func (w *work) Join() (err error) {
	o := w.operations
	defer func() { err = o.wrap(err) }()
	o.computation.Flush()
	entered, err := o.gpu.device.Enter()
	if err != nil {
		return err
	}
	defer entered.Leave()
	if w.reached, err = o.event(); err != nil {
		return err
	}
	w.joined = true
	s := o.computation.Stream()
	return errors.Join(s.Record(w.reached), s.Wait(w.work.End().(Event).Event))
}

// Wait waits on the host until the operation has ended.
func (w *work) Wait(ctx context.Context) (t ddp.WorkTimes, err error) {
	if err := w.work.Wait(ctx); err != nil {
		return t, err
	}
	t.Ended, t.Busy = w.work.Time()
	if w.joined {
		t.Exposed, err = w.exposed()
		err = w.operations.wrap(err)
		w.operations.unused = append(w.operations.unused, w.reached)
		w.joined = false
	}
	w.work.Release()
	return t, err
}

// exposed returns the time for which the computation waited for the operation, which has ended.
func (w *work) exposed() (took time.Duration, err error) {
	entered, err := w.operations.gpu.device.Enter()
	if err != nil {
		return 0, err
	}
	defer entered.Leave()
	// If the computation has not reached the operation yet, it need not wait.
	if reached, err := w.reached.Done(); err != nil || !reached {
		return 0, err
	}
	took, err = w.work.End().(Event).Event.Since(w.reached)
	return max(0, took), err
}
