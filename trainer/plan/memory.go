package plan

import "github.com/ddpbatch/ddpbatch/trainer/ddp"

// Element is the memory of one parameter element in bytes.
type Element struct {
	Weight, Grad, State float64
	// Update is the number of bytes that an update reads and writes.
	Update float64
	// UpdateFLOP is the number of floating-point operations of an update in matmuls, for optimizers
	// that have them.
	UpdateFLOP float64
	// Workspace is memory of the optimizer in bytes, per rank and not per element.
	Workspace float64
	// Compressed reports that gradients are reduced in bfloat16, in a copy.
	Compressed bool
}

// sent returns the size of a gradient in messages, in bytes.
func (e Element) sent() float64 {
	if e.Compressed {
		return 2
	}
	return e.Grad
}

// Elements returns the memory of a parameter element with an optimizer that has this many values
// per element on average: 2 for Adam, 1 for momentum. All are float32, also on GPUs and with bf16.
func Elements(moments float64) Element {
	// The gradient is read twice, once for the norm.
	return Element{Weight: 4, Grad: 4, State: 4 * moments, Update: 8 + 2*4 + 8*moments}
}

// Memory is the memory of a rank in bytes.
type Memory struct {
	Weights     float64 `json:"weights"`
	Gradients   float64 `json:"gradients"`
	Optimizer   float64 `json:"optimizer"`
	Activations float64 `json:"activations"`
	// Transient is temporary memory during a step: gathered weights, and gradients before the
	// reduce-scatter.
	Transient float64 `json:"transient"`
	// Other is memory for samples, for the program and the device, and for the copies of an async
	// checkpoint.
	Other float64 `json:"other"`
}

// State returns the memory of weights, gradients, and optimizer state.
func (m Memory) State() float64 { return m.Weights + m.Gradients + m.Optimizer }

// Total returns the total memory.
func (m Memory) Total() float64 { return m.State() + m.Activations + m.Transient + m.Other }

// state returns the memory of the model's state per rank. For Ψ parameters with Adam: 16Ψ with ddp,
// 8Ψ + 8Ψ/n with zero1, 4Ψ + 12Ψ/n with zero2, 16Ψ/n with zero3.
func (e Element) state(s ddp.Strategy, params float64, ranks int) Memory {
	stored := func(from ddp.Strategy) float64 {
		if s >= from {
			return params / float64(ranks)
		}
		return params
	}
	return Memory{Weights: e.Weight * stored(ddp.ZeRO3), Gradients: e.Grad * stored(ddp.ZeRO2), Optimizer: e.State*stored(ddp.ZeRO1) + e.Workspace}
}

// Program is the memory of a rank in addition to its tensors.
type Program struct {
	Fixed     float64 // bytes
	PerThread float64 // workspace in bytes
	Threads   int
	// Copies reports that an async checkpoint copies weights and optimizer state to the same
	// memory. With DDP this applies to rank 0 only.
	Copies bool
}

// Memory returns the memory of a rank.
func (w Work) Memory(s ddp.Strategy, e Element, ranks int, p Program) Memory {
	params := float64(w.NumParams())
	m := e.state(s, params, ranks)
	m.Activations = float64(w.Activations)
	// The current samples and the prefetched ones.
	m.Other = 2*float64(w.Input) + float64(w.Packed) + p.Fixed + p.PerThread*float64(p.Threads)
	if p.Copies {
		stored := params
		if s != ddp.DDP {
			stored /= float64(ranks)
		}
		m.Other += (e.Weight + e.State) * stored
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
		// The bucket in use and the bucket in flight.
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

// largest returns the number of elements of the largest two consecutive buckets.
func (w Work) largest(e Element, ranks int) float64 {
	most, before := 0, 0
	for _, b := range w.buckets(e.Grad, ranks) {
		most = max(most, before+b.elements)
		before = b.elements
	}
	return float64(most)
}
