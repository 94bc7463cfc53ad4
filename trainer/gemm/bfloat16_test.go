package gemm_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/ddpbatch/ddpbatch/trainer/gemm"
)

// TestBFloat16Shapes checks all sizes around the boundaries of pairs, tiles, and registers, in
// every orientation.
func TestBFloat16Shapes(t *testing.T) {
	for _, m := range []int{0, 1, 6, 14, 17, 33, gemm.PackRows} {
		for _, n := range []int{0, 1, 15, 16, 17, 31, 33, 65} {
			for _, k := range []int{0, 1, 2, 3, 15, 16, 31, 32, 33, 63, 65} {
				for way := range 4 {
					product{
						m: m, n: n, k: k, bf16: true,
						transA: way&1 != 0, transB: way&2 != 0, from: origin((m + n + k) % 3),
						padA: (m + n) % 3, padB: (n + k) % 4, padC: (m + k) % 3, offC: (m + n + k) % 17,
					}.check(t, uint64(m*1000+n*10+k))
				}
			}
		}
	}
}

// TestBFloat16Rounding checks how operands are rounded, by multiplication by 1, in all ways to
// pack A and B.
func TestBFloat16Rounding(t *testing.T) {
	inf := math.Inf(1)
	cases := []struct {
		x    float32
		want float64
	}{
		{1, 1}, {0, 0}, {0x1p-126, 0x1p-126}, {-3.5, -3.5},
		{1 + 0x1p-8, 1},                          // a tie, to even
		{1 + 0x3p-8, 1 + 0x1p-6},                 // a tie, to even, upwards
		{1 + 0x1p-8 + 0x1p-23, 1 + 0x1p-7},       // just above a tie
		{-(1 + 0x3p-8 - 0x1p-23), -(1 + 0x1p-7)}, // just below a tie
		{2 - 0x1p-23, 2},
		{0x1.fep127, 0x1.fep127}, // the largest bfloat16
		{math.MaxFloat32, inf}, {-math.MaxFloat32, -inf},
		{float32(inf), inf}, {float32(-inf), -inf},
		{float32(math.NaN()), math.NaN()},
		{math.Float32frombits(0x7f800001), math.NaN()}, // whose upper half is infinity
		{math.Float32frombits(0xffffffff), math.NaN()}, // which must not overflow to zero
	}
	x := make([]float32, len(cases))
	for i, c := range cases {
		x[i] = c.x
	}
	n, one := len(x), []float32{1}
	for _, ws := range workspaces() {
		got := make([]float32, n)
		for name, run := range map[string]func(){
			"rows of A": func() {
				gemm.BFloat16(ws, gemm.Dense(got, n, 1), gemm.Dense(x, n, 1), gemm.Dense(one, 1, 1), gemm.Zero())
			},
			"columns of A": func() {
				gemm.BFloat16(ws, gemm.Dense(got, n, 1), gemm.Dense(x, 1, n).T(), gemm.Dense(one, 1, 1), gemm.Zero())
			},
			"rows of B": func() {
				gemm.BFloat16(ws, gemm.Dense(got, 1, n), gemm.Dense(one, 1, 1), gemm.Dense(x, 1, n), gemm.Zero())
			},
			"columns of B": func() {
				gemm.BFloat16(ws, gemm.Dense(got, 1, n), gemm.Dense(one, 1, 1), gemm.Dense(x, n, 1).T(), gemm.Zero())
			},
		} {
			clear(got)
			run()
			for i, c := range cases {
				if v := float64(got[i]); v != c.want && (v == v || c.want == c.want) {
					t.Errorf("%s, %s: %x is rounded to %x, want %x", ws.Kernel(), name, c.x, v, c.want)
				}
			}
		}
	}
}

// TestBFloat16IsFloat32OfRounded checks that BFloat16 is bit-identical to Float32 of rounded
// operands without AVX512_BF16, and close to it otherwise.
func TestBFloat16IsFloat32OfRounded(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 8))
	const m, n, k = 37, 70, 77
	x := func(count int) (plain, rounded []float32) {
		for range count {
			v := float32(r.NormFloat64())
			plain, rounded = append(plain, v), append(rounded, float32(toBFloat16(v)))
		}
		return plain, rounded
	}
	a, roundA := x(m * k)
	b, roundB := x(k * n)
	for _, ws := range workspaces() {
		got, want := make([]float32, m*n), make([]float32, m*n)
		gemm.BFloat16(ws, gemm.Dense(got, m, n), gemm.Dense(a, m, k), gemm.Dense(b, k, n), gemm.Zero())
		gemm.Float32(ws, gemm.Dense(want, m, n), gemm.Dense(roundA, m, k), gemm.Dense(roundB, k, n), gemm.Zero())
		if ws.Kernel() != "avx512_bf16" {
			sameBits(t, ws.Kernel(), got, want)
			continue
		}
		for i := range got {
			if math.Abs(float64(got[i]-want[i])) > k*0x1p-20 {
				t.Fatalf("%s: element %d is %v, want about %v", ws.Kernel(), i, got[i], want[i])
			}
		}
	}
}
