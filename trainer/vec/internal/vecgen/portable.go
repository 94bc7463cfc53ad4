package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// portable returns the kernels in Go. Conversions to float32 prevent compilers from fusing
// multiplications and additions.
func portable(list []kernel) string {
	w := &writer{}
	w.WriteString(header + "package vec\n\nimport \"math\"\n")
	for _, k := range list {
		b := newBody(k, features{masks: true})
		names := k.arrays
		fmt.Fprintf(w, "\nfunc portable%s%s {\n", capital(k.name), signature(k))
		first := names[0].name
		for _, a := range names[1:] {
			w.op("%[1]s = %[1]s[:len(%[2]s)]", a.name, first)
		}
		for i, r := range b.reductions {
			w.op("var s%d [%d]%s", i, k.lanes, r.start.kind)
			if r.start.bits != 0 {
				w.op("for j := range s%d {\n\t\ts%d[j] = %s\n\t}", i, i, (&translation{}).value(r.start))
			}
		}
		w.op("for i := range %s {", first)
		tr := &translation{names: map[*node]string{}}
		for i, r := range b.reductions {
			tr.names[r.before] = fmt.Sprintf("s%d[i%%%d]", i, k.lanes)
		}
		tr.write(w, b, "\t\t")
		w.op("}")
		for i, r := range b.reductions {
			c := b.combination(r)
			tr := &translation{names: map[*node]string{
				c.nodes[0]: fmt.Sprintf("s%d[j]", i), c.nodes[1]: fmt.Sprintf("s%d[j+half]", i)}}
			w.op("for half := %d; half > 0; half /= 2 {\n\t\tfor j := range half {", k.lanes/2)
			tr.write(w, c, "\t\t\t")
			w.op("\t}\n\t}")
		}
		if len(b.reductions) > 0 {
			var results []string
			for i := range b.reductions {
				results = append(results, fmt.Sprintf("s%d[0]", i))
			}
			w.op("return %s", strings.Join(results, ", "))
		}
		w.WriteString("}\n")
	}
	return w.String()
}

// translation writes a body in Go.
type translation struct {
	names map[*node]string // of values
}

// value returns the expression of a value.
func (t *translation) value(n *node) string {
	switch n.op {
	case "const":
		v := float64(math.Float32frombits(n.bits))
		switch {
		case n.kind == word:
			return fmt.Sprintf("%#x", n.bits)
		case math.IsInf(v, 0):
			return fmt.Sprintf("float32(math.Inf(%d))", int(math.Copysign(1, v)))
		}
		return strconv.FormatFloat(v, 'g', -1, 32)
	case "arg":
		return n.name
	}
	return t.names[n]
}

var goOperators = map[string]string{"add": "+", "sub": "-", "mul": "*", "div": "/", "and": "&", "or": "|", "xor": "^",
	"shl": "<<", "shr": ">>", "max": ">", "min": "<", "greater": ">", "unordered": "!=", "atLeast": ">="}

// write writes the operations in order.
func (t *translation) write(w *writer, b *body, indent string) {
	line := func(format string, args ...any) { fmt.Fprintf(w, indent+format+"\n", args...) }
	for _, n := range b.nodes {
		if n.op == "const" || n.op == "arg" || n.op == "state" || n.op == "other" {
			continue
		}
		var v []string
		for _, arg := range n.args {
			v = append(v, t.value(arg))
		}
		name := fmt.Sprintf("v%d", len(t.names))
		t.names[n] = name
		operator := goOperators[n.op]
		switch n.op {
		case "load":
			line("%s := %s[i]", name, n.name)
		case "loadHalf":
			line("%s := uint32(%s[i])", name, n.name)
		case "loadDouble":
			line("%s := float64(%s[i])", name, n.name)
		case "store":
			line("%s[i] = %s", n.name, v[0])
		case "storeHalf":
			line("%s[i] = uint16(%s)", n.name, v[0])
		case "index":
			line("%s := uint32(i)", name)
		case "bits":
			line("%s := math.Float32bits(%s)", name, v[0])
		case "float":
			line("%s := math.Float32frombits(%s)", name, v[0])
		case "sqrt":
			line("%s := float32(math.Sqrt(float64(%s)))", name, v[0])
		case "shl", "shr":
			line("%s := %s %s %d", name, v[0], operator, n.bits)
		case "sar":
			line("%s := uint32(int32(%s) >> %d)", name, v[0], n.bits)
		case "max", "min":
			line("%s := %s(%s)", name, n.kind, v[1])
			line("if %s %s %s {\n%s\t%s = %s\n%s}", v[0], operator, v[1], indent, name, v[0], indent)
		case "choose":
			line("%s := %s(%s)", name, n.kind, v[3])
			line("if %s %s %s {\n%s\t%s = %s\n%s}", v[0], goOperators[n.name], v[1], indent, name, v[2], indent)
		default:
			line("%s := %s(%s %s %s)", name, n.kind, v[0], operator, v[1])
		}
	}
	for _, r := range b.reductions {
		line("%s = %s", t.names[r.before], t.names[r.after])
	}
}
