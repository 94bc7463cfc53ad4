package main

import (
	"fmt"
	"maps"
	"slices"
)

// pointerRegisters hold the arrays. AX is the index of the element, CX the number of remaining
// elements, and BX is scratch.
var pointerRegisters = []string{"DI", "SI", "DX", "R8", "R9", "R10", "R11", "R12", "R13"}

// assembler writes one kernel for one target.
type assembler struct {
	*writer
	t        target
	k        kernel
	b        *body
	offsets  map[string]int    // of the arguments
	pointers map[string]string // registers of the arrays
	lanes    int               // elements in a register
	chunks   int               // registers of elements in one loop iteration
	fixed    map[*node]int     // constants and scalar arguments that stay in registers
	pool     []int             // registers for all other values
	used     map[uint32]bool   // constants that the file needs
}

// assembly returns the file of a target.
func assembly(t target, list []kernel) string {
	w := &writer{}
	w.WriteString(header + "#include \"textflag.h\"\n")
	used := map[uint32]bool{}
	for _, k := range list {
		a := &assembler{writer: w, t: t, k: k, b: newBody(k, t.features), used: used}
		a.function()
	}
	for _, bits := range slices.Sorted(maps.Keys(used)) {
		t.data(w, bits)
	}
	t.tables(w)
	return w.String()
}

// function writes the whole function.
func (a *assembler) function() {
	a.lanes = a.t.bytes / 4
	if a.b.nodes[0].kind == double {
		a.lanes = a.t.bytes / 8
	}
	a.chunks = 4
	switch {
	case a.k.lanes > 0:
		a.chunks = a.k.lanes / a.lanes
	case len(a.b.nodes) > 20:
		a.chunks = 2
	}
	a.arguments()
	a.allocate()
	a.start()
	round := a.chunks * a.lanes
	a.op("SUBQ $%d, CX", round)
	a.ops("JLT tail", "PCALIGN $32")
	a.label("loop")
	for c := range a.chunks {
		a.elements(c, false)
	}
	a.op("ADDQ $%d, AX", round)
	a.op("SUBQ $%d, CX", round)
	a.op("JGE loop")
	a.label("tail")
	a.op("ADDQ $%d, CX", round)
	a.op("JEQ done")
	if a.k.lanes == 0 {
		a.label("rest")
		masked := !a.k.halves() || a.t.masks
		if masked {
			a.ops(a.t.tailMask...)
		}
		a.elements(0, masked)
		a.op("ADDQ $%d, AX", a.lanes)
		a.op("SUBQ $%d, CX", a.lanes)
		a.op("JGT rest")
	} else {
		for c := range a.chunks {
			a.ops(a.t.tailMask...)
			a.elements(c, true)
			if c < a.chunks-1 {
				a.op("SUBQ $%d, CX", a.lanes)
				a.op("JLE done")
			}
		}
	}
	a.label("done")
	for i := range a.b.reductions {
		a.combine(i)
	}
	a.ops("VZEROUPPER", "RET")
}

// arguments assigns the offsets of the arguments and writes the function's head.
func (a *assembler) arguments() {
	a.offsets, a.pointers = map[string]int{}, map[string]string{}
	size := 0
	for i, array := range a.k.arrays {
		a.pointers[array.name] = pointerRegisters[i]
		a.offsets[array.name], size = size, size+8
	}
	a.offsets["n"], size = size, size+8
	for _, name := range append(slices.Clone(a.k.floats), a.k.words...) {
		a.offsets[name], size = size, size+4
	}
	if len(a.k.results) > 0 {
		size = (size + 7) &^ 7
	}
	for i, name := range a.k.results {
		a.offsets[name] = size
		size += 4
		if a.b.reductions[i].start.kind == double {
			size += 4
		}
	}
	fmt.Fprintf(a, "\n// func %s\nTEXT ·%[2]s%[3]s(SB), NOSPLIT, $0-%[4]d\n", prototype(a.t.name, a.k), a.t.name, capital(a.k.name), size)
}

