//go:build cuda

package cuda

import (
	"errors"

	"github.com/ddpbatch/ddpbatch/trainer/cuda/driver"
	"github.com/ddpbatch/ddpbatch/trainer/cuda/engine"
	"github.com/ddpbatch/ddpbatch/trainer/cuda/library"
	"github.com/ddpbatch/ddpbatch/trainer/device"
)

// Open opens a GPU as a device that models are trained on, and that is an io.Closer.
// find says where a library of one of some names may be; nil is where the dynamic
// linker looks.
func Open(ordinal int, find func(names ...string) []string) (device.Device, error) {
	version, err := driver.Load()
	if err != nil {
		return nil, err
	}
	names := library.CUBLASLt(int(version) / 1000)
	if find != nil {
		names = find(names...)
	}
	gpu, err := driver.Open(ordinal)
	if err != nil {
		return nil, err
	}
	d, err := engine.Open(gpu, engine.Options{BLAS: names})
	if err != nil {
		return nil, errors.Join(err, gpu.Close())
	}
	return opened{d, gpu}, nil
}

// opened is a device with a GPU of its own.
type opened struct {
	*engine.Device
	gpu *driver.GPU
}

func (o opened) Close() error { return errors.Join(o.Device.Close(), o.gpu.Close()) }

// GPU is the GPU itself, for those who connect it with others.
func (o opened) GPU() *driver.GPU { return o.gpu }
