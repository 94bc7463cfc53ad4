package element

import (
	"fmt"
	"math"
	"unsafe"
)

// halfBlock is the number of 16-bit elements that are widened at a time. A block fits the stack and
// the L1 cache.
const halfBlock = 512

// Round rounds src to bfloat16 like [ToBF16]. Both slices have the same length.
func Round(dst []BF16, src []float32) { roundBF16(halves(Bytes(dst)), src) }

// Widen converts src to float32, which is exact.
func Widen(dst []float32, src []BF16) { widenBF16(dst, halves(Bytes(src))) }

func widenBF16(dst []float32, src []uint16) { kernels.WidenBF16(dst, src) }
func roundBF16(dst []uint16, src []float32) { kernels.RoundBF16(dst, src) }

func widenF16(dst []float32, src []uint16) {
	for i, h := range src {
		dst[i] = F16(h).Float32()
	}
}

func roundF16(dst []uint16, src []float32) {
	for i, v := range src {
		dst[i] = uint16(ToF16(v))
	}
}

// combineHalves combines 16-bit floating-point elements in float32.
func combineHalves(o Op, dst, a, b []byte, widen func([]float32, []uint16), round func([]uint16, []float32)) {
	var x, y [halfBlock]float32
	d, p, q := halves(dst), halves(a), halves(b)
	for from := 0; from < len(d); from += halfBlock {
		to := min(from+halfBlock, len(d))
		n := to - from
		widen(x[:n], p[from:to])
		widen(y[:n], q[from:to])
		apply(o, x[:n], x[:n], y[:n])
		round(d[from:to], x[:n])
	}
}

// scaleHalves multiplies by 1/n.
func scaleHalves(b []byte, n int, widen func([]float32, []uint16), round func([]uint16, []float32)) {
	var x [halfBlock]float32
	d := halves(b)
	for from := 0; from < len(d); from += halfBlock {
		part := d[from:min(from+halfBlock, len(d))]
		widen(x[:len(part)], part)
		for i := range part {
			x[i] *= 1 / float32(n)
		}
		round(part, x[:len(part)])
	}
}

// Float32 converts h to float32, which is exact.
func (h BF16) Float32() float32 { return math.Float32frombits(uint32(h) << 16) }

// ToBF16 rounds v to nearest even. NaN becomes 0x7fc0.
func ToBF16(v float32) BF16 {
	if v != v {
		return 0x7fc0
	}
	bits := math.Float32bits(v)
	return BF16((bits + 0x7fff + bits>>16&1) >> 16)
}

// Float32 converts h to float32, which is exact.
func (h F16) Float32() float32 {
	sign := uint32(h&0x8000) << 16
	exponent, fraction := uint32(h>>10&0x1f), uint32(h&0x3ff)
	switch exponent {
	case 0:
		// Zero or subnormal: fraction times 2^-24.
		v := float32(fraction) * 0x1p-24
		return math.Float32frombits(math.Float32bits(v) | sign)
	case 0x1f:
		return math.Float32frombits(sign | 0x7f800000 | fraction<<13)
	}
	return math.Float32frombits(sign | (exponent+127-15)<<23 | fraction<<13)
}

// ToF16 rounds v to nearest even. Values that are too large become infinite, and NaN becomes
// 0x7e00.
func ToF16(v float32) F16 {
	bits := math.Float32bits(v)
	sign := F16(bits >> 16 & 0x8000)
	abs := bits & 0x7fffffff
	switch {
	case abs > 0x7f800000:
		return 0x7e00
	case abs >= 0x477ff000: // 65520, halfway above the largest finite value
		return sign | 0x7c00
	case abs < 0x38800000: // 2^-14: subnormal
		// Adding 0.5 moves the unit 2^-24 to the last bit and rounds.
		r := math.Float32frombits(abs) + 0.5
		return sign | F16(math.Float32bits(r)-math.Float32bits(0.5))
	}
	// Round at bit 13, then change the exponent bias from 127 to 15.
	abs += 0xfff + abs>>13&1
	return sign | F16((abs-(127-15)<<23)>>13)
}

// halves returns b as 16-bit elements.
func halves(b []byte) []uint16 {
	p := unsafe.Pointer(unsafe.SliceData(b))
	if len(b)%2 != 0 || uintptr(p)%2 != 0 {
		panic(fmt.Sprintf("element: %d bytes at %p are not whole elements of 2 bytes", len(b), p))
	}
	return unsafe.Slice((*uint16)(p), len(b)/2)
}
