package main

import (
	"fmt"
	"slices"
)

// emission is one pass through a body for the elements of one register.
type emission struct {
	*assembler
	at   map[*node]int // registers of values
	busy map[int]bool
	most int // maximum number of pool registers in use at the same time
}

// emit writes the operations of a body for the elements of a chunk. It returns the maximum number
// of pool registers in use. states contains the registers of the partial results, and other is the
// register of the second operand of a combination.
func (a *assembler) emit(b *body, chunk int, masked bool, states []int, other int) int {
	e := &emission{assembler: a, at: map[*node]int{}, busy: map[int]bool{}}
	last := map[*node]int{}
	for i, n := range b.nodes {
		for _, arg := range n.args {
			last[arg.root()] = i
		}
	}
	for i, n := range b.nodes {
		if n.op == "state" || n.op == "other" {
			e.at[n] = other
			if n.op == "state" {
				e.at[n] = states[n.state]
			}
			continue
		}
		if register, ok := a.fixed[n]; ok {
			e.at[n] = register
		}
		if slices.Contains([]string{"const", "arg", "bits", "float"}, n.op) {
			continue
		}
		operands, spare := e.operands(n)
		to := -1
		if n.op == "storeHalf" { // needs another register in addition to its operand
			to = e.take()
			spare = append(spare, to)
		}
		for _, register := range spare {
			delete(e.busy, register)
		}
		for _, arg := range n.args {
			register, held := e.at[arg.root()]
			if held && last[arg.root()] == i && slices.Contains(a.pool, register) {
				delete(e.busy, register)
			}
		}
		state := b.result(n)
		merges := state >= 0 && masked && !a.k.neutral
		if state >= 0 && !merges {
			to = states[state]
		} else if n.kind != "" {
			to = e.take()
			e.at[n] = to
		}
		e.instruction(n, operands, to, chunk, masked)
		if merges {
			a.t.keep(a.writer, to, states[state])
			delete(e.busy, to)
		}
	}
	return e.most
}

// take reserves a register of the pool.
func (e *emission) take() int {
	for _, register := range e.pool {
		if !e.busy[register] {
			e.busy[register] = true
			e.most = max(e.most, len(e.busy))
			return register
		}
	}
	panic(fmt.Sprintf("vecgen: no register left for %s of %s", e.k.name, e.t.name))
}

var commutative = []string{"add", "mul", "and", "or", "xor"}

// operands returns a node's operands as text, and the registers that it reserved for constants that
// are not in a register.
func (e *emission) operands(n *node) (list []string, spare []int) {
	args := slices.Clone(n.args)
	inMemory := func(arg *node) bool {
		_, ok := e.at[arg.root()]
		return !ok
	}
	if slices.Contains(commutative, n.op) && inMemory(args[0]) {
		args[0], args[1] = args[1], args[0]
	}
	for i, arg := range args {
		arg = arg.root()
		register, ok := e.at[arg]
		switch {
		case ok:
		case arg.op == "const" && i == 1 && len(args) == 2:
			e.used[arg.bits] = true
			list = append(list, constant(arg.bits))
			continue
		default:
			register = e.take()
			spare = append(spare, register)
			e.spread(arg, register)
		}
		list = append(list, fmt.Sprintf("%s%d", e.t.reg, register))
	}
	return list, spare
}

// instruction writes one operation.
func (e *emission) instruction(n *node, operands []string, to, chunk int, masked bool) {
	w, name := e.writer, e.t.names[n.kind][n.op]
	register := fmt.Sprintf("%s%d", e.t.reg, to)
	switch n.op {
	case "load", "loadHalf", "loadDouble":
		e.t.load(w, n, e.element(n.name, chunk), to, masked)
	case "store", "storeHalf":
		e.t.store(w, n, e.element(n.name, chunk), e.at[n.args[0].root()], to, masked)
	case "index":
		e.t.index(w, to, chunk*e.lanes)
	case "shl", "shr", "sar":
		w.op("%s $%d, %s, %s", name, n.bits, operands[0], register)
	case "sqrt":
		w.op("%s %s, %s", name, operands[0], register)
	case "choose":
		e.t.choose(w, n.name, operands[1], operands[0], operands[2], operands[3], register)
	case "blend":
		w.op("VBLENDVPS %s, %s, %s, %s", operands[0], operands[1], operands[2], register)
	default:
		if name == "" {
			panic(fmt.Sprintf("vecgen: %s has no %s of %s", e.t.name, n.op, n.kind))
		}
		if operands[1][0] == 'c' && e.t.broadcast {
			name += ".BCST"
		}
		w.op("%s %s, %s, %s", name, operands[1], operands[0], register)
	}
}

// element returns the address of the first element of a chunk.
func (e *emission) element(name string, chunk int) string {
	size := 4
	for _, array := range e.k.arrays {
		if array.name == name && array.half {
			size = 2
		}
	}
	return address(chunk*e.lanes*size, e.pointers[name], size)
}
