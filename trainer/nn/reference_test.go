package nn

import (
	"math"

	"github.com/ddpbatch/ddpbatch/trainer/device"
)

// The layers in float64, written like their definitions.

// masks returns the factors of elements at each dropout site: 0 or 1/(1-p). It uses the device's
// masks, which package device/conformance checks.
func masks(d device.Device, p float64, pass Pass) func(site uint64, samples, perSample int) []float64 {
	known := map[uint64][]float64{}
	return func(site uint64, samples, perSample int) []float64 {
		if known[site] == nil {
			ones := d.Alloc(device.Float32, samples*perSample)
			device.Fill(d, ones, func(v []float32) {
				for i := range v {
					v[i] = 1
				}
			})
			if p > 0 {
				d.Dropout(ones, ones, pass.dropout(float32(p), site, perSample))
			}
			known[site] = widen(get(d, ones))
		}
		return known[site]
	}
}

func times64(x, mask []float64) []float64 {
	y := make([]float64, len(x))
	for i, v := range x {
		y[i] = v * mask[i]
	}
	return y
}

func plus64(a, b []float64) []float64 {
	y := make([]float64, len(a))
	for i, v := range a {
		y[i] = v + b[i]
	}
	return y
}

// layer64 computes a layer of a Sequential for the rows of x.
func layer64(l Layer, x []float64, params [][]float64, mask func(site uint64, samples, perSample int) []float64) []float64 {
	switch l := l.(type) {
	case *linear:
		return linear64(l, x, params[0], params[1])
	case *activation:
		return activate64(l.f, x)
	case *dropout:
		return times64(x, mask(l.site, len(x)/l.width, l.width))
	case *convolution:
		return convolve64(l.shape, x, params[0], params[1])
	case *maxPool:
		return pool64(l.shape, x)
	case *flatten:
		return x
	}
	panic("no reference for this layer")
}

// sequential64 computes all layers of a model.
func sequential64(m *Sequential, x []float64, params [][]float64, mask func(site uint64, samples, perSample int) []float64) []float64 {
	for _, l := range m.layers {
		n := len(l.Params())
		x = layer64(l, x, params[:n], mask)
		params = params[n:]
	}
	return x
}

func linear64(l *linear, x, w, b []float64) []float64 {
	rows := len(x) / l.in
	y := make([]float64, rows*l.out)
	for i := range y {
		row, o := i/l.out, i%l.out
		y[i] = b[o]
		for k, v := range x[row*l.in : (row+1)*l.in] {
			if l.transposed {
				y[i] += v * w[k*l.out+o]
			} else {
				y[i] += v * w[o*l.in+k]
			}
		}
	}
	return y
}

func activate64(f device.Activation, x []float64) []float64 {
	y := make([]float64, len(x))
	for i, v := range x {
		switch f {
		case device.ReLU:
			y[i] = max(v, 0)
		case device.Tanh:
			y[i] = math.Tanh(v)
		case device.GELU:
			y[i] = v / 2 * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(v+0.044715*v*v*v)))
		default:
			panic("no reference for this activation")
		}
	}
	return y
}

func convolve64(s device.ConvolutionShape, x, w, b []float64) []float64 {
	images := len(x) / (s.In * s.Height * s.Width)
	var y []float64
	for image := range images {
		for o := range s.Out {
			for row := range s.OutHeight() {
				for col := range s.OutWidth() {
					sum := b[o]
					for k := range s.In * s.Kernel * s.Kernel {
						in, r, c := k/s.Kernel/s.Kernel, row+k/s.Kernel%s.Kernel-s.Padding, col+k%s.Kernel-s.Padding
						if r >= 0 && r < s.Height && c >= 0 && c < s.Width {
							sum += x[((image*s.In+in)*s.Height+r)*s.Width+c] * w[o*s.In*s.Kernel*s.Kernel+k]
						}
					}
					y = append(y, sum)
				}
			}
		}
	}
	return y
}

func pool64(s device.PoolShape, x []float64) []float64 {
	var y []float64
	for plane := range len(x) / (s.Height * s.Width) {
		for row := range s.OutHeight() {
			for col := range s.OutWidth() {
				most := math.Inf(-1)
				for k := range s.Size * s.Size {
					most = max(most, x[(plane*s.Height+row*s.Size+k/s.Size)*s.Width+col*s.Size+k%s.Size])
				}
				y = append(y, most)
			}
		}
	}
	return y
}

// crossEntropy64 computes F.cross_entropy.
func crossEntropy64(logits []float64, labels []int32) float64 {
	classes := len(logits) / len(labels)
	loss := 0.0
	for i, label := range labels {
		sum := 0.0
		for _, v := range logits[i*classes : (i+1)*classes] {
			sum += math.Exp(v)
		}
		loss += math.Log(sum) - logits[i*classes+int(label)]
	}
	return loss / float64(len(labels))
}

// squaredError64 computes F.mse_loss.
func squaredError64(x []float64, targets []float32) float64 {
	loss := 0.0
	for i, v := range x {
		loss += (v - float64(targets[i])) * (v - float64(targets[i]))
	}
	return loss / float64(len(x))
}
