package optim

import (
	"fmt"
	"slices"

	"github.com/ddpbatch/ddpbatch/trainer/device"
	"github.com/ddpbatch/ddpbatch/trainer/nn"
)

// Tensor is one named array of an optimizer's state.
type Tensor struct {
	Name  string // what it is, and of which parameter, as in "exp_avg.0.weight"
	Shape []int  // of the parameter; none for a single number
	Data  []float32
}

// State is all that an optimizer carries from step to step.
type State struct {
	// Kind is the rule that the state belongs to.
	Kind string
	// Initialised reports that a step has changed the tensors. Before it they are
	// zero; momentum buffers have no meaning then.
	Initialised bool
	// Tensors are in the order of the parameters.
	Tensors []Tensor
}

// buffer is one array of an optimizer's state where it is used.
type buffer struct {
	name  string
	shape []int
	data  device.Tensor
}

// newBuffers gets memory for one array like each parameter, all in one piece, with
// the prefix and the parameter's name as its name.
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

// Read has the host see a tensor of the device. It may keep the tensor instead and return
// nothing, where nobody looks at the numbers.
type Read func(device.Tensor) []float32

// reading is the plain one: on the host numbers are the memory itself, elsewhere a copy.
func reading(m device.Memory) Read {
	return func(t device.Tensor) []float32 { return device.Floats(m, t) }
}

// tensor is a buffer for its owner to see.
func (b buffer) tensor(read Read) Tensor { return Tensor{b.name, b.shape, read(b.data)} }

// match finds the tensors of an optimizer in a state, by name, and refuses a
// state of another kind or with other tensors.
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
