package data

// Batch holds the memory into which samples are read, one after the other. Only the slices that the
// dataset has are used; the others may be nil. Slices may be longer than needed.
type Batch struct {
	X       []float32 // samples x Inputs
	Tokens  []int32   // samples x Tokens
	Labels  []int32   // samples, or samples x Tokens: the next token of each
	Targets []float32 // samples x Outputs
}

// NewBatch allocates memory for size samples of d.
func NewBatch(d Dataset, size int) Batch {
	var b Batch
	perSample := 1
	if tokens := d.Tokens(); tokens > 0 {
		perSample = tokens
		b.Tokens = make([]int32, size*tokens)
	} else {
		b.X = make([]float32, size*d.Inputs())
	}
	if d.Classes() {
		b.Labels = make([]int32, size*perSample)
	} else {
		b.Targets = make([]float32, size*d.Outputs())
	}
	return b
}

// first returns the part of b, which has memory for size samples, for n samples.
func (b Batch) first(n, size int) Batch {
	return Batch{
		X:       b.X[:len(b.X)/size*n],
		Tokens:  b.Tokens[:len(b.Tokens)/size*n],
		Labels:  b.Labels[:len(b.Labels)/size*n],
		Targets: b.Targets[:len(b.Targets)/size*n],
	}
}
