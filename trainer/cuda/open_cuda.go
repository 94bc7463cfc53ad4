//go:build cuda

package cuda

import (
	"errors"

	"github.com/ddpbatch/ddpbatch/trainer/cuda/driver"
	"github.com/ddpbatch/ddpbatch/trainer/cuda/engine"
	"github.com/ddpbatch/ddpbatch/trainer/cuda/library"
	"github.com/ddpbatch/ddpbatch/trainer/device"
)

// Open opens a GPU as a training device.
func Open(ordinal int, o Options) (*GPU, error) {
	version, err := driver.Load()
	if err != nil {
		return nil, err
	}
	names := library.CUBLASLt(int(version) / 1000)
	if o.Libraries != nil {
		names = o.Libraries(names...)
	}
	gpu, err := driver.Open(ordinal)
	if err != nil {
		return nil, err
	}
	d, err := engine.Open(gpu, engine.Options{BLAS: names, Disabled: o.Disabled, Attention: o.Attention})
	if err != nil {
		return nil, errors.Join(err, gpu.Close())
	}
	return &GPU{d, gpu}, nil
}

// A GPU is a training device that owns its GPU.
type GPU struct {
	*engine.Device
	gpu *driver.GPU
}

// Accelerator returns the GPU.
func (g *GPU) Accelerator() device.Accelerator { return g }

// Close closes the device and the GPU.
func (g *GPU) Close() error { return errors.Join(g.Device.Close(), g.gpu.Close()) }

// Driver returns the driver's GPU, to connect it with others.
func (g *GPU) Driver() *driver.GPU { return g.gpu }
