package gemm_test

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/trainer/gemm"
)

// product is one multiplication, with its operands in larger matrices.
type product struct {
	m, n, k                int
	transA, transB, add    bool
	padA, padB, padC, offC int
}

func (p product) String() string {
	return fmt.Sprintf("%dx%dx%d transA=%v transB=%v add=%v pads=%d,%d,%d offset=%d",
		p.m, p.n, p.k, p.transA, p.transB, p.add, p.padA, p.padB, p.padC, p.offC)
}

// canary is what C holds outside its elements.
const canary = 12345

// operand returns a random matrix, its rows (of the transpose, if transposed) pad
// elements apart, in a slice without an element more than it needs. What is
// between its rows is NaN, which would spoil all that it touches.
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

// operands returns the same A, B and C for the same seed.
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

// check multiplies with all kernels, and compares the first with float64 and the
// others with the first.
func (p product) check(t *testing.T, seed uint64) {
	t.Helper()
	before, a, b := p.operands(seed)
	var first gemm.Matrix
	for _, name := range gemm.Kernels() {
		c, _, _ := p.operands(seed)
		gemm.Float32(gemm.NewWorkspaceFor(name, 1), c, a, b, p.add)
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
			if name != gemm.Kernels()[0] {
				if math.Float32bits(v) != math.Float32bits(first.Data[i]) {
					t.Fatalf("%v: element (%d, %d) is %v with %s, %v with %s", p, row, col, v, name, first.Data[i], gemm.Kernels()[0])
				}
				continue
			}
			want, size := 0.0, 0.0
			if p.add {
				want = float64(before.Data[i])
				size = math.Abs(want)
			}
			for l := range p.k {
				term := float64(a.Data[row*a.RowStride+l*a.ColStride]) * float64(b.Data[l*b.RowStride+col*b.ColStride])
				want += term
				size += math.Abs(term)
			}
			// The bound of the rounding error of a sum of k fused terms.
			if bound := size * float64(p.k+1) * 0x1p-24; !(math.Abs(float64(v)-want) <= bound) {
				t.Fatalf("%v: element (%d, %d) is %v with %s, want %v ± %v", p, row, col, v, name, want, bound)
			}
		}
		if first.Data == nil {
			first = c
		}
	}
}

// Every size around the edges of the tiles, registers and blocks, in every
// orientation, is right, the same bits with all kernels, and written only where it
// belongs.
func TestShapes(t *testing.T) {
	const packed = gemm.PackRows // so many rows that B is always copied
	rows := []int{0, 1, 2, 5, 6, 7, 13, 14, 15, 29, 57, packed}
	cols := []int{0, 1, 3, 7, 8, 9, 15, 16, 17, 24, 31, 32, 33, 50, 65}
	terms := []int{0, 1, 2, 7, 8, 16, 17, 35}
	for _, m := range rows {
		for _, n := range cols {
			for _, k := range terms {
				for way := range 8 {
					product{
						m: m, n: n, k: k,
						transA: way&1 != 0, transB: way&2 != 0, add: way&4 != 0,
						padA: (m + n) % 3, padB: (n + k) % 4, padC: (m + k) % 3, offC: (m + n + k) % 17,
					}.check(t, uint64(m*1000+n*10+k))
				}
			}
		}
	}
}

// Each height of a tile, and more terms than one block has.
func TestHeightsAndDepths(t *testing.T) {
	for m := 1; m <= 30; m++ {
		for _, k := range []int{gemm.Depth - 1, gemm.Depth, gemm.Depth + 1, 2*gemm.Depth + 77} {
			for way := range 4 {
				product{m: m, n: 37, k: k, transB: way&1 != 0, transA: way&2 != 0, add: m%2 == 0}.check(t, uint64(m))
			}
		}
	}
}

