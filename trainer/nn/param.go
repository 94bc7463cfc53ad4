package nn

import "github.com/ddpbatch/ddpbatch/trainer/device"

// Param is one parameter of a model. Its owner gives it memory before the first
// step, and may at any time between steps replace Data and Grad by other tensors
// of Len elements, to put them into buffers that it shares with others; the model
// keeps no reference to the old ones.
type Param struct {
	Name  string        // as in the state_dict of the PyTorch module
	Shape []int         // outermost dimension first
	Data  device.Tensor // current values, row-major
	Grad  device.Tensor // gradient of the last Backward
	index int           // in the model's Params
}

// A Range is a run of elements of a parameter, First up to but not including End.
type Range struct{ First, End int }

// IsMatrix reports whether the parameter has at least two dimensions: the weights of
// layers, the kernels of convolutions, and embeddings are matrices; biases and the gains
// of normalizations are not.
func (p *Param) IsMatrix() bool { return len(p.Shape) >= 2 }

func newParam(name string, shape ...int) *Param { return &Param{Name: name, Shape: shape} }

// Len is the number of elements.
func (p *Param) Len() int {
	n := 1
	for _, d := range p.Shape {
		n *= d
	}
	return n
}

// matrix is the values, or a gradient, of a parameter with two dimensions or more:
// all but the first are columns.
func (p *Param) matrix(t device.Tensor) device.Matrix {
	return device.Rows(t, p.Shape[0], p.Len()/p.Shape[0])
}

// Place gives the parameters memory for their values, all in one piece.
func Place(m device.Memory, params []*Param) {
	place(m, params, func(p *Param) *device.Tensor { return &p.Data })
}

// PlaceGrads gives the parameters memory for their gradients, where no one else
// has a plan for it.
func PlaceGrads(m device.Memory, params []*Param) {
	place(m, params, func(p *Param) *device.Tensor { return &p.Grad })
}

func place(m device.Memory, params []*Param, of func(*Param) *device.Tensor) {
	// Each begins where a cache line does.
	const line = 16
	total := 0
	for _, p := range params {
		total += (p.Len() + line - 1) / line * line
	}
	memory := m.Alloc(device.Float32, total)
	at := 0
	for _, p := range params {
		*of(p) = memory.Slice(at, at+p.Len())
		at += (p.Len() + line - 1) / line * line
	}
}
