package nn

import (
	"testing"

	"github.com/ddpbatch/ddpbatch/trainer/cpu"
	"github.com/ddpbatch/ddpbatch/trainer/device"
)

// checked is a part of a model. Its outputs and gradients are compared with a float64
// implementation. The loss is the sum of its outputs, each times a fixed factor.
type checked struct {
	rows, in, out int
	params        []*Param
	plan          func(Plan)
	forward       func(y, x device.Matrix, pass Pass)
	backward      func(dx, dy, x, y device.Matrix, pass Pass) // including parameter gradients
	reference     func(x []float64, params [][]float64) []float64
}

// placeRandom allocates parameters and sets random values, which it also returns in float64.
func placeRandom(m device.Memory, params []*Param) (wide [][]float64) {
	AllocValues(m, params)
	AllocGrads(m, params)
	for i, p := range params {
		m.Write(p.Data, fill(p.Len(), uint64(30+i)))
		wide = append(wide, widen(get(m, p.Data)))
	}
	return wide
}

func (c checked) run(t *testing.T, d device.Device, pass Pass) {
	t.Helper()
	params := placeRandom(d, c.params)
	c.plan(Plan{Device: d, Batch: c.rows, Train: true, rows: c.rows})
	x, dy := fill(c.rows*c.in, 1), fill(c.rows*c.out, 2)
	x64 := widen(x)
	loss := func() (sum float64) {
		for i, v := range c.reference(x64, params) {
			sum += float64(dy[i]) * v
		}
		return sum
	}
	rows := func(v []float32) device.Matrix { return device.Rows(put(d, v), c.rows, len(v)/c.rows) }
	in, out, grad, dx := rows(x), rows(make([]float32, c.rows*c.out)), rows(dy), rows(make([]float32, c.rows*c.in))
	c.forward(out, in, pass)
	var want []float32
	for _, v := range c.reference(x64, params) {
		want = append(want, float32(v))
	}
	checkClose(t, "output", get(d, out.Data), want, 1e-6)
	c.backward(dx, grad, in, out, pass)
	for i, p := range c.params {
		checkGradient(t, p.Name, get(d, p.Grad), params[i], loss)
	}
	checkGradient(t, "input", get(d, dx.Data), x64, loss)
}

// checkedLayer returns the check of a Sequential's layer.
func checkedLayer(d device.Device, l Layer, in, rows int, pass Pass) checked {
	p := 0.0
	if drop, ok := l.(*dropout); ok {
		p = float64(drop.p)
	}
	mask := masks(d, p, pass)
	return checked{
		rows: rows, in: in, out: l.Width(), params: l.Params(), plan: l.Plan, forward: l.Forward,
		backward: func(dx, dy, x, y device.Matrix, pass Pass) {
			for i := range l.Params() {
				l.Gradient(i, dy, x, pass)
			}
			l.Backward(dx, dy, x, y, pass)
		},
		reference: func(x []float64, params [][]float64) []float64 { return layer64(l, x, params, mask) },
	}
}

// TestLayerGradients compares outputs and gradients of each kind of layer with float64 and finite
// differences.
func TestLayerGradients(t *testing.T) {
	image := device.ConvolutionShape{In: 2, Out: 3, Height: 5, Width: 4, Kernel: 3, Padding: 1}
	wide := device.ConvolutionShape{In: 1, Out: 2, Height: 6, Width: 5, Kernel: 5, Padding: 2}
	bare := device.ConvolutionShape{In: 3, Out: 1, Height: 4, Width: 5, Kernel: 2}
	for _, c := range []struct {
		name  string
		layer Layer
		in    int
	}{
		{"linear", newLinear("", 5, 4), 5},
		{"linear to one", newLinear("", 19, 1), 19},
		{"transposed linear", newConv1D("", 5, 4), 5},
		{"relu", &activation{width: 6, f: device.ReLU}, 6},
		{"tanh", &activation{width: 6, f: device.Tanh}, 6},
		{"gelu", &activation{width: 6, f: device.GELU}, 6},
		{"dropout", &dropout{width: 9, p: 0.4, site: 3}, 9},
		{"convolution", newConvolution("", image), 40},
		{"convolution with kernel 5", newConvolution("", wide), 30},
		{"convolution without padding", newConvolution("", bare), 60},
		{"max pool", &maxPool{shape: device.PoolShape{Channels: 2, Height: 4, Width: 6, Size: 2}}, 48},
		{"max pool of odd images", &maxPool{shape: device.PoolShape{Channels: 3, Height: 5, Width: 3, Size: 2}}, 45},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, rows := range []int{1, 3, 7} {
				d, pass := cpu.New(1), Pass{Train: true, Weight: 1, Seed: 11, First: 2, Stride: 3}
				checkedLayer(d, c.layer, c.in, rows, pass).run(t, d, pass)
			}
		})
	}
}

// TestLayerGradientsAccumulate checks that a layer's gradient depends only on its arguments and is
// added to the existing value with Accumulate.
func TestLayerGradientsAccumulate(t *testing.T) {
	image := device.ConvolutionShape{In: 2, Out: 3, Height: 5, Width: 4, Kernel: 3, Padding: 1}
	for name, l := range map[string]Layer{"linear": newLinear("", 40, 7), "transposed linear": newConv1D("", 40, 7), "convolution": newConvolution("", image)} {
		d := cpu.New(1)
		placeRandom(d, l.Params())
		l.Plan(Plan{Device: d, Batch: 3, Train: true, rows: 3})
		x, dy := device.Rows(put(d, fill(120, 1)), 3, 40), device.Rows(put(d, fill(3*l.Width(), 2)), 3, l.Width())
		for i, p := range l.Params() {
			l.Gradient(i, dy, x, Pass{Train: true, Weight: 1})
			want := get(d, p.Grad)
			start := fill(p.Len(), 3)
			for k, v := range start {
				want[k] += v
			}
			d.Write(p.Grad, start)
			l.Gradient(i, dy, x, Pass{Train: true, Weight: 1, Accumulate: true})
			checkClose(t, name+" "+p.Name, get(d, p.Grad), want, 1e-6)
		}
	}
}
