package nn

// Param is one parameter of a model. Its owner may at any time between steps
// replace Data and Grad by slices of the same length, to put them into buffers
// that it shares with others; the model keeps no reference to the old ones.
type Param struct {
	Name  string    // as in the state_dict of the PyTorch module
	Shape []int     // outermost dimension first
	Data  []float32 // current values, row-major
	Grad  []float32 // gradient of the last Backward, which overwrites it
}

func newParam(name string, shape ...int) *Param {
	n := 1
	for _, d := range shape {
		n *= d
	}
	return &Param{Name: name, Shape: shape, Data: make([]float32, n), Grad: make([]float32, n)}
}
