package nn

import "math"

// relu is nn.ReLU: max(x, 0), and NaN stays NaN.
type relu struct {
	noParams
	activation
}

func (l *relu) Forward(x Matrix) Matrix {
	y := l.output(x)
	for i, v := range x.Data {
		if v < 0 {
			v = 0
		}
		y.Data[i] = v
	}
	return y
}

func (l *relu) Backward(dy Matrix) Matrix {
	dx, y := l.inputGrad(dy)
	for i, v := range dy.Data {
		if y[i] <= 0 {
			v = 0
		}
		dx.Data[i] = v
	}
	return dx
}

// tanh is nn.Tanh.
type tanh struct {
	noParams
	activation
}

func (l *tanh) Forward(x Matrix) Matrix {
	y := l.output(x)
	for i, v := range x.Data {
		y.Data[i] = float32(math.Tanh(float64(v)))
	}
	return y
}

func (l *tanh) Backward(dy Matrix) Matrix {
	dx, y := l.inputGrad(dy)
	for i, v := range dy.Data {
		dx.Data[i] = v * (1 - float32(y[i]*y[i]))
	}
	return dx
}

// activation is the memory of an elementwise layer, whose gradient needs
// nothing but its output.
type activation struct {
	width int
	y, dx []float32
}

func (a *activation) Plan(maxBatch int, inputGrad bool) {
	a.y = make([]float32, maxBatch*a.width)
	a.dx = nil
	if inputGrad {
		a.dx = make([]float32, maxBatch*a.width)
	}
}

// output returns the matrix for the output of x.
func (a *activation) output(x Matrix) Matrix {
	x.check("input of an activation", a.width)
	return view(a.y, x.Rows, a.width)
}

// inputGrad returns the matrix for the input's gradient, and the last output.
func (a *activation) inputGrad(dy Matrix) (dx Matrix, y []float32) {
	dy.check("output gradient of an activation", a.width)
	return view(a.dx, dy.Rows, a.width), a.y[:len(dy.Data)]
}
