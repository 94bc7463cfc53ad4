package nn

import (
	"math"

	"github.com/ddpbatch/ddpbatch/trainer/device"
	"github.com/ddpbatch/ddpbatch/trainer/random"
)

// linear is PyTorch's nn.Linear, y = x·Wᵀ + b. If the weight is stored transposed, it is the Conv1D
// of Hugging Face's GPT-2, y = x·W + b.
type linear struct {
	in, out      int
	transposed   bool
	weight, bias *Param // [out, in], or [in, out] if transposed; [out]
	params       []*Param
	plan         Plan
}

// newLinear returns a layer whose parameters' names begin with prefix.
func newLinear(prefix string, in, out int) *linear {
	weight, bias := newParam(prefix+"weight", out, in), newParam(prefix+"bias", out)
	return &linear{in: in, out: out, weight: weight, bias: bias, params: []*Param{weight, bias}}
}

// newConv1D returns a layer with a transposed weight.
func newConv1D(prefix string, in, out int) *linear {
	weight, bias := newParam(prefix+"weight", in, out), newParam(prefix+"bias", out)
	return &linear{in: in, out: out, transposed: true, weight: weight, bias: bias, params: []*Param{weight, bias}}
}

func (l *linear) Params() []*Param { return l.params }
func (l *linear) Width() int       { return l.out }
func (l *linear) InPlace() bool    { return false }
func (l *linear) Plan(p Plan)      { l.plan = p }

// Init initializes the parameters like nn.Linear's reset_parameters.
func (l *linear) Init(g *random.Generator, m device.Memory) {
	kaimingUniform(g, m, l.weight, l.bias, l.in)
}

// kaimingUniform initializes a weight and a bias like reset_parameters of nn.Linear and nn.Conv2d:
// weights with kaiming_uniform_ and a = sqrt(5), biases within 1/sqrt(in), where in is the number
// of inputs per output. The two bounds are equal in theory, but are computed as in PyTorch because
// rounding could make them differ.
func kaimingUniform(g *random.Generator, m device.Memory, weight, bias *Param, inputs int) {
	in := float64(inputs)
	gain := math.Sqrt(2 / (1 + math.Pow(math.Sqrt(5), 2)))
	weightBound := math.Sqrt(3) * (gain / math.Sqrt(in))
	biasBound := 1 / math.Sqrt(in)
	device.Fill(m, weight.Data, func(v []float32) { g.Uniform(-weightBound, weightBound, v) })
	device.Fill(m, bias.Data, func(v []float32) { g.Uniform(-biasBound, biasBound, v) })
}

func (l *linear) Forward(y, x device.Matrix, pass Pass) {
	pass.values(l.params)
	l.plan.Device.MatMul(device.Product{C: y, A: x, B: l.inByOut(), Bias: l.biasFor(y), Precision: l.plan.Precision})
}

// forwardActivated is like Forward, but applies an activation. It writes the values before the
// activation to pre.
func (l *linear) forwardActivated(y, pre, x device.Matrix, f device.Activation, pass Pass) {
	pass.values(l.params)
	l.plan.Device.MatMul(device.Product{C: y, A: x, B: l.inByOut(), Bias: l.biasFor(y), Activation: f, Pre: pre, Precision: l.plan.Precision})
}

// biasFor returns the bias, rounded if a matmul with the result y would round it.
func (l *linear) biasFor(y device.Matrix) device.Tensor {
	if y.Data.Type() == device.BFloat16 && l.bias.Rounded.Len() > 0 {
		return l.bias.Rounded
	}
	return l.bias.Data
}

func (l *linear) Gradient(i int, dy, x device.Matrix, pass Pass) {
	pass.grads(l.params[i : i+1])
	if i == 1 {
		l.plan.Device.ColumnSum(l.bias.Grad, dy, pass.Accumulate)
		return
	}
	l.plan.Device.MatMul(l.weightGradient(dy, x, pass))
}

// weightGradient returns the matmul that computes the gradient of the weight.
func (l *linear) weightGradient(dy, x device.Matrix, pass Pass) device.Product {
	p := device.Product{C: l.weight.matrix(l.weight.Grad), A: dy.T(), B: x, Accumulate: pass.Accumulate, Precision: l.plan.Precision}
	if l.transposed {
		p.A, p.B = x.T(), dy
	}
	return p
}

// gradients computes the gradients of both parameters in one matmul. The weight must be transposed:
// only then is dy the right operand, whose columns a matmul can sum.
func (l *linear) gradients(dy, x device.Matrix, pass Pass, ready func(*Param)) {
	if !l.transposed {
		panic("nn: gradients of a layer whose weight is not transposed")
	}
	pass.grads(l.params)
	p := l.weightGradient(dy, x, pass)
	p.ColumnSum = l.bias.Grad
	l.plan.Device.MatMul(p)
	ready(l.bias)
	ready(l.weight)
}

func (l *linear) Backward(dx, dy, _, _ device.Matrix, pass Pass) {
	pass.values(l.params)
	l.plan.Device.MatMul(device.Product{C: dx, A: dy, B: l.inByOut().T(), Precision: l.plan.Precision})
}

// backwardGELU is like Backward, but continues through the GELU whose output was the layer's input.
// pre is the GELU's input.
func (l *linear) backwardGELU(dpre, dy, pre device.Matrix, pass Pass) {
	pass.values(l.params)
	l.plan.Device.MatMul(device.Product{C: dpre, A: dy, B: l.inByOut().T(), Activation: device.GELU, Pre: pre, Gradient: true, Precision: l.plan.Precision})
}

// inByOut returns the weight as a matrix with one row per input.
func (l *linear) inByOut() device.Matrix {
	m := l.weight.matrix(l.weight.operand())
	if l.transposed {
		return m
	}
	return m.T()
}