// Views whose rows and columns are both apart, and rows that are all the same.
func TestGeneralStrides(t *testing.T) {
	data := make([]float32, 4000)
	for i := range data {
		data[i] = float32(math.Sin(float64(i)))
	}
	for _, m := range []int{3, 60} {
		a := gemm.Matrix{Data: data, Rows: m, Cols: 20, RowStride: 61, ColStride: 3}
		for _, b := range []gemm.Matrix{
			{Data: data, Rows: 20, Cols: 33, RowStride: 100, ColStride: 2},
			{Data: data, Rows: 20, Cols: 33, RowStride: 0, ColStride: 1},
			{Data: data, Rows: 20, Cols: 33, RowStride: 1, ColStride: 0},
		} {
			var want []float32
			for _, name := range gemm.Kernels() {
				got := make([]float32, m*33)
				gemm.Float32(gemm.NewWorkspaceFor(name, 1), gemm.Dense(got, m, 33), a, b, false)
				if want == nil {
					want = got
				}
				sameBits(t, fmt.Sprintf("%s, strides of B %d and %d", name, b.RowStride, b.ColStride), got, want)
			}
			var sum float32
			for l := range 20 {
				sum = gemm.Fused(data[2*61+3*l], data[l*b.RowStride+32*b.ColStride], sum)
			}
			if want[2*33+32] != sum {
				t.Fatalf("element (2, 32) is %v, want %v", want[2*33+32], sum)
			}
		}
	}
}

// Zeros, infinities, subnormals and overflow are treated alike.
func TestSpecialNumbers(t *testing.T) {
	numbers := []float32{0, float32(math.Copysign(0, -1)), 1, -1, 0x1p-149, -0x1p-149, 0x1.8p-127, 0x1p-75, -0x1p-75,
		0x1.fffffep127, -0x1.fffffep127, 0x1p64, float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN()), 3.1415927}
	r := rand.New(rand.NewPCG(7, 7))
	for _, among := range []int{len(numbers), 9, 12} { // all; none that is large; no infinities
		for range 100 {
			const m, n, k = 15, 33, 3
			a, b := make([]float32, m*k), make([]float32, k*n)
			for i := range a {
				a[i] = numbers[r.IntN(among)]
			}
			for i := range b {
				b[i] = numbers[r.IntN(among)]
			}
			var want []float32
			for _, name := range gemm.Kernels() {
				got := make([]float32, m*n)
				gemm.Float32(gemm.NewWorkspaceFor(name, 1), gemm.Dense(got, m, n), gemm.Dense(a, m, k), gemm.Dense(b, k, n), false)
				if want == nil {
					want = got
				}
				sameBits(t, name, got, want)
			}
		}
	}
}

// The portable multiply-add is that of exact arithmetic, rounded once, above all
// where two roundings would go wrong.
func TestFusedRoundsOnce(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	wrong := 0
	for range 300000 {
		a := math.Float32frombits(r.Uint32()&0x807fffff | uint32(64+r.IntN(100))<<23)
		b := math.Float32frombits(r.Uint32()&0x807fffff | uint32(64+r.IntN(100))<<23)
		exponent := int(math.Float32bits(a)>>23&255) + int(math.Float32bits(b)>>23&255) - 127 + r.IntN(80) - 40
		c := math.Float32frombits(r.Uint32()&0x80000001 | uint32(min(254, max(0, exponent)))<<23)
		switch r.IntN(3) {
		case 0: // few bits, so that middles are frequent
			a = math.Float32frombits(math.Float32bits(a) & 0xfff80000)
			b = math.Float32frombits(math.Float32bits(b) & 0xffff0000)
		case 1: // a product that is half of the last place of c, less a trace
			trace := math.Ldexp(1, -13-r.IntN(11))
			a, b = float32(1+trace), float32(1-trace)
			c = math.Float32frombits(r.Uint32()&0x807fffff | (127+24)<<23)
			if r.IntN(2) == 0 { // the same below the smallest normal number
				a, b, c = a*0x1p-75, b*0x1p-75, math.Float32frombits(r.Uint32()&0x807fffff)
			}
		case 2: // many sums there
			a, c = a*0x1p-64, math.Float32frombits(r.Uint32()&0x80ffffff)
		}
		exact := new(big.Float).SetPrec(2000).Mul(big.NewFloat(float64(a)), big.NewFloat(float64(b)))
		want, _ := exact.Add(exact, big.NewFloat(float64(c))).Float32()
		if got := gemm.Fused(a, b, c); got != want {
			t.Fatalf("%x*%x+%x is %x, want %x", a, b, c, got, want)
		}
		if float32(float64(a)*float64(b)+float64(c)) != want {
			wrong++
		}
	}
	if wrong == 0 {
		t.Error("no case where two roundings go wrong: the test shows nothing")
	}
}

