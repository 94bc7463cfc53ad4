package main

import "math"

// kernels describes all kernels.
func kernels() []kernel {
	return append(append(append(simple(), activations()...), rows()...), steps()...)
}

func sum(b *body, acc, v *node) *node { return b.add(acc, v) }

// start returns the start value of a partial result.
func start(k kind, bits uint32) *node { return &node{op: "const", kind: k, bits: bits} }

var zero = start(float, 0)

// simple contains sums, products, reductions, and conversions.
func simple() []kernel {
	return []kernel{
		{name: "add", arrays: floats32("y", "a", "b"), build: func(b *body) {
			b.store("y", b.add(b.load("a"), b.load("b")))
		}},
		{name: "scale", arrays: floats32("y", "x"), floats: []string{"s"}, build: func(b *body) {
			b.store("y", b.mul(b.load("x"), b.arg("s")))
		}},
		{name: "add4", arrays: floats32("y", "a", "b", "c", "d"), build: func(b *body) {
			b.store("y", b.add(b.add(b.add(b.add(b.load("y"), b.load("a")), b.load("b")), b.load("c")), b.load("d")))
		}},
		{name: "sum", arrays: floats32("x"), lanes: 64, results: []string{"sum"}, neutral: true, build: func(b *body) {
			b.reduce(zero, sum, b.load("x"))
		}},
		{name: "dot", arrays: floats32("x", "y"), lanes: 64, results: []string{"sum"}, neutral: true, build: func(b *body) {
			b.reduce(zero, sum, b.mul(b.load("x"), b.load("y")))
		}},
		{name: "sumSquares", arrays: floats32("x"), lanes: 8, results: []string{"sum"}, neutral: true, build: func(b *body) {
			v := b.loadDouble("x")
			b.reduce(start(double, 0), sum, b.mul(v, v))
		}},
		{name: "maximum", arrays: floats32("x"), lanes: 64, results: []string{"most"}, build: func(b *body) {
			b.reduce(start(float, math.Float32bits(float32(math.Inf(-1)))), func(b *body, acc, v *node) *node {
				return b.ifNaN(v, v, b.max(v, acc))
			}, b.load("x"))
		}},
		{name: "roundBF16", arrays: []array{{name: "dst", half: true}, {name: "src"}}, build: func(b *body) {
			const quietNaN = 0x7fc0
			x := b.load("src")
			bits := b.bits(x)
			// The high half, rounded to nearest even.
			rounded := b.add(b.add(bits, b.word(0x7fff)), b.and(b.shr(bits, 16), b.word(1)))
			b.storeHalf("dst", b.ifNaN(x, b.word(quietNaN), b.shr(rounded, 16)))
		}},
		{name: "widenBF16", arrays: []array{{name: "dst"}, {name: "src", half: true}}, build: func(b *body) {
			b.store("dst", b.float(b.shl(b.loadHalf("src"), 16)))
		}},
	}
}
