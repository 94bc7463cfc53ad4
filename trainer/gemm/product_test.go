package gemm_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/ddpbatch/ddpbatch/trainer/gemm"
)

// product is one multiplication, with operands that are views of larger matrices.
type product struct {
	m, n, k                int
	transA, transB         bool
	from                   origin
	bf16                   bool
	padA, padB, padC, offC int
}

// origin is the start value of a product.
type origin int

const (
	zero origin = iota
	accumulate
	bias
)

func (o origin) String() string { return [...]string{"zero", "C", "bias"}[o] }

// start returns the origin with a bias of n elements, and the matrix of start values for c.
func (o origin) start(c gemm.Matrix, seed uint64) (gemm.Start, gemm.Matrix) {
	row := make([]float32, c.Cols)
	switch o {
	case accumulate:
		return gemm.Accumulate(), c
	case bias:
		r := rand.New(rand.NewPCG(seed, 2))
		for i := range row {
			row[i] = float32(r.NormFloat64())
		}
		return gemm.Bias(row), gemm.Matrix{Data: row, Rows: c.Rows, Cols: c.Cols, ColStride: 1}
	default:
		return gemm.Zero(), gemm.Matrix{Data: row, Rows: c.Rows, Cols: c.Cols, ColStride: 1}
	}
}

func (p product) String() string {
	return fmt.Sprintf("%dx%dx%d transA=%v transB=%v from=%v bf16=%v pads=%d,%d,%d offset=%d",
		p.m, p.n, p.k, p.transA, p.transB, p.from, p.bf16, p.padA, p.padB, p.padC, p.offC)
}

// canary is the value of C outside its elements.
const canary = 12345

// operand returns a random matrix with pad elements between its rows (or columns, if transposed),
// in a slice without extra elements. The padding is NaN, which propagates to every result.
func operand(r *rand.Rand, rows, cols, pad int, transposed bool) gemm.Matrix {
	if transposed {
		return operand(r, cols, rows, pad, false).T()
	}
	m := gemm.Matrix{Rows: rows, Cols: cols, RowStride: cols + pad, ColStride: 1}
	if rows > 0 && cols > 0 {
		m.Data = make([]float32, (rows-1)*m.RowStride+cols)
	}
	for i := range m.Data {
		m.Data[i] = float32(math.NaN())
		if i%m.RowStride < cols {
			m.Data[i] = float32(r.NormFloat64())
		}
	}
	return m
}

// operands returns the same A, B, and C for the same seed.
func (p product) operands(seed uint64) (c, a, b gemm.Matrix) {
	r := rand.New(rand.NewPCG(seed, 1))
	a, b = operand(r, p.m, p.k, p.padA, p.transA), operand(r, p.k, p.n, p.padB, p.transB)
	c = gemm.Matrix{Rows: p.m, Cols: p.n, RowStride: p.n + p.padC, ColStride: 1}
	whole := make([]float32, p.offC+p.m*c.RowStride+64)
	for i := range whole {
		whole[i] = canary
	}
	c.Data = whole[p.offC:]
	for i := range p.m {
		for j := range p.n {
			c.Data[i*c.RowStride+j] = float32(r.NormFloat64())
		}
	}
	return c, a, b
}

// multiply computes c from start.
func (p product) multiply(ws *gemm.Workspace, c, a, b gemm.Matrix, start gemm.Start) {
	if p.bf16 {
		gemm.BFloat16(ws, c, a, b, start)
	} else {
		gemm.Float32(ws, c, a, b, start)
	}
}

// workspaces returns one workspace with one worker for each kernel, fastest first.
var workspaces = sync.OnceValue(func() []*gemm.Workspace {
	var list []*gemm.Workspace
	for _, name := range gemm.Kernels() {
		list = append(list, gemm.NewWorkspaceFor(name, 1))
	}
	return list
})

// check multiplies with all kernels and compares each result with float64, and with the first
// kernel that guarantees the same bits.
func (p product) check(t *testing.T, seed uint64) {
	t.Helper()
	c, a, b := p.operands(seed)
	start, before := p.from.start(c, seed)
	wants, bounds := p.expect(before, a, b)
	var first gemm.Matrix
	for _, ws := range workspaces() {
		name := ws.Kernel()
		c, _, _ := p.operands(seed)
		p.multiply(ws, c, a, b, start)
		for i, v := range c.Data {
			row, col := 0, p.n
			if c.RowStride > 0 {
				row, col = i/c.RowStride, i%c.RowStride
			}
			if row >= p.m || col >= p.n {
				if v != canary {
					t.Fatalf("%v: %s wrote %v outside of C at %d", p, name, v, i)
				}
				continue
			}
			want, bound := wants[row*p.n+col], bounds[row*p.n+col]
			if !(math.Abs(float64(v)-want) <= bound) {
				t.Fatalf("%v: element (%d, %d) is %v with %s, want %v ± %v", p, row, col, v, name, want, bound)
			}
			if first.Data != nil && math.Float32bits(v) != math.Float32bits(first.Data[i]) {
				t.Fatalf("%v: element (%d, %d) is %v with %s, %v with those before", p, row, col, v, name, first.Data[i])
			}
		}
		if !p.bf16 || name != "avx512_bf16" {
			first = c
		}
	}
}

// expect returns the elements of C in float64, and the bounds of their rounding errors for a sum of
// k fused multiply-adds.
func (p product) expect(before, a, b gemm.Matrix) (wants, bounds []float64) {
	number := func(x float32) float64 { return float64(x) }
	if p.bf16 {
		number = toBFloat16
	}
	column := make([]float64, p.k)
	wants, bounds = make([]float64, p.m*p.n), make([]float64, p.m*p.n)
	for j := range p.n {
		for l := range column {
			column[l] = number(b.Data[l*b.RowStride+j*b.ColStride])
		}
		for i := range p.m {
			want := float64(before.Data[i*before.RowStride+j])
			size := math.Abs(want)
			for l, v := range column {
				term := number(a.Data[i*a.RowStride+l*a.ColStride]) * v
				want += term
				size += math.Abs(term)
			}
			wants[i*p.n+j], bounds[i*p.n+j] = want, size*float64(p.k+1)*0x1p-24
		}
	}
	return wants, bounds
}

// toBFloat16 rounds a value to 8 bits. The value must be neither subnormal nor too large.
func toBFloat16(x float32) float64 {
	fraction, exponent := math.Frexp(float64(x))
	return math.Ldexp(math.RoundToEven(fraction*256), exponent-8)
}

// sameBits fails unless both slices are bit-identical. All NaNs are equal.
func sameBits(t *testing.T, what string, got, want []float32) {
	t.Helper()
	for i := range want {
		if math.Float32bits(got[i]) != math.Float32bits(want[i]) && (got[i] == got[i] || want[i] == want[i]) {
			t.Fatalf("%s: element %d is %v, want %v", what, i, got[i], want[i])
		}
	}
}
