package vec_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/trainer/vec"
)

// sameBits32 reports whether both values are bit-identical. All NaNs are equal.
func sameBits32(a, b float32) bool {
	return math.Float32bits(a) == math.Float32bits(b) || a != a && b != b
}

// checkSame fails unless a call has the same results with all kernels.
func checkSame(t *testing.T, c call, n, off int, fill func(arena)) {
	t.Helper()
	var want arena
	var wantResults []float64
	for _, name := range vec.Kernels() {
		got := newArena(n, off)
		fill(got)
		results := c.run(vec.Named(name), got)
		if want.h == nil {
			want, wantResults = got, results
		}
		for i, v := range results {
			if w := wantResults[i]; math.Float64bits(v) != math.Float64bits(w) && (v == v || w == w) {
				t.Fatalf("%s, %d elements: result %d is %x with %s, %x with %s", c.name, n, i, v, name, w, vec.Kernels()[0])
			}
		}
		for s := range got.f {
			for i, v := range got.f[s] {
				if w := want.f[s][i]; !sameBits32(v, w) {
					t.Fatalf("%s, %d elements: slice %d at %d is %x with %s, %x with %s", c.name, n, s, i, v, name, w, vec.Kernels()[0])
				}
			}
			for i, v := range got.f[s][n : n+20] {
				if v == v {
					t.Fatalf("%s, %d elements: %s wrote %v to element %d", c.name, n, name, v, n+i)
				}
			}
		}
		for i, v := range got.h {
			if v != want.h[i] {
				t.Fatalf("%s, %d elements: half %d is %x with %s, %x with %s", c.name, n, i, v, name, want.h[i], vec.Kernels()[0])
			}
		}
	}
}

// TestKernelsAgree checks that every function gives the same bits with all kernels, for every
// length around the boundaries of registers and loop iterations, at any alignment, for all kinds
// of values.
func TestKernelsAgree(t *testing.T) {
	lengths := []int{127, 128, 129, 200, 255, 257, 1000, 1023}
	for n := range 71 {
		lengths = append(lengths, n)
	}
	for _, c := range calls {
		t.Run(c.name, func(t *testing.T) {
			for _, n := range lengths {
				for kind := range 3 {
					checkSame(t, c, n, (n+kind*5)%17, func(a arena) { a.fill(uint64(n), kind) })
				}
			}
		})
	}
}

// FuzzKernelsAgree checks that any values give the same bits with all kernels.
func FuzzKernelsAgree(f *testing.F) {
	f.Add(uint8(5), uint8(3), []byte("a word of four bytes for each of the slices, and two bytes more"))
	f.Fuzz(func(t *testing.T, number, off uint8, data []byte) {
		const size = 4*4 + 2 // bytes of one element of all slices
		checkSame(t, calls[int(number)%len(calls)], len(data)/size, int(off)%40, func(a arena) {
			for i := range a.h {
				element := data[i*size:]
				for s := range a.f {
					a.f[s][i] = math.Float32frombits(binary.LittleEndian.Uint32(element[4*s:]))
				}
				a.h[i] = binary.LittleEndian.Uint16(element[16:])
			}
		})
	})
}

// TestAllocatesNothing checks that no function allocates memory.
func TestAllocatesNothing(t *testing.T) {
	for _, name := range vec.Kernels() {
		u, a := vec.Named(name), newArena(100, 3)
		if n := testing.AllocsPerRun(10, func() {
			u.LayerNormParamGrad(a.f[0][:30], a.f[1][:30], a.f[2], a.f[3], a.nums[:3], a.nums[3:], 30)
			u.LayerNormGrad(a.f[0], a.f[1], a.f[2], a.f[3], 1, 2, true)
			u.ColumnSum(a.f[0][:10], a.f[1], 7, 10, false)
			u.Dropout(a.f[0], a.f[1], 2, 1<<31, 1, 1<<32-50)
			u.Adam(a.f[0], a.f[1], a.f[2], a.f[3], adamFactors(a.nums))
			u.RoundBF16(a.h, a.f[0])
			_ = u.Sum(a.f[0])
		}); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

// TestMisusePanics checks that slices with lengths that do not match panic with the lengths.
func TestMisusePanics(t *testing.T) {
	u := vec.New()
	a, b := make([]float32, 12), make([]float32, 11)
	for name, c := range map[string]struct {
		run  func()
		want string
	}{
		"two lengths":         {func() { u.Tanh(a, b) }, "slices of 12 and 11 elements"},
		"three lengths":       {func() { u.Add(a, a, b) }, "slices of 12 and 11 elements"},
		"dot":                 {func() { u.Dot(b, a) }, "slices of 11 and 12 elements"},
		"buffer":              {func() { u.SGD(a, a, b, vec.SGDFactors{}) }, "slices of 12 and 11 elements"},
		"halves":              {func() { u.RoundBF16(make([]uint16, 3), a) }, "slices of 3 and 12 elements"},
		"rows overlap":        {func() { u.ColumnSum(a[:3], a, 2, 2, true) }, "2 rows of 3 elements, 2 apart, in a slice of 12"},
		"rows beyond the end": {func() { u.ColumnSum(a[:3], b, 4, 3, true) }, "4 rows of 3 elements, 3 apart, in a slice of 11"},
		"stride that wraps":   {func() { u.ColumnSum(a[:3], b, 5, math.MaxInt/2, true) }, "5 rows of 3 elements"},
		"negative rows":       {func() { u.ColumnSum(a[:3], b, -1, 3, true) }, "-1 rows of 3 elements"},
		"rows of dy":          {func() { u.LayerNormParamGrad(a[:4], a[:4], b, a, a[:3], a[:3], 4) }, "3 rows of 4 elements"},
		"rows of rstd":        {func() { u.LayerNormParamGrad(a[:4], a[:4], a, a, a[:3], a[:2], 4) }, "slices of 3 and 2"},
		"unknown kernels":     {func() { vec.Named("mmx") }, `no kernels "mmx"`},
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if got := fmt.Sprint(recover()); !strings.Contains(got, c.want) {
					t.Errorf("panic is %q, want %q in it", got, c.want)
				}
			}()
			c.run()
		})
	}
}

// TestKernelNames checks that New uses the fastest kernels, and that each name selects its
// kernels.
func TestKernelNames(t *testing.T) {
	names := vec.Kernels()
	if got := vec.New().Kernel(); got != names[0] {
		t.Errorf("New() uses %q, want the first of %q", got, names)
	}
	for _, name := range names {
		if got := vec.Named(name).Kernel(); got != name {
			t.Errorf("Named(%q) uses %q", name, got)
		}
	}
}
