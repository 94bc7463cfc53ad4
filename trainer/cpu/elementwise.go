package cpu

import (
	"fmt"

	"github.com/ddpbatch/ddpbatch/trainer/device"
	"github.com/ddpbatch/ddpbatch/trainer/vec"
)

// elementwise is an operation on tensors of equal length, divided among threads at cache lines.
type elementwise struct {
	unit    *vec.Unit
	do      func(j *elementwise, first, end int)
	n       int
	y, a, b []float32
	halves  []uint16
	dropout device.Dropout
	scale   float32
}

func (j *elementwise) part(thread, threads int) {
	first, end := share(j.n, grain, thread, threads)
	j.do(j, first, end)
}

// run runs an operation on n elements.
func (j *elementwise) run(p *pool, n int, do func(j *elementwise, first, end int)) {
	j.n, j.do = n, do
	p.do(j, (n+grain-1)/grain, n)
	j.y, j.a, j.b, j.halves = nil, nil, nil, nil
}

// Add computes y = a + b.
func (d *Device) Add(y, a, b device.Tensor) {
	sameLength("add", y.Len(), a.Len(), b.Len())
	j := &d.elementwise
	j.y, j.a, j.b = y.Floats(), a.Floats(), b.Floats()
	j.run(&d.pool, y.Len(), addPart)
}

func addPart(j *elementwise, first, end int) {
	j.unit.Add(j.y[first:end], j.a[first:end], j.b[first:end])
}

// Scale computes y = s*x.
func (d *Device) Scale(y, x device.Tensor, s float32) {
	sameLength("scale", y.Len(), x.Len())
	j := &d.elementwise
	j.y, j.a, j.scale = y.Floats(), x.Floats(), s
	j.run(&d.pool, y.Len(), scalePart)
}

func scalePart(j *elementwise, first, end int) {
	j.unit.Scale(j.y[first:end], j.a[first:end], j.scale)
}

// Activate computes y = f(x).
func (d *Device) Activate(f device.Activation, y, x device.Tensor) {
	sameLength("activate", y.Len(), x.Len())
	j := &d.elementwise
	j.y, j.a = y.Floats(), x.Floats()
	j.run(&d.pool, y.Len(), activation(f).value)
}

// ActivateGrad computes dx = dy * f'(x).
func (d *Device) ActivateGrad(f device.Activation, dx, dy, x, y device.Tensor) {
	sameLength("activate", dx.Len(), dy.Len())
	from := y
	if f == device.GELU {
		from = x
	}
	j := &d.elementwise
	j.y, j.a = dx.Floats(), dy.Floats()
	if f != device.Identity {
		sameLength("activate", dx.Len(), from.Len())
		j.b = from.Floats()
	}
	j.run(&d.pool, dx.Len(), activation(f).grad)
}

// activation returns the functions that compute a part of an activation and of its gradient.
func activation(f device.Activation) (parts struct {
	value, grad func(j *elementwise, first, end int)
}) {
	switch f {
	case device.Identity:
		parts.value = func(j *elementwise, first, end int) { copy(j.y[first:end], j.a[first:end]) }
		parts.grad = parts.value
	case device.ReLU:
		parts.value = func(j *elementwise, first, end int) { j.unit.ReLU(j.y[first:end], j.a[first:end]) }
		parts.grad = func(j *elementwise, first, end int) { j.unit.ReLUGrad(j.y[first:end], j.a[first:end], j.b[first:end]) }
	case device.Tanh:
		parts.value = func(j *elementwise, first, end int) { j.unit.Tanh(j.y[first:end], j.a[first:end]) }
		parts.grad = func(j *elementwise, first, end int) { j.unit.TanhGrad(j.y[first:end], j.a[first:end], j.b[first:end]) }
	case device.GELU:
		parts.value = func(j *elementwise, first, end int) { j.unit.GELU(j.y[first:end], j.a[first:end]) }
		parts.grad = func(j *elementwise, first, end int) { j.unit.GELUGrad(j.y[first:end], j.a[first:end], j.b[first:end]) }
	default:
		panic(fmt.Sprintf("cpu: unknown activation %d", f))
	}
	return parts
}

// Dropout sets random elements to zero and scales the others.
func (d *Device) Dropout(y, x device.Tensor, o device.Dropout) {
	sameLength("drop out", y.Len(), x.Len())
	if o.PerSample < 1 || y.Len()%o.PerSample != 0 {
		panic(fmt.Sprintf("cpu: dropout in samples of %d elements, of %d", o.PerSample, y.Len()))
	}
	j := &d.elementwise
	j.y, j.a, j.dropout = y.Floats(), x.Floats(), o
	j.run(&d.pool, y.Len(), dropoutPart)
}

func dropoutPart(j *elementwise, first, end int) {
	for first < end {
		sample, in := first/j.dropout.PerSample, first%j.dropout.PerSample
		n := min(end-first, j.dropout.PerSample-in)
		drop(j.unit, j.y[first:first+n], j.a[first:first+n], j.dropout, sample, in)
		first += n
	}
}

// drop applies dropout to elements of a local sample, starting at its element at.
func drop(u *vec.Unit, y, x []float32, o device.Dropout, sample, at int) {
	number := uint64(o.First+sample*o.Stride)*uint64(o.PerSample) + uint64(at)
	u.Dropout(y, x, 1/(1-o.P), uint32(float64(o.P)*(1<<32)), o.Key, number)
}

// Cast converts between float32 and bfloat16, or from float32 to float64.
func (d *Device) Cast(dst, src device.Tensor) {
	sameLength("cast", dst.Len(), src.Len())
	j := &d.elementwise
	switch {
	case dst.Type() == device.BFloat16 && src.Type() == device.Float32:
		j.halves, j.a = dst.Halves(), src.Floats()
		j.run(&d.pool, dst.Len(), roundPart)
	case dst.Type() == device.Float32 && src.Type() == device.BFloat16:
		j.y, j.halves = dst.Floats(), src.Halves()
		j.run(&d.pool, dst.Len(), widenPart)
	case dst.Type() == device.Float64 && src.Type() == device.Float32: // only scalars: threads would not help
		to := dst.Doubles()
		for i, v := range src.Floats() {
			to[i] = float64(v)
		}
	default:
		panic(fmt.Sprintf("cpu: cast %v to %v", src.Type(), dst.Type()))
	}
}

func roundPart(j *elementwise, first, end int) { j.unit.RoundBF16(j.halves[first:end], j.a[first:end]) }
func widenPart(j *elementwise, first, end int) { j.unit.WidenBF16(j.y[first:end], j.halves[first:end]) }