// argument returns the memory operand of an argument.
func (a *assembler) argument(name string) string {
	return fmt.Sprintf("%s+%d(FP)", name, a.offsets[name])
}

// allocate selects the scalars and constants that stay in registers: as many as possible, while
// leaving enough registers for the values of one element.
func (a *assembler) allocate() {
	var scalars, constants []*node
	uses := map[*node]int{}
	for _, n := range a.b.nodes {
		switch n.op {
		case "arg":
			scalars = append(scalars, n)
		case "const":
			constants = append(constants, n)
		}
		for _, arg := range n.args {
			uses[arg.root()]++
		}
	}
	slices.SortStableFunc(constants, func(x, y *node) int { return uses[y] - uses[x] })
	for i := range 64 {
		a.pool = append(a.pool, i)
	}
	trial := *a
	trial.writer, trial.fixed, trial.used = &writer{}, nil, map[uint32]bool{}
	need := max(2, trial.emit(a.b, 0, true, slices.Repeat([]int{-1}, len(a.b.reductions)), 0)) // at least 2, to combine lanes
	a.fixed = map[*node]int{}
	next := len(a.b.reductions) * a.chunks
	for _, n := range append(scalars, constants...) { // scalars first, because they cannot be memory operands
		if next+need < a.t.registers {
			a.fixed[n] = next
			next++
		}
	}
	a.pool = nil
	for ; next < a.t.registers; next++ {
		a.pool = append(a.pool, next)
	}
	if len(a.pool) < need {
		panic(fmt.Sprintf("vecgen: %s needs %d registers of %s, and %d are left", a.k.name, need, a.t.name, len(a.pool)))
	}
}

// start loads the values that stay in registers.
func (a *assembler) start() {
	for _, array := range a.k.arrays {
		a.op("MOVQ %s, %s", a.argument(array.name), a.pointers[array.name])
	}
	a.op("MOVQ %s, CX", a.argument("n"))
	a.op("XORL AX, AX")
	for _, n := range a.b.nodes {
		if register, ok := a.fixed[n]; ok {
			a.spread(n, register)
		}
	}
	for i, r := range a.b.reductions {
		for c := range a.chunks {
			a.spread(r.start, i*a.chunks+c)
		}
	}
}

// spread loads a constant or a scalar argument into all lanes of a register.
func (a *assembler) spread(n *node, register int) {
	from := a.argument(n.name)
	if n.op == "const" {
		a.used[n.bits] = true
		from = constant(n.bits)
	}
	a.op("VBROADCASTSS %s, %s%d", from, a.t.reg, register)
}

// elements writes the operations on the elements of one register.
func (a *assembler) elements(chunk int, masked bool) {
	var states []int
	for i := range a.b.reductions {
		states = append(states, i*a.chunks+chunk)
	}
	a.emit(a.b, chunk, masked, states, 0)
}

// combine combines the lanes of a partial result and returns it.
func (a *assembler) combine(i int) {
	c := a.b.combination(a.b.reductions[i])
	at := func(chunk int) int { return i*a.chunks + chunk }
	for half := a.chunks / 2; half > 0; half /= 2 {
		for chunk := range half {
			a.emit(c, 0, false, []int{at(chunk)}, at(chunk+half))
		}
	}
	fold, move := a.t.fold[float], "VMOVSS"
	if a.b.reductions[i].start.kind == double {
		fold, move = a.t.fold[double], "VMOVSD"
	}
	last := len(a.pool) - 1
	moved := a.pool[last]
	a.pool = a.pool[:last]
	defer func() { a.pool = a.pool[:last+1] }()
	for half := a.lanes / 2; half > 0; half /= 2 {
		a.op(fold[half], at(0), moved)
		a.emit(c, 0, false, []int{at(0)}, moved)
	}
	a.op("%s X%d, %s", move, at(0), a.argument(a.k.results[i]))
}
