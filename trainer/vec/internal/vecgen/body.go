package main

import (
	"fmt"
	"math"
	"slices"
)

// kernel is one function of package vec, made for each target.
type kernel struct {
	name   string
	arrays []array  // in the order of the arguments
	floats []string // scalar arguments
	words  []string // scalar arguments of uint32, after the floats
	// lanes is the number of partial results of a reduction: element i belongs to
	// lane i mod lanes, and lanes are combined by halves, i with i+lanes/2 first.
	// It is 0 where there is no reduction.
	lanes   int
	results []string // names of the results of the reductions
	// neutral says that elements that are all zero change no partial result.
	neutral bool
	build   func(b *body)
}

// array is an argument whose elements the kernel reads or writes.
type array struct {
	name string
	half bool // of uint16, otherwise of float32
}

// floats32 are arrays of float32.
func floats32(names ...string) []array {
	var list []array
	for _, n := range names {
		list = append(list, array{name: n})
	}
	return list
}

// halves reports whether an array is of uint16.
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

// body is what a kernel does with one element, as a list of operations in the
// order of their execution. Each rounds its result; there is no fused
// multiply-add, which is what keeps targets equal.
type body struct {
	features
	nodes      []*node
	reductions []reduction
}

// features of a target make a difference to the operations of a body, though not
// to their results.
type features struct {
	scalef bool // multiplies by a power of two in one operation
	masks  bool // compares and chooses in one operation
}

// reduction is a partial result.
type reduction struct {
	start         *node // at the beginning, a constant
	before, after *node // before and after this element
	combine       func(b *body, acc, v *node) *node
}

// newBody describes a kernel to a target.
func newBody(k kernel, f features) *body {
	b := &body{features: f}
	k.build(b)
	return b
}

func (b *body) put(n *node) *node {
	b.nodes = append(b.nodes, n)
	return n
}

// once puts a node unless there is the same without operands.
func (b *body) once(n *node) *node {
	for _, old := range b.nodes {
		if len(old.args) == 0 && old.op == n.op && old.name == n.name && old.bits == n.bits && old.kind == n.kind {
			return old
		}
	}
	return b.put(n)
}

// load is the element of an array.
func (b *body) load(name string) *node { return b.once(&node{op: "load", kind: float, name: name}) }

// loadHalf is the element of an array of uint16.
func (b *body) loadHalf(name string) *node {
	return b.once(&node{op: "loadHalf", kind: word, name: name})
}

// loadDouble is the element of an array of float32, as float64. All values of the
// kernel must be float64 then.
func (b *body) loadDouble(name string) *node {
	return b.once(&node{op: "loadDouble", kind: double, name: name})
}

func (b *body) store(name string, v *node) {
	b.put(&node{op: "store", args: []*node{v}, name: name})
}

// storeHalf stores the low 16 bits; the others must be zero.
func (b *body) storeHalf(name string, v *node) {
	b.put(&node{op: "storeHalf", args: []*node{v}, name: name})
}

// arg is a scalar argument.
func (b *body) arg(name string) *node { return b.once(&node{op: "arg", kind: float, name: name}) }

// wordArg is a scalar argument of uint32.
func (b *body) wordArg(name string) *node { return b.once(&node{op: "arg", kind: word, name: name}) }

// num is a constant.
func (b *body) num(v float64) *node {
	return b.once(&node{op: "const", kind: float, bits: math.Float32bits(float32(v))})
}

// word is a constant of uint32.
func (b *body) word(v uint32) *node { return b.once(&node{op: "const", kind: word, bits: v}) }

// index is the number of the element, modulo 2^32.
func (b *body) index() *node { return b.once(&node{op: "index", kind: word}) }

func (b *body) binary(op string, x, y *node) *node {
	if x.kind != y.kind {
		panic(fmt.Sprintf("vecgen: %s of %s and %s", op, x.kind, y.kind))
	}
	return b.put(&node{op: op, kind: x.kind, args: []*node{x, y}})
}

