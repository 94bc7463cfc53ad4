package optim

import (
	"fmt"
	"slices"

	"github.com/ddpbatch/ddpbatch/trainer/device"
	"github.com/ddpbatch/ddpbatch/trainer/nn"
)

// Tensor is a named array of an optimizer's state.
type Tensor struct {
	Name  string // kind of state and parameter, as in "exp_avg.0.weight"
	Shape []int  // shape of the parameter; nil for a single value
	Data  []float32
}

// State is the state of an optimizer between two steps.
type State struct {
	// Kind is the kind of the optimizer.
	Kind string
	// Initialized reports that a step has changed the tensors. Before that they are zero; the first
	// step of SGD overwrites its momentum buffers.
	Initialized bool
	// Tensors are in an order that depends only on the parameters and the options of the optimizer.
	Tensors []Tensor
}

// buffer is an array of an optimizer's state, in device memory.
type buffer struct {
	name  string
	shape []int
	data  device.Tensor
}

// newBuffers allocates an array for each parameter, all in one block. Their names are the prefix
// and the parameter's name.
func newBuffers(m device.Memory, prefix string, params []*nn.Param) []buffer {
	total := 0
	for _, p := range params {
		total += p.Len()
	}
	memory := m.Alloc(device.Float32, total)
	var out []buffer
	at := 0
	for _, p := range params {
		out = append(out, buffer{prefix + p.Name, p.Shape, memory.Slice(at, at+p.Len())})
		at += p.Len()
	}
	return out
}

// Read returns the contents of a device tensor to the host. It may record the tensor and return nil
// if the caller does not need the values.
type Read func(device.Tensor) []float32

// defaultRead returns the default Read: on the host it returns the memory itself, otherwise a copy.
func defaultRead(m device.Memory) Read {
	return func(t device.Tensor) []float32 { return device.Floats(m, t) }
}

// tensor returns the buffer as a Tensor.
func (b buffer) tensor(read Read) Tensor { return Tensor{b.name, b.shape, read(b.data)} }

// match returns the tensors of a state by name. It returns an error if the kind or the tensors
// differ from the optimizer's.
func match(kind string, own []buffer, from State) (map[string]Tensor, error) {
	if from.Kind != kind {
		return nil, fmt.Errorf("restore optimizer: the state is of kind %q, want %q", from.Kind, kind)
	}
	given := map[string]Tensor{}
	for _, t := range from.Tensors {
		if _, twice := given[t.Name]; twice {
			return nil, fmt.Errorf("restore optimizer: tensor %q is given twice", t.Name)
		}
		given[t.Name] = t
	}
	known := map[string]bool{}
	for _, b := range own {
		known[b.name] = true
		t, ok := given[b.name]
		if !ok {
			return nil, fmt.Errorf("restore optimizer: no tensor %q", b.name)
		}
		if !slices.Equal(t.Shape, b.shape) || len(t.Data) != b.data.Len() {
			return nil, fmt.Errorf("restore optimizer: tensor %q has shape %v and %d elements, want %v and %d", b.name, t.Shape, len(t.Data), b.shape, b.data.Len())
		}
	}
	for _, t := range from.Tensors {
		if !known[t.Name] {
			return nil, fmt.Errorf("restore optimizer: unknown tensor %q", t.Name)
		}
	}
	return given, nil
}
