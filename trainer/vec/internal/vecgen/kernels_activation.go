package main

import "math"

// These are the coefficients of the tanh approximation of GELU (Hendrycks and Gimpel, 2016).
const (
	geluRoot  = 0.7978845608028654 // sqrt(2/pi)
	geluCubic = 0.044715
)

// activations contains functions of one element and their derivatives.
func activations() []kernel {
	return []kernel{
		{name: "relu", arrays: floats32("y", "x"), build: func(b *body) { b.store("y", b.max(b.num(0), b.load("x"))) }},
		{name: "reluGrad", arrays: floats32("dx", "dy", "y"), build: func(b *body) {
			// Less than the smallest positive number, so not if y is NaN.
			b.store("dx", b.greater(b.num(math.SmallestNonzeroFloat32), b.load("y"), b.num(0), b.load("dy")))
		}},
		{name: "tanh", arrays: floats32("y", "x"), build: func(b *body) { b.store("y", b.tanh(b.load("x"))) }},
		{name: "tanhGrad", arrays: floats32("dx", "dy", "y"), build: func(b *body) {
			y := b.load("y")
			b.store("dx", b.mul(b.load("dy"), b.sub(b.num(1), b.mul(y, y))))
		}},
		{name: "gelu", arrays: floats32("y", "x"), build: func(b *body) {
			x := b.load("x")
			b.store("y", b.div(x, b.add(b.num(1), b.exp(b.geluExponent(x)))))
		}},
		{name: "geluGrad", arrays: floats32("dx", "dy", "x"), build: func(b *body) {
			// Beyond 20 the derivative is 0 or 1, and the products below would be 0*Inf.
			x := b.clamp(b.load("x"), -20, 20)
			e := b.exp(b.geluExponent(x))
			s := b.div(b.num(1), b.add(b.num(1), e))
			// This is neither a difference of nearly equal numbers nor Inf*0.
			complement := b.greater(x, b.num(0), b.mul(e, s), b.sub(b.num(1), s))
			slope := b.add(b.num(2*geluRoot), b.mul(b.num(6*geluRoot*geluCubic), b.mul(x, x)))
			rest := b.mul(b.mul(x, complement), slope)
			b.store("dx", b.mul(b.load("dy"), b.mul(s, b.add(b.num(1), rest))))
		}},
		{name: "dropout", arrays: floats32("y", "x"), floats: []string{"scale"}, words: []string{"first", "key0", "key1", "threshold"},
			build: func(b *body) {
				h := b.hash(b.xor(b.add(b.index(), b.wordArg("first")), b.wordArg("key0")))
				h = b.hash(b.add(h, b.wordArg("key1")))
				b.store("y", b.atLeast(h, b.wordArg("threshold"), b.mul(b.load("x"), b.arg("scale")), b.num(0)))
			}},
	}
}

// clamp returns the nearest number from lo to hi. NaN remains NaN.
func (b *body) clamp(x *node, lo, hi float64) *node {
	return b.min(b.num(hi), b.max(b.num(lo), x))
}

// geluExponent returns the exponent of the logistic function in GELU: (1+tanh(u))/2 =
// 1/(1+exp(-2u)).
func (b *body) geluExponent(x *node) *node {
	return b.mul(x, b.add(b.num(-2*geluRoot), b.mul(b.num(-2*geluRoot*geluCubic), b.mul(x, x))))
}

// polynomial takes its coefficients from the highest power to the lowest.
func (b *body) polynomial(x *node, coefficients ...float64) *node {
	p := b.num(coefficients[0])
	for _, c := range coefficients[1:] {
		p = b.add(b.mul(p, x), b.num(c))
	}
	return p
}

// exp returns e^x, computed by Cody and Waite's reduction to |r| <= ln(2)/2 and the polynomial of
// Cephes' expf (Moshier 1992). Beyond the clamp all results are 0 or infinite.
func (b *body) exp(x *node) *node {
	x = b.clamp(x, -104, 89)
	// Adding shift leaves no fractional bits, and the integer in the low bits of the sum.
	const shift = 0x1.8p23
	shifted := b.add(b.mul(x, b.num(math.Log2E)), b.num(shift))
	n := b.sub(shifted, b.num(shift))
	r := b.sub(b.sub(x, b.mul(n, b.num(0.693359375))), b.mul(n, b.num(-2.12194440e-4)))
	p := b.polynomial(r, 1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1)
	p = b.add(b.add(b.mul(b.mul(r, r), p), r), b.num(1))
	if b.scalef {
		return b.binary("scale", p, n)
	}
	// In two halves, each a normal number: only the second multiplication may round.
	whole := b.sub(b.bits(shifted), b.word(math.Float32bits(shift)))
	half := b.sar(whole, 1)
	power := func(n *node) *node { return b.float(b.shl(b.add(n, b.word(127)), 23)) }
	return b.mul(b.mul(p, power(half)), power(b.sub(whole, half)))
}

// tanh uses Cephes' polynomial near zero and 1-2/(exp(2|x|)+1) elsewhere.
func (b *body) tanh(x *node) *node {
	const sign = 1 << 31
	size := b.float(b.and(b.bits(x), b.word(sign-1)))
	square := b.mul(x, x)
	p := b.polynomial(square, -5.70498872745e-3, 2.06390887954e-2, -5.37397155531e-2, 1.33314422036e-1, -3.33332819422e-1)
	near := b.add(b.mul(b.mul(p, square), x), x)
	far := b.sub(b.num(1), b.div(b.num(2), b.add(b.exp(b.add(size, size)), b.num(1))))
	y := b.greater(size, b.num(0.625), far, near)
	return b.float(b.or(b.bits(y), b.and(b.bits(x), b.word(sign)))) // also the sign of -0
}

// hash implements lowbias32 (Wellons, Prospecting for hash functions, 2018).
func (b *body) hash(x *node) *node {
	x = b.mul(b.xor(x, b.shr(x, 16)), b.word(0x7feb352d))
	x = b.mul(b.xor(x, b.shr(x, 15)), b.word(0x846ca68b))
	return b.xor(x, b.shr(x, 16))
}
