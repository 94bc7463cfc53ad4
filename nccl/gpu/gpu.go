//go:build cuda

package gpu

import (
	"time"

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

// NewEvent returns an event that records the time.
func (g *GPU) NewEvent() (communicator.Event, error) {
	e, err := driver.NewEvent(true)
	return Event{e}, err
}

// Event implements [communicator.Event].
type Event struct{ driver.Event }

// Since implements [communicator.Event].
func (e Event) Since(start communicator.Event) (time.Duration, error) {
	return e.Event.Since(start.(Event).Event)
}

// stream implements [communicator.Stream].
type stream struct{ driver.Stream }

// Record implements [communicator.Stream].
func (s stream) Record(e communicator.Event) error { return s.Stream.Record(e.(Event).Event) }

// Wait implements [communicator.Stream].
func (s stream) Wait(e communicator.Event) error { return s.Stream.Wait(e.(Event).Event) }
