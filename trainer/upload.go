package trainer

import (
	"github.com/ddpbatch/ddpbatch/trainer/data"
	"github.com/ddpbatch/ddpbatch/trainer/device"
	"github.com/ddpbatch/ddpbatch/trainer/nn"
)

// uploaded is a device's memory for batches, where it is not the host's.
type uploaded struct{ x, tokens, labels, targets device.Tensor }

// batch is n samples where a model takes them. Those of a device of its own memory
// replace the ones before, in order with what is computed of these; there is room for
// most samples.
func (u *uploaded) batch(d device.Device, b data.Batch, n, most int) nn.Batch {
	if d.Host() {
		return nn.Batch{Samples: n, X: device.Host(b.X), Tokens: device.HostInts(b.Tokens), Labels: device.HostInts(b.Labels), Targets: device.Host(b.Targets)}
	}
	room := func(t *device.Tensor, kind device.Type, elements int) device.Tensor {
		if t.Len() < elements {
			*t = d.Alloc(kind, elements/n*most)
		}
		return t.Slice(0, elements)
	}
	floats := func(t *device.Tensor, v []float32) device.Tensor {
		to := room(t, device.Float32, len(v))
		d.Write(to, v)
		return to
	}
	ints := func(t *device.Tensor, v []int32) device.Tensor {
		to := room(t, device.Int32, len(v))
		d.WriteInts(to, v)
		return to
	}
	return nn.Batch{Samples: n, X: floats(&u.x, b.X), Tokens: ints(&u.tokens, b.Tokens), Labels: ints(&u.labels, b.Labels), Targets: floats(&u.targets, b.Targets)}
}
