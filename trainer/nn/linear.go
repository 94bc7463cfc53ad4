package nn

import (
	"math"

	"github.com/ddpbatch/ddpbatch/trainer/gemm"
	"github.com/ddpbatch/ddpbatch/trainer/random"
)

// linear is PyTorch's nn.Linear: y = x·Wᵀ + b.
type linear struct {
	in, out int
	params  []*Param // weight [out, in], bias [out]
	x       Matrix   // of the last Forward

	y, dx []float32 // output, input gradient
	ws    *gemm.Workspace
}

// newLinear returns a layer whose parameters' names begin with prefix.
func newLinear(prefix string, in, out int) *linear {
	return &linear{
		in: in, out: out,
		params: []*Param{newParam(prefix+"weight", out, in), newParam(prefix+"bias", out)},
	}
}

func (l *linear) Params() []*Param { return l.params }

// Init is nn.Linear's reset_parameters: weights by kaiming_uniform_ with
// a = sqrt(5), biases within 1/sqrt(in). The two bounds are the same number but
// computed as there, where rounding could make them differ.
func (l *linear) Init(g *random.Generator) {
	in := float64(l.in)
	gain := math.Sqrt(2 / (1 + math.Pow(math.Sqrt(5), 2)))
	weightBound := math.Sqrt(3) * (gain / math.Sqrt(in))
	biasBound := 1 / math.Sqrt(in)
	g.Uniform(-weightBound, weightBound, l.params[0].Data)
	g.Uniform(-biasBound, biasBound, l.params[1].Data)
}

func (l *linear) Plan(maxBatch int, inputGrad bool) {
	l.y = make([]float32, maxBatch*l.out)
	l.ws = gemm.NewWorkspace(0)
	l.dx = nil
	if inputGrad {
		l.dx = make([]float32, maxBatch*l.in)
	}
}

func (l *linear) Forward(x Matrix) Matrix {
	x.check("input of a linear layer", l.in)
	l.x = x
	y := view(l.y, x.Rows, l.out)
	for i := range y.Rows {
		copy(y.Data[i*l.out:], l.params[1].Data) // the bias; the product is added to it
	}
	gemm.Float32(l.ws, dense(y), dense(x), l.weight().T(), true)
	return y
}

func (l *linear) Gradient(i int, dy Matrix) {
	dy.check("output gradient of a linear layer", l.out)
	if i == 1 {
		sumColumns(l.params[1].Grad, dy)
		return
	}
	gemm.Float32(l.ws, gemm.Dense(l.params[0].Grad, l.out, l.in), dense(dy).T(), dense(l.x), false)
}

func (l *linear) Backward(dy Matrix) Matrix {
	dy.check("output gradient of a linear layer", l.out)
	dx := view(l.dx, dy.Rows, l.in)
	gemm.Float32(l.ws, dense(dx), dense(dy), l.weight(), false)
	return dx
}

func (l *linear) weight() gemm.Matrix { return gemm.Dense(l.params[0].Data, l.out, l.in) }

func dense(m Matrix) gemm.Matrix { return gemm.Dense(m.Data, m.Rows, m.Cols) }

// sumColumns writes the sum of the rows of m to dst.
func sumColumns(dst []float32, m Matrix) {
	clear(dst)
	for i := range m.Rows {
		row := m.Data[i*m.Cols : (i+1)*m.Cols]
		for j, v := range row {
			dst[j] += v
		}
	}
}
