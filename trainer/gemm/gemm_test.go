package gemm_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/trainer/fma"
	"github.com/ddpbatch/ddpbatch/trainer/gemm"
)

// TestShapes checks all sizes around the boundaries of tiles, registers, and blocks, in every
// orientation: the result is correct, bit-identical with all kernels, and written only to C.
func TestShapes(t *testing.T) {
	rows := []int{0, 1, 2, 5, 6, 7, 13, 14, 15, 29, 57, 192}
	cols := []int{0, 1, 3, 7, 8, 9, 15, 16, 17, 24, 31, 32, 33, 50, 65}
	terms := []int{0, 1, 2, 7, 8, 16, 17, 35}
	for _, m := range rows {
		for _, n := range cols {
			for _, k := range terms {
				for way := range 12 {
					product{
						m: m, n: n, k: k,
						transA: way&1 != 0, transB: way&2 != 0, from: origin(way / 4 % 3),
						padA: (m + n) % 3, padB: (n + k) % 4, padC: (m + k) % 3, offC: (m + n + k) % 17,
					}.check(t, uint64(m*1000+n*10+k))
				}
			}
		}
	}
}

// TestHeightsAndDepths checks each tile height, with more terms than one block has.
func TestHeightsAndDepths(t *testing.T) {
	for m := 1; m <= 30; m++ {
		for _, k := range []int{gemm.Depth - 1, gemm.Depth, gemm.Depth + 1, 2*gemm.Depth + 77} {
			for way := range 4 {
				product{m: m, n: 37, k: k, transB: way&1 != 0, transA: way&2 != 0, bf16: (m+way)%2 != 0, from: origin(m % 3)}.check(t, uint64(m))
			}
		}
	}
}

// TestBlocks checks more rows, columns, or terms than one block has, packed blocks of A, and a B
// that is used in place, or packed because it is larger than the L1 cache.
func TestBlocks(t *testing.T) {
	for _, p := range []product{
		{m: 2*gemm.Height + 9, n: 40, k: gemm.Depth + 18},
		{m: gemm.Height + 1, n: gemm.Width + 70, k: 21},
		{m: 20, n: gemm.Width + 1, k: gemm.Depth + 5},
		{m: 31, n: gemm.PackCols - 1, k: 2*gemm.Depth + 33},
		{m: 31, n: gemm.PackCols + 3, k: 2*gemm.Depth + 33},
		{m: 71, n: 79, k: gemm.L1Terms/79 + 1, padC: 3},
		{m: gemm.PackRows + 1, n: 79, k: gemm.L1Terms/79 + 1, padC: 3},
	} {
		for way := range 8 {
			p.transA, p.transB, p.bf16, p.from = way&1 != 0, way&2 != 0, way&4 != 0, origin(way%3)
			p.check(t, uint64(way))
		}
	}
}

// TestGeneralStrides checks views with strided rows and columns, and with rows that are all the
// same.
func TestGeneralStrides(t *testing.T) {
	data := make([]float32, 4000)
	for i := range data {
		data[i] = float32(math.Sin(float64(i)))
	}
	for _, m := range []int{3, 60} {
		a := gemm.Matrix{Data: data, Rows: m, Cols: 21, RowStride: 61, ColStride: 3}
		for _, b := range []gemm.Matrix{
			{Data: data, Rows: 21, Cols: 33, RowStride: 100, ColStride: 2},
			{Data: data, Rows: 21, Cols: 33, RowStride: 0, ColStride: 1},
			{Data: data, Rows: 21, Cols: 33, RowStride: 1, ColStride: 0},
		} {
			var want []float32
			for _, ws := range workspaces() {
				got := make([]float32, m*33)
				gemm.Float32(ws, gemm.Dense(got, m, 33), a, b, gemm.Zero())
				if want == nil {
					want = got
				}
				sameBits(t, fmt.Sprintf("%s, strides of B %d and %d", ws.Kernel(), b.RowStride, b.ColStride), got, want)
				p := product{m: m, n: 33, k: 21, bf16: true}
				got = make([]float32, m*33)
				gemm.BFloat16(ws, gemm.Dense(got, m, 33), a, b, gemm.Zero())
				wants, bounds := p.expect(gemm.Matrix{Data: make([]float32, 33)}, a, b)
				for i, v := range got {
					if !(math.Abs(float64(v)-wants[i]) <= bounds[i]) {
						t.Fatalf("%s: element %d is %v with bfloat16, want %v ± %v", ws.Kernel(), i, v, wants[i], bounds[i])
					}
				}
			}
			var sum float32
			for l := range 21 {
				sum = fma.Float32(data[2*61+3*l], data[l*b.RowStride+32*b.ColStride], sum)
			}
			if want[2*33+32] != sum {
				t.Fatalf("element (2, 32) is %v, want %v", want[2*33+32], sum)
			}
		}
	}
}

