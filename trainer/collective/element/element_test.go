package element

import (
	"bytes"
	"math"
	"testing"
)

// TestF16IsExactAndRoundsToNearest checks the conversion of all half-precision values, and the
// rounding between each of them.
func TestF16IsExactAndRoundsToNearest(t *testing.T) {
	for bits := range 1 << 16 {
		h := F16(bits)
		v := h.Float32()
		if v != v {
			if ToF16(v) != 0x7e00 {
				t.Fatalf("NaN %#04x became %#04x", bits, ToF16(v))
			}
			continue
		}
		if got := ToF16(v); got != h {
			t.Fatalf("%#04x is %v, which became %#04x", bits, v, got)
		}
		if bits&0x7fff >= 0x7bff {
			continue // the largest value and infinity have no successor
		}
		next := F16(bits + 1)
		middle := (v + next.Float32()) / 2
		even := h
		if bits&1 == 1 {
			even = next
		}
		toward := float32(math.Copysign(math.Inf(1), float64(v)))
		if math.Signbit(float64(v)) {
			toward = float32(math.Inf(-1))
		}
		for _, tt := range []struct {
			v    float32
			want F16
		}{{middle, even}, {math.Nextafter32(middle, toward), next}, {math.Nextafter32(middle, v), h}} {
			if got := ToF16(tt.v); got != tt.want {
				t.Fatalf("%v rounded to %#04x, want %#04x", tt.v, got, tt.want)
			}
		}
	}
	for _, tt := range []struct {
		v    float32
		want F16
	}{{65519, 0x7bff}, {65520, 0x7c00}, {-1e30, 0xfc00}, {1e-30, 0}, {float32(math.Copysign(0, -1)), 0x8000}} {
		if got := ToF16(tt.v); got != tt.want {
			t.Errorf("%v rounded to %#04x, want %#04x", tt.v, got, tt.want)
		}
	}
	for bits := range 1 << 16 {
		if v := BF16(bits).Float32(); v == v && ToBF16(v) != BF16(bits) {
			t.Fatalf("bfloat16 %#04x became %#04x", bits, ToBF16(v))
		}
	}
}

// check compares the results of Combine and Finish for a and b with the expected ones, for every
// allowed aliasing.
func check[T Number](t *testing.T, o Op, a, b, combined, finished []T) {
	t.Helper()
	kind := Of[T]()
	for name, alias := range map[string]func() (dst, x, y []T){
		"apart":     func() (dst, x, y []T) { return make([]T, len(a)), clone(a), clone(b) },
		"onto left": func() (dst, x, y []T) { x = clone(a); return x, x, clone(b) },
		"onto right": func() (dst, x, y []T) {
			y = clone(b)
			return y, clone(a), y
		},
	} {
		dst, x, y := alias()
		o.Combine(kind, Bytes(dst), Bytes(x), Bytes(y))
		if !bytes.Equal(Bytes(dst), Bytes(combined)) {
			t.Errorf("%v of %v, %s: got %v, want %v", o, kind, name, dst, combined)
		}
		o.Finish(kind, Bytes(dst), 2)
		if !bytes.Equal(Bytes(dst), Bytes(finished)) {
			t.Errorf("%v of %v, %s: finished %v, want %v", o, kind, name, dst, finished)
		}
	}
}

func clone[T any](s []T) []T { return append([]T(nil), s...) }

