package trainer

import (
	"github.com/ddpbatch/ddpbatch/trainer/data"
	"github.com/ddpbatch/ddpbatch/trainer/device"
	"github.com/ddpbatch/ddpbatch/trainer/nn"
)

// deviceBatch is device memory for batches, if the device does not use host memory.
type deviceBatch struct{ x, tokens, labels, targets device.Tensor }

// upload returns n samples in memory of the device. On a device with its own memory, they overwrite
// the previous batch after its computation. The memory has space for maxSamples samples.
func (u *deviceBatch) upload(d device.Device, b data.Batch, n, maxSamples int) nn.Batch {
	if d.Host() {
		return nn.Batch{Samples: n, X: device.Host(b.X), Tokens: device.HostInts(b.Tokens), Labels: device.HostInts(b.Labels), Targets: device.Host(b.Targets)}
	}
	alloc := func(t *device.Tensor, kind device.Type, elements int) device.Tensor {
		if t.Len() < elements {
			*t = d.Alloc(kind, elements/n*maxSamples)
		}
		return t.Slice(0, elements)
	}
	floats := func(t *device.Tensor, v []float32) device.Tensor {
		to := alloc(t, device.Float32, len(v))
		d.Write(to, v)
		return to
	}
	ints := func(t *device.Tensor, v []int32) device.Tensor {
		to := alloc(t, device.Int32, len(v))
		d.WriteInts(to, v)
		return to
	}
	return nn.Batch{Samples: n, X: floats(&u.x, b.X), Tokens: ints(&u.tokens, b.Tokens), Labels: ints(&u.labels, b.Labels), Targets: floats(&u.targets, b.Targets)}
}
