package nn

import "github.com/ddpbatch/ddpbatch/trainer/device"

// Param is a parameter of a model. Its owner provides memory before the first step. Between steps
// the owner may replace Data and Grad by other tensors of Len elements, for example to place them
// in shared buffers. The model has no reference to the old tensors.
type Param struct {
	Name  string        // as in the state_dict of the PyTorch module
	Shape []int         // outermost dimension first
	Data  device.Tensor // current values, row-major
	Grad  device.Tensor // gradient of the last Backward
	// Rounded is Data rounded to BFloat16, or empty. An owner that provides it, before Plan, keeps it
	// current. Then matmuls in bf16 read it, so that they need not round Data each time. It never
	// changes results.
	Rounded device.Tensor
	// Hidden reports that this is the weight of a hidden layer: a matrix that is neither an embedding
	// nor the weight of the output layer.
	Hidden bool
	// Pieces are the parameters of which this array holds elements, in ascending order, if it is
	// not a parameter of a model but a part of several, such as a shard of a bucket. Elements that
	// belong to no piece are padding and always zero.
	Pieces []Piece
	index  int // in the model's Params
}

// A Piece is a range of a parameter's elements in a larger array.
type Piece struct {
	Param  *Param // with the name and the shape of the whole tensor
	Offset int    // index in Param of the first element
	At     int    // index in the array of the first element
	Len    int    // number of elements
}

// IsWhole reports whether the piece is the whole parameter.
func (p Piece) IsWhole() bool { return p.Len == p.Param.Len() }

// Contents returns the pieces of an array. A parameter of a model is one piece.
func (p *Param) Contents() []Piece {
	if p.Pieces != nil {
		return p.Pieces
	}
	return []Piece{{Param: p, Len: p.Len()}}
}

// IsMatrix reports whether the parameter has at least two dimensions: the weights of layers, the
// kernels of convolutions, and embeddings are matrices; biases and the gains of normalizations are
// not matrices.
func (p *Param) IsMatrix() bool { return len(p.Shape) >= 2 }

func newParam(name string, shape ...int) *Param { return &Param{Name: name, Shape: shape} }

// markHidden sets Hidden of the matrices among the parameters of a hidden layer.
func markHidden(params []*Param) {
	for _, p := range params {
		p.Hidden = p.IsMatrix()
	}
}

// Len returns the number of elements.
func (p *Param) Len() int {
	n := 1
	for _, d := range p.Shape {
		n *= d
	}
	return n
}

// matrix returns t, the values or the gradient of a parameter with at least two dimensions, as a
// matrix. All dimensions except the first become columns.
func (p *Param) matrix(t device.Tensor) device.Matrix {
	return device.Rows(t, p.Shape[0], p.Len()/p.Shape[0])
}

// operand returns the values of the parameter for a matmul: Rounded, if it is available and has the
// pitch and the alignment of an operand that the matmul would round. Both can change the algorithm of
// a matmul, and so the bits of its result. The transpose of a single row has two possible pitches, so
// the matmul rounds it.
func (p *Param) operand() device.Tensor {
	const alignment = 256 // bytes
	if p.Rounded.Len() == 0 || p.Rounded.Addr()%alignment != 0 {
		return p.Data
	}
	if m, pitch := p.matrix(p.Rounded).Packed(); m.Rows == 1 || m.Cols != pitch {
		return p.Data
	}
	return p.Rounded
}

// AllocValues allocates memory for the parameters' values in one block.
func AllocValues(m device.Memory, params []*Param) {
	allocTensors(m, params, func(p *Param) *device.Tensor { return &p.Data })
}

// AllocGrads allocates memory for the parameters' gradients in one block.
func AllocGrads(m device.Memory, params []*Param) {
	allocTensors(m, params, func(p *Param) *device.Tensor { return &p.Grad })
}

func allocTensors(m device.Memory, params []*Param, of func(*Param) *device.Tensor) {
	// Align each to a cache line.
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