// TestReductions checks the arithmetic of each reduction and element type, with rounding,
// overflow, and NaN.
func TestReductions(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	check(t, Sum, []float32{1, inf, 0.1}, []float32{2, 1, 0.2}, []float32{3, inf, float32(0.1) + float32(0.2)}, []float32{3, inf, float32(0.1) + float32(0.2)})
	check(t, Mean, []float32{1, 3}, []float32{2, -5}, []float32{3, -2}, []float32{1.5, -1})
	check(t, Max, []float32{1, -inf}, []float32{2, -3}, []float32{2, -3}, []float32{2, -3})
	check(t, Mean, []float64{1, 3}, []float64{2, -5}, []float64{3, -2}, []float64{1.5, -1})
	check(t, Product, []float64{3, 0.5}, []float64{-2, 0.5}, []float64{-6, 0.25}, []float64{-6, 0.25})
	check(t, Sum, []int8{100, -3}, []int8{100, 1}, []int8{-56, -2}, []int8{-56, -2})
	check(t, Mean, []int8{10, -3}, []int8{5, -4}, []int8{15, -7}, []int8{7, -3})
	check(t, Min, []uint8{200, 3}, []uint8{100, 4}, []uint8{100, 3}, []uint8{100, 3})
	check(t, Mean, []uint8{200}, []uint8{50}, []uint8{250}, []uint8{125})
	check(t, Max, []int32{-5}, []int32{-6}, []int32{-5}, []int32{-5})
	check(t, Mean, []int32{-5}, []int32{-6}, []int32{-11}, []int32{-5})
	check(t, Mean, []uint32{1 << 31}, []uint32{1}, []uint32{1<<31 + 1}, []uint32{1 << 30})
	check(t, Product, []int64{1 << 40}, []int64{-2}, []int64{-1 << 41}, []int64{-1 << 41})
	check(t, Mean, []uint64{1 << 63}, []uint64{2}, []uint64{1<<63 + 2}, []uint64{1<<62 + 1})
	// 256 + 1 needs nine significant bits, and bfloat16 has eight: it rounds to even.
	check(t, Sum, []BF16{ToBF16(256), ToBF16(1)}, []BF16{ToBF16(1), ToBF16(2)}, []BF16{ToBF16(256), ToBF16(3)}, []BF16{ToBF16(256), ToBF16(3)})
	check(t, Mean, []BF16{ToBF16(3)}, []BF16{ToBF16(4)}, []BF16{ToBF16(7)}, []BF16{ToBF16(3.5)})
	check(t, Mean, []F16{ToF16(3)}, []F16{ToF16(4)}, []F16{ToF16(7)}, []F16{ToF16(3.5)})
	check(t, Sum, []F16{ToF16(2048)}, []F16{ToF16(1)}, []F16{ToF16(2048)}, []F16{ToF16(2048)})

	dst := []float32{0, 0}
	for _, o := range []Op{Max, Min} {
		o.Combine(Float32, Bytes(dst), Bytes([]float32{nan, 1}), Bytes([]float32{1, nan}))
		if dst[0] == dst[0] || dst[1] == dst[1] {
			t.Errorf("%v of NaN: got %v", o, dst)
		}
	}
}

// TestLongBF16Sums checks sums and means of bfloat16 values over more than one block, of which the
// last one is not full.
func TestLongBF16Sums(t *testing.T) {
	const n = 2*halfBlock + 3
	a, b := make([]BF16, n), make([]BF16, n)
	for i := range a {
		a[i], b[i] = ToBF16(float32(i%100)), ToBF16(float32(i%7))
	}
	Sum.Combine(BFloat16, Bytes(a), Bytes(a), Bytes(b))
	Mean.Finish(BFloat16, Bytes(a), 4)
	for i := range a {
		if want := float32(i%100+i%7) / 4; a[i].Float32() != want {
			t.Fatalf("element %d: got %v, want %v", i, a[i].Float32(), want)
		}
	}
}

// TestTypesOfGo checks the element type of each Go type, and that memory of a wrong length is not
// viewed.
func TestTypesOfGo(t *testing.T) {
	for i, got := range []Type{Of[float32](), Of[float64](), Of[BF16](), Of[F16](), Of[int8](), Of[uint8](), Of[int32](), Of[uint32](), Of[int64](), Of[uint64]()} {
		if got != Types()[i] {
			t.Errorf("type %d is %v, want %v", i, got, Types()[i])
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("three bytes were taken for float32")
		}
	}()
	View[float32](make([]byte, 3))
}
