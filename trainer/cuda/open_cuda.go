//go:build cuda

package cuda

import (
	"errors"

	"github.com/ddpbatch/ddpbatch/trainer/cuda/driver"
	"github.com/ddpbatch/ddpbatch/trainer/cuda/engine"
	"github.com/ddpbatch/ddpbatch/trainer/cuda/library"
	"github.com/ddpbatch/ddpbatch/trainer/device"
)

// Open opens a GPU as a training device. The device is an io.Closer. Its method Unmet() error
// returns the options that the GPU or its driver does not support, with the fallback.
func Open(ordinal int, o Options) (device.Device, error) {
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
	d, err := engine.Open(gpu, engine.Options{BLAS: names, Disabled: o.Disabled, WGMMA: o.WGMMA})
	if err != nil {
		return nil, errors.Join(err, gpu.Close())
	}
	return opened{d, gpu}, nil
}

// opened is a device that owns its GPU.
type opened struct {
	*engine.Device
	gpu *driver.GPU
}

func (o opened) Close() error { return errors.Join(o.Device.Close(), o.gpu.Close()) }

// GPU returns the GPU, to connect it with others.
func (o opened) GPU() *driver.GPU { return o.gpu }
