package vec_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/ddpbatch/ddpbatch/trainer/vec"
)

func random(r *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
	return x
}

// near fails unless both values are equal up to tol times the larger of want and 1.
func near(t *testing.T, what string, got float32, want, tol float64) {
	t.Helper()
	if !(math.Abs(float64(got)-want) <= tol*math.Max(1, math.Abs(want))) {
		t.Fatalf("%s is %v, want %v", what, got, want)
	}
}

// halving computes a float32 sum in the documented order.
func halving(x []float32, lanes int) float32 {
	s := make([]float32, lanes)
	for i, v := range x {
		s[i%lanes] += v
	}
	for half := lanes / 2; half > 0; half /= 2 {
		for i := range half {
			s[i] += s[i+half]
		}
	}
	return s[0]
}

// TestReductionOrder checks that reductions sum in the documented order with all kernels.
func TestReductionOrder(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, name := range vec.Kernels() {
		u := vec.Named(name)
		for _, n := range []int{0, 1, 63, 64, 65, 1000} {
			x, y := random(r, n), random(r, n)
			products, squares := make([]float32, n), 0.0
			for i := range x {
				products[i] = x[i] * y[i]
				squares += float64(x[i]) * float64(x[i])
			}
			if got, want := u.Sum(x), halving(x, 64); got != want {
				t.Errorf("%s: sum of %d elements is %v, want %v", name, n, got, want)
			}
			if got, want := u.Dot(x, y), halving(products, 64); got != want {
				t.Errorf("%s: dot product of %d elements is %v, want %v", name, n, got, want)
			}
			if got := u.SumSquares(x); math.Abs(got-squares) > 1e-13*squares {
				t.Errorf("%s: sum of %d squares is %v, want %v", name, n, got, squares)
			}
			e := make([]float32, n)
			sum := u.ExpSum(e, x, 1.5)
			if want := halving(e, 64); sum != want {
				t.Errorf("%s: sum of %d exponentials is %v, want %v", name, n, sum, want)
			}
			for i, v := range x {
				near(t, "exp(x-1.5)", e[i], math.Exp(float64(v)-1.5), 3e-7)
			}
		}
	}
}

// TestMax checks the maximum at each position, with infinities and NaN.
func TestMax(t *testing.T) {
	for _, name := range vec.Kernels() {
		u := vec.Named(name)
		if got := u.Max(nil); got != -inf {
			t.Errorf("%s: the largest of nothing is %v", name, got)
		}
		for n := 1; n < 200; n += 3 {
			for _, at := range []int{0, n / 2, n - 1} {
				for _, c := range []struct{ v, most float32 }{{3, 3}, {-9, -1}, {inf, inf}, {-inf, -1}, {nan, nan}, {math.MaxFloat32, math.MaxFloat32}} {
					x := make([]float32, n)
					for i := range x {
						x[i] = -1
					}
					x[at] = c.v
					most := c.most
					if n == 1 {
						most = c.v
					}
					if got := u.Max(x); !sameBits32(got, most) {
						t.Errorf("%s: %v at %d of %d: largest is %v, want %v", name, c.v, at, n, got, most)
					}
				}
			}
		}
	}
}

// TestSoftmaxGrad checks the gradient of a softmax by hand.
func TestSoftmaxGrad(t *testing.T) {
	dx := make([]float32, 2)
	vec.New().SoftmaxGrad(dx, []float32{0.25, 0.75}, []float32{3, 1}, 1.5, 0.5)
	if dx[0] != 0.25*1.5*0.5 || dx[1] != -0.75*0.5*0.5 {
		t.Errorf("gradient is %v", dx)
	}
}

// TestLayerNorm compares layer normalization and its gradients with float64, with a mean that is
// large compared with the deviations.
func TestLayerNorm(t *testing.T) {
	u := vec.New()
	r := rand.New(rand.NewPCG(3, 4))
	const rows, n, eps = 5, 77, 1e-5
	w, b := random(r, n), random(r, n)
	x, dy := random(r, rows*n), random(r, rows*n)
	y, dx := make([]float32, n), make([]float32, n)
	mean, rstd := make([]float32, rows), make([]float32, rows)
	dw, db := random(r, n), random(r, n)
	var wantW, wantB [n]float64
	for j := range n {
		wantW[j], wantB[j] = float64(dw[j]), float64(db[j])
	}
	for i := range rows {
		row, grad := x[i*n:][:n], dy[i*n:][:n]
		m, variance, sum, dot := 0.0, 0.0, 0.0, 0.0
		for j := range row {
			row[j] += 100
			m += float64(row[j]) / n
		}
		for _, v := range row {
			variance += (float64(v) - m) * (float64(v) - m) / n
		}
		s := 1 / math.Sqrt(variance+eps)
		normal := func(j int) float64 { return (float64(row[j]) - m) * s }
		for j := range row {
			g := float64(grad[j]) * float64(w[j])
			sum += g / n
			dot += g * normal(j) / n
			wantW[j] += float64(grad[j]) * normal(j)
			wantB[j] += float64(grad[j])
		}
		mean[i], rstd[i] = u.LayerNorm(y, row, w, b, eps)
		near(t, "mean", mean[i], m, 1e-6)
		near(t, "rstd", rstd[i], s, 1e-5)
		u.LayerNormGrad(dx, grad, row, w, mean[i], rstd[i], false)
		added := random(r, n)
		before := append([]float32(nil), added...)
		u.LayerNormGrad(added, grad, row, w, mean[i], rstd[i], true)
		for j := range row {
			near(t, "y", y[j], normal(j)*float64(w[j])+float64(b[j]), 1e-4)
			near(t, "dx", dx[j], s*(float64(grad[j])*float64(w[j])-sum-normal(j)*dot), 1e-4)
			if added[j] != before[j]+dx[j] {
				t.Fatalf("added gradient is %v, want %v", added[j], before[j]+dx[j])
			}
		}
	}
	// In two parts, which must give the same result as one.
	whole, wholeB := append([]float32(nil), dw...), append([]float32(nil), db...)
	u.LayerNormParamGrad(whole, wholeB, dy, x, mean, rstd, n)
	u.LayerNormParamGrad(dw[:40], db[:40], dy, x, mean, rstd, n)
	u.LayerNormParamGrad(dw[40:], db[40:], dy[40:], x[40:], mean, rstd, n)
	for j := range n {
		near(t, "dw", dw[j], wantW[j], 1e-4)
		near(t, "db", db[j], wantB[j], 1e-5)
		if dw[j] != whole[j] || db[j] != wholeB[j] {
			t.Fatalf("column %d is %v, %v in parts and %v, %v in one", j, dw[j], db[j], whole[j], wholeB[j])
		}
	}
}

// TestColumnSum checks that rows are summed in order, with and without accumulation.
func TestColumnSum(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for rows := range 10 {
		const n, stride = 21, 23
		x, dst := random(r, max(0, rows-1)*stride+n), random(r, n)
		for _, accumulate := range []bool{true, false} {
			want := make([]float32, n)
			if accumulate {
				copy(want, dst)
			}
			for i := range rows {
				for j := range want {
					want[j] += x[i*stride+j]
				}
			}
			got := append([]float32(nil), dst...)
			vec.New().ColumnSum(got, x, rows, stride, accumulate)
			for j := range want {
				if got[j] != want[j] {
					t.Fatalf("column %d of %d rows is %v, want %v", j, rows, got[j], want[j])
				}
			}
		}
	}
}