// TestSpecialValues checks that zeros, infinities, subnormals, and overflow give the same results
// with all kernels.
func TestSpecialValues(t *testing.T) {
	numbers := []float32{0, float32(math.Copysign(0, -1)), 1, -1, 0x1p-149, -0x1p-149, 0x1.8p-127, 0x1p-75, -0x1p-75,
		0x1.fffffep127, -0x1.fffffep127, 0x1p64, float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN()), 3.1415927}
	r := rand.New(rand.NewPCG(7, 7))
	for _, among := range []int{len(numbers), 9, 12} { // all; no large ones; no infinities
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
			for _, ws := range workspaces() {
				got := make([]float32, m*n)
				gemm.Float32(ws, gemm.Dense(got, m, n), gemm.Dense(a, m, k), gemm.Dense(b, k, n), gemm.Zero())
				if want == nil {
					want = got
				}
				sameBits(t, ws.Kernel(), got, want)
			}
		}
	}
}

// TestWorkersDoNotChangeBits checks that the number of workers does not change the result,
// whichever dimension they divide.
func TestWorkersDoNotChangeBits(t *testing.T) {
	for _, p := range []product{
		{m: 203, n: 65, k: 101, transB: true, padC: 3},
		{m: 65, n: 203, k: 101, transA: true, padC: 3, from: bias},
		{m: 203, n: 65, k: 101, bf16: true},
		{m: 65, n: 203, k: 101, transB: true, bf16: true},
	} {
		for _, ws := range workspaces() {
			want, a, b := p.operands(5)
			start, _ := p.from.start(want, 5)
			p.multiply(ws, want, a, b, start)
			for workers := range 8 { // 0 is GOMAXPROCS
				got, _, _ := p.operands(5)
				ws := gemm.NewWorkspaceFor(ws.Kernel(), workers)
				gemm.UseAllWorkers(ws)
				for range 3 {
					p.multiply(ws, got, a, b, start)
					sameBits(t, fmt.Sprintf("%v: %s with %d workers", p, ws.Kernel(), workers), got.Data, want.Data)
				}
			}
		}
	}
}

// TestPositionDoesNotChangeBits checks that a part of C has the same bits if it is computed
// separately.
func TestPositionDoesNotChangeBits(t *testing.T) {
	for way := range 4 {
		p := product{m: 203, n: 70, k: 2*gemm.Depth + 7, transB: way&1 != 0, bf16: way&2 != 0}
		whole, a, b := p.operands(6)
		const row, col, rows, cols = 101, 37, 5, 11
		for _, ws := range workspaces() {
			p.multiply(ws, whole, a, b, gemm.Zero())
			part := gemm.Dense(make([]float32, rows*cols), rows, cols)
			a, b := a, b
			a.Data, a.Rows = a.Data[row*a.RowStride:], rows
			b.Data, b.Cols = b.Data[col*b.ColStride:], cols
			p.multiply(ws, part, a, b, gemm.Zero())
			for i := range rows {
				sameBits(t, fmt.Sprintf("%v: %s, row %d", p, ws.Kernel(), i), part.Data[i*cols:][:cols], whole.Data[(row+i)*whole.RowStride+col:][:cols])
			}
		}
	}
}

