package optim

import (
	"fmt"
	"slices"
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

// match finds the tensors of an optimizer in a state, by name, and refuses a
// state of another kind or with other tensors.
func match(kind string, own []Tensor, from State) (map[string]Tensor, error) {
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
		known[b.Name] = true
		t, ok := given[b.Name]
		if !ok {
			return nil, fmt.Errorf("restore optimizer: no tensor %q", b.Name)
		}
		if !slices.Equal(t.Shape, b.Shape) || len(t.Data) != len(b.Data) {
			return nil, fmt.Errorf("restore optimizer: tensor %q has shape %v and %d elements, want %v and %d", b.Name, t.Shape, len(t.Data), b.Shape, len(b.Data))
		}
	}
	for _, t := range from.Tensors {
		if !known[t.Name] {
			return nil, fmt.Errorf("restore optimizer: unknown tensor %q", t.Name)
		}
	}
	return given, nil
}
