package main

import (
	"fmt"
	"math"
	"slices"
)

// kernel is one function of package vec, generated for each target.
type kernel struct {
	name   string
	arrays []array  // in the order of the arguments
	floats []string // scalar arguments
	words  []string // scalar arguments of type uint32, after the floats
	// lanes is the number of partial results of a reduction: element i belongs to lane i mod lanes,
	// and lanes are combined by halves, i with i+lanes/2 first. It is 0 if there is no reduction.
	lanes   int
	results []string // names of the results of the reductions
	// neutral is set if elements that are all zero do not change a partial result.
	neutral bool
	build   func(b *body)
}

// array is an argument whose elements the kernel reads or writes.
type array struct {
	name string
	half bool // uint16; otherwise float32
}

// floats32 returns arrays of float32.
func floats32(names ...string) []array {
	var list []array
	for _, n := range names {
		list = append(list, array{name: n})
	}
	return list
}

// halves reports whether an array has type uint16.
func (k kernel) halves() bool {
	for _, a := range k.arrays {
		if a.half {
			return true
		}
	}
	return false
}

// kind is the type of a value.
type kind string

const (
	float  kind = "float32"
	word   kind = "uint32"
	double kind = "float64"
	mask   kind = "bool" // all bits of a lane, set or not
)

// node is a value: the result of one operation on one element.
type node struct {
	op    string
	kind  kind
	args  []*node
	name  string // of an array or a scalar argument
	bits  uint32 // of a constant; the distance of a shift
	state int    // of a partial result
}

// body describes the operations on one element, in the order of their execution. Each rounds its
// result. There are no fused multiply-adds, so that all targets give the same bits.
type body struct {
	features
	nodes      []*node
	reductions []reduction
}

// features are properties of a target that change the operations of a body, but not its results.
type features struct {
	scalef bool // multiplies by a power of two in one operation
	masks  bool // compares and selects in one operation
}

// reduction is a partial result.
type reduction struct {
	start         *node // start value, a constant
	before, after *node // before and after this element
	combine       func(b *body, acc, v *node) *node
}

// newBody describes a kernel for a target.
func newBody(k kernel, f features) *body {
	b := &body{features: f}
	k.build(b)
	return b
}

func (b *body) put(n *node) *node {
	b.nodes = append(b.nodes, n)
	return n
}

// once adds a node without operands, unless it exists already.
func (b *body) once(n *node) *node {
	for _, old := range b.nodes {
		if len(old.args) == 0 && old.op == n.op && old.name == n.name && old.bits == n.bits && old.kind == n.kind {
			return old
		}
	}
	return b.put(n)
}

// load loads the element of a float32 array.
func (b *body) load(name string) *node { return b.once(&node{op: "load", kind: float, name: name}) }

// loadHalf loads the element of a uint16 array.
func (b *body) loadHalf(name string) *node {
	return b.once(&node{op: "loadHalf", kind: word, name: name})
}

// loadDouble loads the element of a float32 array as float64. All values of the kernel must be
// float64 then.
func (b *body) loadDouble(name string) *node {
	return b.once(&node{op: "loadDouble", kind: double, name: name})
}

func (b *body) store(name string, v *node) {
	b.put(&node{op: "store", args: []*node{v}, name: name})
}

// storeHalf stores the low 16 bits. The other bits must be zero.
func (b *body) storeHalf(name string, v *node) {
	b.put(&node{op: "storeHalf", args: []*node{v}, name: name})
}

// arg returns a scalar argument of type float32.
func (b *body) arg(name string) *node { return b.once(&node{op: "arg", kind: float, name: name}) }

// wordArg returns a scalar argument of type uint32.
func (b *body) wordArg(name string) *node { return b.once(&node{op: "arg", kind: word, name: name}) }

// num returns a float32 constant.
func (b *body) num(v float64) *node {
	return b.once(&node{op: "const", kind: float, bits: math.Float32bits(float32(v))})
}

// word returns a uint32 constant.
func (b *body) word(v uint32) *node { return b.once(&node{op: "const", kind: word, bits: v}) }

// index returns the index of the element, modulo 2^32.
func (b *body) index() *node { return b.once(&node{op: "index", kind: word}) }

