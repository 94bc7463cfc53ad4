//go:build cuda

package engine

import (
	"fmt"

	"github.com/ddpbatch/ddpbatch/trainer/cuda/driver"
	"github.com/ddpbatch/ddpbatch/trainer/device"
)

// Add computes y = a + b.
func (d *Device) Add(y, a, b device.Tensor) {
	n := y.Len()
	sameLength("add", n, a.Len(), b.Len())
	if n == 0 {
		return
	}
	defer d.enter("add", n).Leave()
	d.args.Reset().Ptr(floats(y)).Ptr(floats(a)).Ptr(floats(b)).Int64(int64(n))
	d.launch("add", gridFor(n))
}

// Scale computes y = s*x.
func (d *Device) Scale(y, x device.Tensor, s float32) {
	n := y.Len()
	sameLength("scale", n, x.Len())
	if n == 0 {
		return
	}
	defer d.enter("scale", n).Leave()
	d.args.Reset().Ptr(floats(y)).Ptr(floats(x)).Float(s).Int64(int64(n))
	d.launch("scale", gridFor(n))
}

// Activate computes y = f(x).
func (d *Device) Activate(f device.Activation, y, x device.Tensor) {
	n := y.Len()
	sameLength("activate", n, x.Len())
	if n == 0 {
		return
	}
	defer d.enter("activate", n).Leave()
	d.launchActivate(f, y, x)
}

func (d *Device) launchActivate(f device.Activation, y, x device.Tensor) {
	sameType("activate", y, x)
	d.args.Reset().Ptr(stored(y)).Ptr(stored(x)).Int(activationID(f)).Int64(int64(y.Len()))
	d.launch(kernelFor(y, "activate", "activate_bf16"), gridFor(y.Len()))
}

// ActivateGrad computes dx = dy * f'(x).
func (d *Device) ActivateGrad(f device.Activation, dx, dy, x, y device.Tensor) {
	n := dx.Len()
	sameLength("activate", n, dy.Len())
	from := y
	switch f {
	case device.GELU:
		from = x
	case device.Identity:
		from = dy // not used
	}
	sameLength("activate", n, from.Len())
	if n == 0 {
		return
	}
	defer d.enter("activate_grad", n).Leave()
	d.launchActivateGrad(f, dx, dy, from)
}

func (d *Device) launchActivateGrad(f device.Activation, dx, dy, from device.Tensor) {
	sameType("activate", dx, dy, from)
	d.args.Reset().Ptr(stored(dx)).Ptr(stored(dy)).Ptr(stored(from)).Int(activationID(f)).Int64(int64(dx.Len()))
	d.launch(kernelFor(dx, "activate_grad", "activate_grad_bf16"), gridFor(dx.Len()))
}

// activationID returns the number of an activation in maths.h.
func activationID(f device.Activation) int {
	if f > device.GELU {
		panic(fmt.Sprintf("engine: unknown activation %d", f))
	}
	return int(f)
}

// dropout is struct Dropout of dropout.h.
type dropout struct {
	params            driver.Ptr
	choice            choice
	stride, perSample uint64
	threshold         uint32
	scale             float32
}

// choice holds the values that change from batch to batch.
type choice struct{ key, first uint64 }

func (d *Device) dropoutOf(o device.Dropout) dropout {
	drop := dropout{0, choice{o.Key, uint64(o.First)}, uint64(o.Stride), uint64(o.PerSample), uint32(float64(o.P) * (1 << 32)), 1 / (1 - o.P)}
	if drop.threshold == 0 {
		drop.choice = choice{} // not used
	} else {
		drop.params = graphParams(d, &drop.choice)
	}
	return drop
}

// Dropout sets random elements to zero and scales the others.
func (d *Device) Dropout(y, x device.Tensor, o device.Dropout) {
	n := y.Len()
	sameLength("drop out", n, x.Len())
	if o.PerSample < 1 || n%o.PerSample != 0 {
		panic(fmt.Sprintf("engine: dropout in samples of %d elements, of %d", o.PerSample, n))
	}
	if n == 0 {
		return
	}
	kernel := kernelFor(y, "drop_out", "drop_out_bf16")
	if x.Type() == device.Float32 {
		kernel = kernelFor(y, "drop_out", "drop_out_narrow")
	} else {
		sameType("drop out", y, x)
	}
	defer d.enter("drop_out", n).Leave()
	drop := d.dropoutOf(o)
	d.args.Reset().Ptr(stored(y)).Ptr(stored(x))
	driver.Struct(&d.args, &drop)
	d.args.Int64(int64(n))
	d.launch(kernel, gridFor(n))
}

// Cast converts between float32 and bfloat16, or from float32 to float64.
func (d *Device) Cast(dst, src device.Tensor) {
	n := dst.Len()
	sameLength("cast", n, src.Len())
	if n == 0 {
		return
	}
	name := "narrow"
	switch {
	case dst.Type() == device.BFloat16 && src.Type() == device.Float32:
	case dst.Type() == device.Float32 && src.Type() == device.BFloat16:
		name = "widen"
	case dst.Type() == device.Float64 && src.Type() == device.Float32:
		name = "widen_f64"
	default:
		panic(fmt.Sprintf("engine: cast %v to %v", src.Type(), dst.Type()))
	}
	defer d.enter(name, n).Leave()
	d.args.Reset().Ptr(at(dst)).Ptr(at(src)).Int64(int64(n))
	d.launch(name, gridFor(n))
}