// Arithmetic of float32 or float64, of uint32 modulo 2^32, and of its bits.
func (b *body) add(x, y *node) *node { return b.binary("add", x, y) }
func (b *body) sub(x, y *node) *node { return b.binary("sub", x, y) }
func (b *body) mul(x, y *node) *node { return b.binary("mul", x, y) }
func (b *body) div(x, y *node) *node { return b.binary("div", x, y) }
func (b *body) and(x, y *node) *node { return b.binary("and", x, y) }
func (b *body) or(x, y *node) *node  { return b.binary("or", x, y) }
func (b *body) xor(x, y *node) *node { return b.binary("xor", x, y) }

// max is x if x > y, otherwise y: y if one of them is not a number. Both are
// float32.
func (b *body) max(x, y *node) *node { return b.binary("max", x, y) }

// min is x if x < y, otherwise y.
func (b *body) min(x, y *node) *node { return b.binary("min", x, y) }

func (b *body) sqrt(x *node) *node { return b.put(&node{op: "sqrt", kind: float, args: []*node{x}}) }

func (b *body) shift(op string, x *node, n uint32) *node {
	return b.put(&node{op: op, kind: word, args: []*node{x}, bits: n})
}

func (b *body) shl(x *node, n uint32) *node { return b.shift("shl", x, n) }
func (b *body) shr(x *node, n uint32) *node { return b.shift("shr", x, n) }

// sar is shr of a signed number.
func (b *body) sar(x *node, n uint32) *node { return b.shift("sar", x, n) }

// bits are those of a float32, and float a number of such bits.
func (b *body) bits(x *node) *node  { return b.put(&node{op: "bits", kind: word, args: []*node{x}}) }
func (b *body) float(x *node) *node { return b.put(&node{op: "float", kind: float, args: []*node{x}}) }

// root is the node whose register a node is in: bits and float are no
// instructions.
func (n *node) root() *node {
	for n.op == "bits" || n.op == "float" {
		n = n.args[0]
	}
	return n
}

// choose is yes where the comparison of x and y holds, otherwise no.
func (b *body) choose(compare string, x, y, yes, no *node) *node {
	if b.masks {
		return b.put(&node{op: "choose", kind: yes.kind, args: []*node{x, y, yes, no}, name: compare})
	}
	if compare == "atLeast" { // x is the larger: there is no comparison of unsigned numbers
		x, y, compare = b.binary("larger", x, y), x, "equal"
	}
	m := b.put(&node{op: compare, kind: mask, args: []*node{x, y}})
	return b.put(&node{op: "blend", kind: yes.kind, args: []*node{m, yes, no}})
}

// greater chooses by x > y.
func (b *body) greater(x, y, yes, no *node) *node { return b.choose("greater", x, y, yes, no) }

// ifNaN chooses by whether x is not a number.
func (b *body) ifNaN(x, yes, no *node) *node { return b.choose("unordered", x, x, yes, no) }

// atLeast chooses by x >= y, of uint32.
func (b *body) atLeast(x, y, yes, no *node) *node { return b.choose("atLeast", x, y, yes, no) }

// reduce combines an element with the partial result of its lane.
func (b *body) reduce(start *node, combine func(b *body, acc, v *node) *node, v *node) {
	acc := b.put(&node{op: "state", kind: start.kind, state: len(b.reductions)})
	b.reductions = append(b.reductions, reduction{start, acc, combine(b, acc, v), combine})
}

// result returns the reduction that a node is the new partial result of, or -1.
func (b *body) result(n *node) int {
	return slices.IndexFunc(b.reductions, func(r reduction) bool { return r.after == n })
}

// combination is the body that combines the partial results of two lanes.
func (b *body) combination(r reduction) *body {
	c := &body{features: b.features}
	acc := c.put(&node{op: "state", kind: r.start.kind})
	other := c.put(&node{op: "other", kind: r.start.kind})
	c.reductions = []reduction{{r.start, acc, r.combine(c, acc, other), r.combine}}
	return c
}