// The number of workers changes nothing in the result.
func TestWorkersDoNotChangeBits(t *testing.T) {
	p := product{m: 203, n: 65, k: 100, transB: true, padC: 3}
	for _, name := range gemm.Kernels() {
		want, a, b := p.operands(5)
		gemm.Float32(gemm.NewWorkspaceFor(name, 1), want, a, b, false)
		for workers := range 8 { // 0 is GOMAXPROCS
			got, _, _ := p.operands(5)
			ws := gemm.NewWorkspaceFor(name, workers)
			gemm.UseAllWorkers(ws)
			for range 3 {
				gemm.Float32(ws, got, a, b, false)
				sameBits(t, fmt.Sprintf("%s with %d workers", name, workers), got.Data, want.Data)
			}
		}
	}
}

func TestAllocatesNothing(t *testing.T) {
	for _, name := range gemm.Kernels() {
		for _, p := range []product{{m: 10, n: 10, k: 10}, {m: 128, n: 130, k: 128, transB: true}, {m: 128, n: 130, k: 128, transA: true}} {
			c, a, b := p.operands(1)
			ws := gemm.NewWorkspaceFor(name, 2)
			gemm.UseAllWorkers(ws)
			if n := testing.AllocsPerRun(20, func() { gemm.Float32(ws, c, a, b, true) }); n != 0 {
				t.Errorf("%s, %v: %v allocations", name, p, n)
			}
		}
	}
}

func TestMisusePanics(t *testing.T) {
	d := make([]float32, 12)
	good := gemm.Dense(d, 3, 4)
	for name, c := range map[string]struct {
		c, a, b gemm.Matrix
		want    string
	}{
		"shapes":       {gemm.Dense(make([]float32, 9), 3, 3), good, good, "3x3 = 3x4 times 3x4"},
		"short A":      {gemm.Dense(make([]float32, 9), 3, 3), gemm.Dense(d[:11], 3, 4), good.T(), "A is 3x4"},
		"short B":      {gemm.Dense(make([]float32, 9), 3, 3), good, gemm.Dense(d[:11], 4, 3), "B is 4x3"},
		"short C":      {gemm.Dense(make([]float32, 8), 3, 3), good, good.T(), "C is 3x3"},
		"C transposed": {gemm.Dense(make([]float32, 9), 3, 3).T(), good, good.T(), "C has strides 1 and 3"},
		"C overlaps":   {gemm.Matrix{Data: d, Rows: 3, Cols: 3, RowStride: 2, ColStride: 1}, good, good.T(), "C has strides 2 and 1"},
		"negative":     {gemm.Dense(d, -1, 3), good, good.T(), "C is -1x3"},
		"wraps around": {gemm.Matrix{Data: d, Rows: 3, Cols: 3, RowStride: math.MaxInt/2 + 2, ColStride: 1}, good, good.T(), "C is 3x3"},
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if got := fmt.Sprint(recover()); !strings.Contains(got, c.want) {
					t.Errorf("panic is %q, want %q in it", got, c.want)
				}
			}()
			gemm.Float32(gemm.NewWorkspace(1), c.c, c.a, c.b, false)
		})
	}
}

func FuzzFloat32(f *testing.F) {
	f.Add(uint8(14), uint8(32), uint16(40), uint8(0), uint8(0), uint64(1))
	f.Add(uint8(43), uint8(33), uint16(257), uint8(7), uint8(77), uint64(2))
	f.Add(uint8(1), uint8(1), uint16(513), uint8(5), uint8(255), uint64(3))
	f.Fuzz(func(t *testing.T, m, n uint8, k uint16, way, pads uint8, seed uint64) {
		pad := int(pads)
		product{
			m: int(m) % 200, n: int(n) % 80, k: int(k) % 600,
			transA: way&1 != 0, transB: way&2 != 0, add: way&4 != 0,
			padA: pad % 4, padB: pad / 4 % 4, padC: pad / 16 % 4, offC: pad / 64 % 4,
		}.check(t, seed)
	})
}

// sameBits fails unless both are the same numbers; one NaN is like another.
func sameBits(t *testing.T, what string, got, want []float32) {
	t.Helper()
	for i := range want {
		if math.Float32bits(got[i]) != math.Float32bits(want[i]) && (got[i] == got[i] || want[i] == want[i]) {
			t.Fatalf("%s: element %d is %v, want %v", what, i, got[i], want[i])
		}
	}
}
