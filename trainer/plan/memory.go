package plan

import "github.com/ddpbatch/ddpbatch/trainer/ddp"

// Element is the bytes that one parameter has.
type Element struct {
	Weight, Grad, State float64
	// Update is the bytes that an update reads and writes.
	Update float64
	// Compressed says that gradients are added up in bfloat16, from a copy.
	Compressed bool
}

// sent is the bytes of a gradient in messages.
func (e Element) sent() float64 {
	if e.Compressed {
		return 2
	}
	return e.Grad
}

// Elements returns what a parameter takes with an optimiser that keeps so many
// numbers for each: 2 for Adam, 1 for momentum. All are float32, on GPUs and in bf16 too.
func Elements(moments int) Element {
	// The gradient is read twice: first for its norm.
	n := float64(moments)
	return Element{Weight: 4, Grad: 4, State: 4 * n, Update: 8 + 2*4 + 8*n}
}

// Memory is that of a rank in bytes.
type Memory struct {
	Weights     float64 `json:"weights"`
	Gradients   float64 `json:"gradients"`
	Optimizer   float64 `json:"optimizer"`
	Activations float64 `json:"activations"`
	// Transient is what is there for a part of a step only: weights that were
	// gathered and gradients that have not been divided yet.
	Transient float64 `json:"transient"`
	// Other is samples, what the program and the device need for themselves, and copies to
	// save from.
	Other float64 `json:"other"`
}

// State is weights, gradients and the optimiser's state.
func (m Memory) State() float64 { return m.Weights + m.Gradients + m.Optimizer }

// Total is all of it.
func (m Memory) Total() float64 { return m.State() + m.Activations + m.Transient + m.Other }

// state is what parameters take on each of so many ranks: of Ψ parameters with
// Adam 16Ψ for ddp; 8Ψ + 8Ψ/n; 4Ψ + 12Ψ/n; 16Ψ/n.
func (e Element) state(s ddp.Strategy, params float64, ranks int) Memory {
	kept := func(from ddp.Strategy) float64 {
		if s >= from {
			return params / float64(ranks)
		}
		return params
	}
	return Memory{Weights: e.Weight * kept(ddp.ZeRO3), Gradients: e.Grad * kept(ddp.ZeRO2), Optimizer: e.State * kept(ddp.ZeRO1)}
}

// Program is what a rank needs beside its tensors.
type Program struct {
	Fixed     float64 // bytes
	PerThread float64 // bytes of workspace
	Threads   int
	// Copies says that it saves from a copy of weights and optimiser's state in the same
	// memory. With DDP that is so on rank 0.
	Copies bool
}

// Memory returns what a rank needs.
func (w Work) Memory(s ddp.Strategy, e Element, ranks int, p Program) Memory {
	params := float64(w.NumParams())
	m := e.state(s, params, ranks)
	m.Activations = float64(w.Activations)
	// The samples at hand and the next ones.
	m.Other = 2*float64(w.Input) + float64(w.Packed) + p.Fixed + p.PerThread*float64(p.Threads)
	if p.Copies {
		kept := params
		if s != ddp.DDP {
			kept /= float64(ranks)
		}
		m.Other += (e.Weight + e.State) * kept
	}
	if ranks > 1 && e.Compressed {
		most := 0
		for _, b := range w.buckets(e.Grad, ranks) {
			most = max(most, b.elements)
		}
		m.Transient = e.sent() * float64(most)
	}
	if s >= ddp.ZeRO2 && w.NoSync {
		m.Gradients = e.Grad * params
	}
	if ranks > 1 && s >= ddp.ZeRO2 {
		// The part that is worked on and the one that is sent or fetched.
		two := w.largest(e, ranks)
		if !w.NoSync {
			m.Transient += e.Grad * two
		}
		if s == ddp.ZeRO3 {
			m.Transient += e.Weight * two
		}
	}
	return m
}

// largest is the elements of the largest two buckets that follow each other.
func (w Work) largest(e Element, ranks int) float64 {
	most, before := 0, 0
	for _, b := range w.buckets(e.Grad, ranks) {
		most = max(most, before+b.elements)
		before = b.elements
	}
	return float64(most)
}
