package vec_test

import (
	"math"
	"math/rand/v2"

	"github.com/ddpbatch/ddpbatch/trainer/vec"
)

// arena holds the arguments of a call: slices of equal length.
type arena struct {
	f    [4][]float32
	h    []uint16
	nums [6]float32 // scalar arguments
}

// call is one function of the package, applied to an arena. It may change all slices and returns
// its other results.
type call struct {
	name string
	run  func(u *vec.Unit, a arena) []float64
}

func none(f func(u *vec.Unit, a arena)) func(*vec.Unit, arena) []float64 {
	return func(u *vec.Unit, a arena) []float64 {
		f(u, a)
		return nil
	}
}

func adamFactors(s [6]float32) vec.AdamFactors {
	return vec.AdamFactors{Beta1: s[0], Beta2: 0.999, New1: s[1], New2: 0.001, Keep: s[2], Decay: s[3],
		Correction: s[4], Eps: 1e-8, Rate: s[5], GradScale: 0.7}
}

func sgdFactors(s [6]float32, nesterov, first bool) vec.SGDFactors {
	return vec.SGDFactors{LR: s[0], Momentum: s[1], Decay: s[2], GradScale: s[3], Nesterov: nesterov, First: first}
}

// calls contains all functions of the package, some with a slice as both source and destination.
var calls = []call{
	{"Add", none(func(u *vec.Unit, a arena) { u.Add(a.f[0], a.f[1], a.f[2]) })},
	{"Add in place", none(func(u *vec.Unit, a arena) { u.Add(a.f[0], a.f[0], a.f[1]) })},
	{"Scale", none(func(u *vec.Unit, a arena) { u.Scale(a.f[0], a.f[1], a.nums[0]) })},
	{"Scale in place", none(func(u *vec.Unit, a arena) { u.Scale(a.f[0], a.f[0], a.nums[0]) })},
	{"ReLU", none(func(u *vec.Unit, a arena) { u.ReLU(a.f[0], a.f[1]) })},
	{"ReLU in place", none(func(u *vec.Unit, a arena) { u.ReLU(a.f[0], a.f[0]) })},
	{"ReLUGrad", none(func(u *vec.Unit, a arena) { u.ReLUGrad(a.f[0], a.f[1], a.f[2]) })},
	{"Tanh", none(func(u *vec.Unit, a arena) { u.Tanh(a.f[0], a.f[1]) })},
	{"TanhGrad", none(func(u *vec.Unit, a arena) { u.TanhGrad(a.f[0], a.f[0], a.f[1]) })},
	{"GELU", none(func(u *vec.Unit, a arena) { u.GELU(a.f[0], a.f[1]) })},
	{"GELUGrad", none(func(u *vec.Unit, a arena) { u.GELUGrad(a.f[0], a.f[0], a.f[1]) })},
	{"RoundBF16", none(func(u *vec.Unit, a arena) { u.RoundBF16(a.h, a.f[0]) })},
	{"WidenBF16", none(func(u *vec.Unit, a arena) { u.WidenBF16(a.f[0], a.h) })},
	{"Sum", func(u *vec.Unit, a arena) []float64 { return []float64{float64(u.Sum(a.f[0]))} }},
	{"Dot", func(u *vec.Unit, a arena) []float64 { return []float64{float64(u.Dot(a.f[0], a.f[1]))} }},
	{"SumSquares", func(u *vec.Unit, a arena) []float64 { return []float64{u.SumSquares(a.f[0])} }},
	{"Max", func(u *vec.Unit, a arena) []float64 { return []float64{float64(u.Max(a.f[0]))} }},
	{"ColumnSum", none(func(u *vec.Unit, a arena) {
		n := len(a.f[0]) / 7
		u.ColumnSum(a.f[0][:n], a.f[1], 7, n, false)
		u.ColumnSum(a.f[0][:n], a.f[1], 3, n, true)
	})},
	{"ExpSum", func(u *vec.Unit, a arena) []float64 {
		return []float64{float64(u.ExpSum(a.f[0], a.f[1], a.nums[0]))}
	}},
	{"SoftmaxGrad", none(func(u *vec.Unit, a arena) { u.SoftmaxGrad(a.f[0], a.f[1], a.f[2], a.nums[0], a.nums[1]) })},
	{"LayerNorm", func(u *vec.Unit, a arena) []float64 {
		mean, rstd := u.LayerNorm(a.f[0], a.f[1], a.f[2], a.f[3], 1e-5)
		return []float64{float64(mean), float64(rstd)}
	}},
	{"LayerNormGrad", none(func(u *vec.Unit, a arena) {
		u.LayerNormGrad(a.f[0], a.f[1], a.f[2], a.f[3], a.nums[0], a.nums[1], false)
	})},
	{"LayerNormGrad added", none(func(u *vec.Unit, a arena) {
		u.LayerNormGrad(a.f[0], a.f[1], a.f[2], a.f[3], a.nums[0], a.nums[1], true)
	})},
	{"LayerNormParamGrad", none(func(u *vec.Unit, a arena) {
		n := len(a.f[0]) / 3
		u.LayerNormParamGrad(a.f[0][:n], a.f[1][:n], a.f[2], a.f[3], a.nums[:3], a.nums[3:], n)
	})},
	{"Dropout", none(func(u *vec.Unit, a arena) { u.Dropout(a.f[0], a.f[1], a.nums[0], 1<<30, 0x123456789abcdef, 1<<40+5) })},
	{"Dropout across 2^32", none(func(u *vec.Unit, a arena) { u.Dropout(a.f[0], a.f[1], 2, 1<<31, 77, 1<<33-20) })},
	{"Adam", none(func(u *vec.Unit, a arena) { u.Adam(a.f[0], a.f[1], a.f[2], a.f[3], adamFactors(a.nums)) })},
	{"Lion", none(func(u *vec.Unit, a arena) {
		u.Lion(a.f[0], a.f[1], a.f[2], vec.LionFactors{Beta1: a.nums[0], Beta2: 0.99, New1: a.nums[1], New2: 0.01, Keep: a.nums[2], Rate: a.nums[3], GradScale: 0.7})
	})},
	{"MuonMomentum", none(func(u *vec.Unit, a arena) { u.MuonMomentum(a.f[0], a.f[1], a.f[2], a.nums[0], a.nums[1], a.nums[2]) })},
	{"MuonStep", none(func(u *vec.Unit, a arena) { u.MuonStep(a.f[0], a.f[1], a.nums[0], a.nums[1]) })},
	{"SGD", none(func(u *vec.Unit, a arena) { u.SGD(a.f[0], a.f[1], nil, sgdFactors(a.nums, false, false)) })},
	{"SGD momentum first", none(func(u *vec.Unit, a arena) { u.SGD(a.f[0], a.f[1], a.f[2], sgdFactors(a.nums, false, true)) })},
	{"SGD momentum", none(func(u *vec.Unit, a arena) { u.SGD(a.f[0], a.f[1], a.f[2], sgdFactors(a.nums, false, false)) })},
	{"SGD Nesterov first", none(func(u *vec.Unit, a arena) { u.SGD(a.f[0], a.f[1], a.f[2], sgdFactors(a.nums, true, true)) })},
	{"SGD Nesterov", none(func(u *vec.Unit, a arena) { u.SGD(a.f[0], a.f[1], a.f[2], sgdFactors(a.nums, true, false)) })},
}