func (b *body) binary(op string, x, y *node) *node {
	if x.kind != y.kind {
		panic(fmt.Sprintf("vecgen: %s of %s and %s", op, x.kind, y.kind))
	}
	return b.put(&node{op: op, kind: x.kind, args: []*node{x, y}})
}

// Arithmetic of float32 or float64, or of uint32 modulo 2^32, and bitwise operations on uint32.

func (b *body) add(x, y *node) *node { return b.binary("add", x, y) }
func (b *body) sub(x, y *node) *node { return b.binary("sub", x, y) }
func (b *body) mul(x, y *node) *node { return b.binary("mul", x, y) }
func (b *body) div(x, y *node) *node { return b.binary("div", x, y) }
func (b *body) and(x, y *node) *node { return b.binary("and", x, y) }
func (b *body) or(x, y *node) *node  { return b.binary("or", x, y) }
func (b *body) xor(x, y *node) *node { return b.binary("xor", x, y) }

// max returns x if x > y, otherwise y. So it returns y if one of them is NaN. Both are float32.
func (b *body) max(x, y *node) *node { return b.binary("max", x, y) }

// min returns x if x < y, otherwise y.
func (b *body) min(x, y *node) *node { return b.binary("min", x, y) }

func (b *body) sqrt(x *node) *node { return b.put(&node{op: "sqrt", kind: float, args: []*node{x}}) }

func (b *body) shift(op string, x *node, n uint32) *node {
	return b.put(&node{op: op, kind: word, args: []*node{x}, bits: n})
}

func (b *body) shl(x *node, n uint32) *node { return b.shift("shl", x, n) }
func (b *body) shr(x *node, n uint32) *node { return b.shift("shr", x, n) }

// sar performs an arithmetic right shift.
func (b *body) sar(x *node, n uint32) *node { return b.shift("sar", x, n) }

// bits reinterprets a float32 as uint32, and float does the reverse.
func (b *body) bits(x *node) *node  { return b.put(&node{op: "bits", kind: word, args: []*node{x}}) }
func (b *body) float(x *node) *node { return b.put(&node{op: "float", kind: float, args: []*node{x}}) }

// root returns the node whose register holds a node: bits and float need no instructions.
func (n *node) root() *node {
	for n.op == "bits" || n.op == "float" {
		n = n.args[0]
	}
	return n
}

// choose returns yes if the comparison of x and y holds, otherwise no.
func (b *body) choose(compare string, x, y, yes, no *node) *node {
	if b.masks {
		return b.put(&node{op: "choose", kind: yes.kind, args: []*node{x, y, yes, no}, name: compare})
	}
	if compare == "atLeast" { // AVX2 has no unsigned comparison: test whether x is the maximum
		x, y, compare = b.binary("larger", x, y), x, "equal"
	}
	m := b.put(&node{op: compare, kind: mask, args: []*node{x, y}})
	return b.put(&node{op: "blend", kind: yes.kind, args: []*node{m, yes, no}})
}

// greater selects by x > y.
func (b *body) greater(x, y, yes, no *node) *node { return b.choose("greater", x, y, yes, no) }

// ifNaN selects by whether x is NaN.
func (b *body) ifNaN(x, yes, no *node) *node { return b.choose("unordered", x, x, yes, no) }

// atLeast selects by x >= y, for uint32.
func (b *body) atLeast(x, y, yes, no *node) *node { return b.choose("atLeast", x, y, yes, no) }

// reduce combines an element with the partial result of its lane.
func (b *body) reduce(start *node, combine func(b *body, acc, v *node) *node, v *node) {
	acc := b.put(&node{op: "state", kind: start.kind, state: len(b.reductions)})
	b.reductions = append(b.reductions, reduction{start, acc, combine(b, acc, v), combine})
}

// result returns the index of the reduction whose new partial result is n, or -1.
func (b *body) result(n *node) int {
	return slices.IndexFunc(b.reductions, func(r reduction) bool { return r.after == n })
}

// combination returns a body that combines the partial results of two lanes.
func (b *body) combination(r reduction) *body {
	c := &body{features: b.features}
	acc := c.put(&node{op: "state", kind: r.start.kind})
	other := c.put(&node{op: "other", kind: r.start.kind})
	c.reductions = []reduction{{r.start, acc, r.combine(c, acc, other), r.combine}}
	return c
}
