package nn

import (
	"math"
	"testing"

	"github.com/ddpbatch/ddpbatch/trainer/device"
	"github.com/ddpbatch/ddpbatch/trainer/random"
)

// fill returns n values between -1 and 1.
func fill(n int, seed uint64) []float32 {
	x := make([]float32, n)
	random.New(seed).Uniform(-1, 1, x)
	return x
}

// put returns a tensor with these values.
func put(m device.Memory, v []float32) device.Tensor {
	t := m.Alloc(device.Float32, len(v))
	m.Write(t, v)
	return t
}

// putInts returns a tensor of these tokens or labels.
func putInts(m device.Memory, v []int32) device.Tensor {
	t := m.Alloc(device.Int32, len(v))
	m.WriteInts(t, v)
	return t
}

// get returns a copy of a tensor's values.
func get(m device.Memory, t device.Tensor) []float32 {
	v := make([]float32, t.Len())
	m.Read(v, t)
	return v
}

// widen returns x in float64.
func widen(x []float32) []float64 {
	w := make([]float64, len(x))
	for i, v := range x {
		w[i] = float64(v)
	}
	return w
}

// sameBits fails unless got and want are bit-identical.
func sameBits(t *testing.T, what string, got, want []float32) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d elements, want %d", what, len(got), len(want))
	}
	for i := range want {
		if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
			t.Fatalf("%s: element %d is %v, want %v", what, i, got[i], want[i])
		}
	}
}

// checkClose fails if an element differs by more than most times the largest expected element.
func checkClose(t *testing.T, what string, got, want []float32, most float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d elements, want %d", what, len(got), len(want))
	}
	largest := 0.0
	for _, v := range want {
		largest = max(largest, math.Abs(float64(v)))
	}
	for i, v := range want {
		if diff := math.Abs(float64(got[i]) - float64(v)); !(diff <= most*largest) {
			t.Errorf("%s: element %d is %v, want %v; differs by %.2g of the largest", what, i, got[i], v, diff/largest)
			return
		}
	}
}

// checkRelative fails if the relative difference of got from want exceeds most.
func checkRelative(t *testing.T, what string, got, want, most float64) {
	t.Helper()
	if diff := math.Abs(got - want); !(diff <= most*math.Abs(want)) {
		t.Errorf("%s is %v, want %v; differs by %.2g of it", what, got, want, diff/math.Abs(want))
	}
}

// checkGradient compares got with the central differences of f, a function in float64, around at.
func checkGradient(t *testing.T, what string, got []float32, at []float64, f func() float64) {
	t.Helper()
	const h = 1e-5
	if len(got) != len(at) {
		t.Fatalf("%s: %d elements, want %d", what, len(got), len(at))
	}
	for i, v := range at {
		at[i] = v + h
		up := f()
		at[i] = v - h
		down := f()
		at[i] = v
		want := (up - down) / (2 * h)
		if diff := math.Abs(float64(got[i]) - want); !(diff <= 2e-6+2e-5*math.Abs(want)) {
			t.Errorf("%s: element %d is %v, differences give %v", what, i, got[i], want)
			return
		}
	}
}
