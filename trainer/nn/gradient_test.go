package nn

import (
	"fmt"
	"math"
	"testing"
)

// matrix returns drawn numbers as a matrix.
func matrix(rows, cols int, seed uint64) Matrix {
	return Matrix{rows, cols, fill(rows*cols, seed)}
}

// widen returns x in float64.
func widen(x []float32) []float64 {
	w := make([]float64, len(x))
	for i, v := range x {
		w[i] = float64(v)
	}
	return w
}

// checkGradient compares got with the central differences of f, a function in
// float64, around at.
func checkGradient(t *testing.T, what string, got []float32, at []float64, f func() float64) {
	t.Helper()
	const h = 1e-5
	for i, v := range at {
		at[i] = v + h
		up := f()
		at[i] = v - h
		down := f()
		at[i] = v
		want := (up - down) / (2 * h)
		if diff := math.Abs(float64(got[i]) - want); !(diff <= 2e-6+2e-5*math.Abs(want)) {
			t.Errorf("%s: element %d is %v, differences give %v", what, i, got[i], want)
		}
	}
}

// Each layer's gradients are checked against a plain float64 version of it,
// under the loss that is the sum of its outputs, each times a fixed number.
func TestLayerGradients(t *testing.T) {
	for _, c := range []struct {
		name  string
		layer Layer
		in    int
		out   int
		// f returns output (i, j) for inputs x and parameters.
		f func(x []float64, params [][]float64, i, j int) float64
	}{
		{"linear", newLinear("", 5, 4), 5, 4, func(x []float64, params [][]float64, i, j int) float64 {
			y := params[1][j]
			for k := range 5 {
				y += x[i*5+k] * params[0][j*5+k]
			}
			return y
		}},
		{"relu", &relu{activation: activation{width: 6}}, 6, 6, func(x []float64, _ [][]float64, i, j int) float64 {
			return max(x[i*6+j], 0)
		}},
		{"tanh", &tanh{activation: activation{width: 6}}, 6, 6, func(x []float64, _ [][]float64, i, j int) float64 {
			return math.Tanh(x[i*6+j])
		}},
	} {
		for _, rows := range []int{1, 3, 7} {
			t.Run(fmt.Sprintf("%s with %d rows", c.name, rows), func(t *testing.T) {
				c.layer.Plan(8, true)
				x, dy := matrix(rows, c.in, 1), matrix(rows, c.out, 2)
				x64 := widen(x.Data)
				var params [][]float64
				for i, p := range c.layer.Params() {
					copy(p.Data, fill(len(p.Data), uint64(3+i)))
					params = append(params, widen(p.Data))
				}
				loss := func() (sum float64) {
					for i := range rows {
						for j := range c.out {
							sum += float64(dy.Data[i*c.out+j]) * c.f(x64, params, i, j)
						}
					}
					return sum
				}
				y := c.layer.Forward(x)
				for i := range rows {
					for j := range c.out {
						if want := c.f(x64, params, i, j); math.Abs(float64(y.Data[i*c.out+j])-want) > 1e-6 {
							t.Errorf("output (%d, %d) is %v, want %v", i, j, y.Data[i*c.out+j], want)
						}
					}
				}
				for i, p := range c.layer.Params() {
					c.layer.Gradient(i, dy)
					checkGradient(t, p.Name, p.Grad, params[i], loss)
				}
				checkGradient(t, "input", c.layer.Backward(dy).Data, x64, loss)
			})
		}
	}
}

func TestCrossEntropyGradient(t *testing.T) {
	logits, labels := matrix(4, 5, 1), []int32{0, 4, 2, 2}
	at := widen(logits.Data)
	f := func() (sum float64) {
		for i, label := range labels {
			total := 0.0
			for _, v := range at[i*5 : (i+1)*5] {
				total += math.Exp(v)
			}
			sum += math.Log(total) - at[i*5+int(label)]
		}
		return sum / 4
	}
	grad := Matrix{4, 5, make([]float32, 20)}
	if got, want := CrossEntropy(logits, labels, grad), f(); math.Abs(got-want) > 1e-6 {
		t.Errorf("loss %v, want %v", got, want)
	}
	checkGradient(t, "logits", grad.Data, at, f)
}

func TestMSEGradient(t *testing.T) {
	pred, targets := matrix(4, 3, 1), fill(12, 2)
	at := widen(pred.Data)
	f := func() (sum float64) {
		for i, v := range at {
			sum += (v - float64(targets[i])) * (v - float64(targets[i]))
		}
		return sum / 12
	}
	grad := Matrix{4, 3, make([]float32, 12)}
	if got, want := MSE(pred, targets, grad), f(); math.Abs(got-want) > 1e-6 {
		t.Errorf("loss %v, want %v", got, want)
	}
	checkGradient(t, "prediction", grad.Data, at, f)
}

// The whole model is checked end to end: offsets, order and the gradient of
// every parameter through all layers.
func TestModelGradients(t *testing.T) {
	for _, activationName := range []string{ReLU, Tanh} {
		t.Run(activationName, func(t *testing.T) {
			const rows = 5
			widths := []int{4, 6, 3, 2}
			m := newTestMLP(t, 4, []int{6, 3}, 2, activationName)
			m.Plan(rows)
			x, targets := matrix(rows, 4, 1), fill(rows*2, 2)
			var params [][]float64
			for i, p := range m.Params() {
				copy(p.Data, fill(len(p.Data), uint64(30+i)))
				params = append(params, widen(p.Data))
			}
			f := func() float64 {
				sum := 0.0
				for i := range rows {
					h := widen(x.Data[i*4 : (i+1)*4])
					for layer := range 3 {
						next := make([]float64, widths[layer+1])
						for j := range next {
							next[j] = params[2*layer+1][j]
							for k, v := range h {
								next[j] += v * params[2*layer][j*len(h)+k]
							}
							if layer < 2 && activationName == ReLU {
								next[j] = max(next[j], 0)
							} else if layer < 2 {
								next[j] = math.Tanh(next[j])
							}
						}
						h = next
					}
					for j, v := range h {
						d := v - float64(targets[i*2+j])
						sum += d * d
					}
				}
				return sum / (rows * 2)
			}
			out := m.Forward(x)
			dout := Matrix{rows, 2, make([]float32, rows*2)}
			if got, want := MSE(out, targets, dout), f(); math.Abs(got-want) > 1e-6 {
				t.Errorf("loss %v, want %v", got, want)
			}
			m.Backward(dout, nil)
			for i, p := range m.Params() {
				checkGradient(t, p.Name, p.Grad, params[i], f)
			}
		})
	}
}
