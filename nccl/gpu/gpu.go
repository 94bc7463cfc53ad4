//go:build cuda

package gpu

import (
	"unsafe"

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

// Alloc allocates memory of the GPU.
func (g *GPU) Alloc(bytes int) (unsafe.Pointer, error) {
	p, err := driver.Alloc(int64(bytes))
	return *(*unsafe.Pointer)(unsafe.Pointer(&p)), err
}

// Free frees memory from Alloc.
func (g *GPU) Free(p unsafe.Pointer) error { return driver.Free(address(p)) }

// AllocHost allocates pinned memory.
func (g *GPU) AllocHost(bytes int) (communicator.Host, error) { return driver.AllocHost(int64(bytes)) }

// NewOrder returns an order that runs a communicator after a computation on the same GPU.
func (g *GPU) NewOrder(c *communicator.Comm, computation driver.Computation) *driver.Order {
	return driver.NewOrder(g.device, computation, func(e driver.Event) { c.After(e) })
}

func address(p unsafe.Pointer) driver.Ptr { return driver.Ptr(uintptr(p)) }

type stream struct{ driver.Stream }

// Record implements [communicator.Stream].
func (s stream) Record(e communicator.Event) error { return s.Stream.Record(e.(driver.Event)) }

// Wait implements [communicator.Stream].
func (s stream) Wait(e communicator.Event) error { return s.Stream.Wait(e.(driver.Event)) }

// Upload implements [communicator.Stream].
func (s stream) Upload(dst unsafe.Pointer, src communicator.Host, bytes int) error {
	return s.Stream.Upload(address(dst), src.(driver.Host).Part(0, int64(bytes)))
}

// Download implements [communicator.Stream].
func (s stream) Download(dst communicator.Host, src unsafe.Pointer, bytes int) error {
	return s.Stream.Download(dst.(driver.Host).Part(0, int64(bytes)), address(src))
}
