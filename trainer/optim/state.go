package optim

import (
	"fmt"
	"slices"
)

// bufferPrefix begins the names of momentum buffers, before the parameter's.
const bufferPrefix = "momentum."

// Tensor is one named array of an optimizer's state.
type Tensor struct {
	Name  string // "momentum." and the name of the parameter
	Shape []int  // of the parameter
	Data  []float32
}

// State is all that an optimizer carries from step to step.
type State struct {
	// Initialised reports that a step with momentum has been made. Before it the
	// tensors are zero and have no meaning.
	Initialised bool
	// Tensors are in the order of the parameters; none without momentum.
	Tensors []Tensor
}

// State returns the present state. The tensors' Data are the optimizer's own
// memory: they change at the next step, and must not be written to.
func (s *SGD) State() State { return State{s.initialised, s.buffers} }

// Restore copies a state that an optimizer for the same parameters had, with
// tensors in any order. If one is missing, unknown or of another shape, it
// returns an error and changes nothing.
func (s *SGD) Restore(from State) error {
	given := map[string]Tensor{}
	for _, t := range from.Tensors {
		if _, twice := given[t.Name]; twice {
			return fmt.Errorf("restore optimizer: tensor %q is given twice", t.Name)
		}
		given[t.Name] = t
	}
	for _, b := range s.buffers {
		t, ok := given[b.Name]
		if !ok {
			return fmt.Errorf("restore optimizer: no tensor %q", b.Name)
		}
		if !slices.Equal(t.Shape, b.Shape) || len(t.Data) != len(b.Data) {
			return fmt.Errorf("restore optimizer: tensor %q has shape %v and %d elements, want %v and %d", b.Name, t.Shape, len(t.Data), b.Shape, len(b.Data))
		}
	}
	for _, t := range from.Tensors {
		if !slices.ContainsFunc(s.buffers, func(b Tensor) bool { return b.Name == t.Name }) {
			return fmt.Errorf("restore optimizer: unknown tensor %q", t.Name)
		}
	}
	for _, b := range s.buffers {
		copy(b.Data, given[b.Name].Data)
	}
	s.initialised = from.Initialised
	return nil
}