// TestAllocatesNothing checks that a matrix multiplication does not allocate memory, with all
// kernels.
func TestAllocatesNothing(t *testing.T) {
	for _, name := range gemm.Kernels() {
		for _, p := range []product{{m: 10, n: 10, k: 10}, {m: 128, n: 130, k: 128, transB: true}, {m: 128, n: 130, k: 128, transA: true, bf16: true}} {
			c, a, b := p.operands(1)
			ws := gemm.NewWorkspaceFor(name, 2)
			gemm.UseAllWorkers(ws)
			if n := testing.AllocsPerRun(20, func() { p.multiply(ws, c, a, b, gemm.Accumulate()) }); n != 0 {
				t.Errorf("%s, %v: %v allocations", name, p, n)
			}
		}
	}
}

// TestMisusePanics checks that invalid shapes, strides, and overlapping results panic with the
// shapes.
func TestMisusePanics(t *testing.T) {
	d := make([]float32, 12)
	good := gemm.Dense(d, 3, 4)
	for name, c := range map[string]struct {
		c, a, b gemm.Matrix
		from    gemm.Start
		want    string
	}{
		"shapes":       {gemm.Dense(make([]float32, 9), 3, 3), good, good, gemm.Zero(), "3x3 = 3x4 times 3x4"},
		"short A":      {gemm.Dense(make([]float32, 9), 3, 3), gemm.Dense(d[:11], 3, 4), good.T(), gemm.Zero(), "A is 3x4"},
		"short B":      {gemm.Dense(make([]float32, 9), 3, 3), good, gemm.Dense(d[:11], 4, 3), gemm.Zero(), "B is 4x3"},
		"short C":      {gemm.Dense(make([]float32, 8), 3, 3), good, good.T(), gemm.Zero(), "C is 3x3"},
		"C transposed": {gemm.Dense(make([]float32, 9), 3, 3).T(), good, good.T(), gemm.Zero(), "C has strides 1 and 3"},
		"C overlaps":   {gemm.Matrix{Data: d, Rows: 3, Cols: 3, RowStride: 2, ColStride: 1}, good, good.T(), gemm.Zero(), "C has strides 2 and 1"},
		"negative":     {gemm.Dense(d, -1, 3), good, good.T(), gemm.Zero(), "C is -1x3"},
		"bias":         {gemm.Dense(make([]float32, 9), 3, 3), good, good.T(), gemm.Bias(d[:2]), "bias has 2 elements, C is 3x3"},
		"wraps around": {gemm.Matrix{Data: d, Rows: 3, Cols: 3, RowStride: math.MaxInt/2 + 2, ColStride: 1}, good, good.T(), gemm.Zero(), "C is 3x3"},
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if got := fmt.Sprint(recover()); !strings.Contains(got, c.want) {
					t.Errorf("panic is %q, want %q in it", got, c.want)
				}
			}()
			gemm.Float32(gemm.NewWorkspace(1), c.c, c.a, c.b, c.from)
		})
	}
}

// FuzzFloat32 checks products of any sizes, orientations, and paddings.
func FuzzFloat32(f *testing.F) {
	f.Add(uint8(14), uint8(32), uint16(40), uint8(0), uint8(0), uint64(1))
	f.Add(uint8(43), uint8(33), uint16(257), uint8(7), uint8(77), uint64(2))
	f.Add(uint8(1), uint8(1), uint16(513), uint8(5), uint8(255), uint64(3))
	f.Fuzz(func(t *testing.T, m, n uint8, k uint16, way, pads uint8, seed uint64) {
		pad := int(pads)
		product{
			m: int(m) % 200, n: int(n) % 80, k: int(k) % 600,
			transA: way&1 != 0, transB: way&2 != 0, from: origin(way / 4 % 3),
			padA: pad % 4, padB: pad / 4 % 4, padC: pad / 16 % 4, offC: pad / 64 % 4,
		}.check(t, seed)
	})
}
