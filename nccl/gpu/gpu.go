//go:build cuda

package gpu

import (
	"github.com/ddpbatch/ddpbatch/nccl/communicator"
	"github.com/ddpbatch/ddpbatch/trainer/cuda/driver"
)

// A GPU implements [communicator.GPU].
type GPU struct {
	device *driver.GPU
	id     string
}

// Of returns the GPU for an open device, with the driver's information about it.
func Of(device *driver.GPU, info driver.Info) *GPU {
	id := info.UUID
	if id == "" {
		id = info.PCI
	}
	return &GPU{device, id}
}

// ID returns the GPU's UUID, or its bus address.
func (g *GPU) ID() string { return g.id }

// Use makes the GPU's context current on the calling thread, permanently.
func (g *GPU) Use() error {
	_, err := g.device.Bind() // never unbound: the thread exits
	return err
}

// NewStream returns a stream of the highest priority.
func (g *GPU) NewStream() (communicator.Stream, error) {
	_, greatest, err := driver.StreamPriorities()
	if err != nil {
		return nil, err
	}
	s, err := driver.NewStream(greatest)
	return stream{s}, err
}

// NewEvent returns an event without timing.
func (g *GPU) NewEvent() (communicator.Event, error) { return driver.NewEvent(false) }

// NewOrder returns an order that runs a communicator after a computation on the same GPU.
func (g *GPU) NewOrder(c *communicator.Comm, computation driver.Computation) *driver.Order {
	return driver.NewOrder(g.device, computation, func(e driver.Event) { c.After(e) })
}

type stream struct{ driver.Stream }

// Record implements [communicator.Stream].
func (s stream) Record(e communicator.Event) error { return s.Stream.Record(e.(driver.Event)) }

// Wait implements [communicator.Stream].
func (s stream) Wait(e communicator.Event) error { return s.Stream.Wait(e.(driver.Event)) }