var inf, nan = float32(math.Inf(1)), float32(math.NaN())

// specials contains special values and values near thresholds.
var specials = []float32{0, float32(math.Copysign(0, -1)), 1, -1, 0x1p-149, -0x1p-149, 0x1.8p-127, -0x1p-126, 0x1p-75,
	0x1.fffffep127, -0x1.fffffep127, 0x1p64, inf, -inf, nan, 88.7, 88.8, -87.4, -103.9, -104.1, 89, -150, 0.625, -0.625, 9.1, -20.5}

// fill writes one of 3 kinds of values: usual ones, random bits, and special ones among usual ones.
func (a arena) fill(seed uint64, kind int) {
	r := rand.New(rand.NewPCG(seed, uint64(kind)))
	for _, s := range a.f {
		for i := range s {
			s[i] = float32(3 * r.NormFloat64())
			switch {
			case kind == 1:
				s[i] = math.Float32frombits(r.Uint32())
			case kind == 2 && r.IntN(3) > 0:
				s[i] = specials[r.IntN(len(specials))]
			}
		}
	}
	for i := range a.h {
		a.h[i] = uint16(r.Uint32())
	}
}

// newArena returns an arena of n elements at offset off in larger slices that are full of NaN.
func newArena(n, off int) arena {
	var a arena
	for i := range a.f {
		memory := make([]float32, off+n+40)
		for j := range memory {
			memory[j] = nan
		}
		a.f[i] = memory[off:][:n]
	}
	a.h = make([]uint16, off+n+40)[off:][:n]
	a.nums = [6]float32{0.9, 0.1, 0.99, 0.01, 0.8, -0.02}
	return a
}
