package data

// table is a dataset of float32 rows with labels or targets.
type table struct {
	x       []float32 // samples x inputs
	labels  []int32   // for classification
	targets []float32 // samples x outputs, for regression
	inputs  int
	outputs int
	digest  string
}

// newClassTable takes rows of inputs and labels below classes.
func newClassTable(x []float32, inputs int, labels []int32, classes int) *table {
	d := newDigest("classes", len(labels), inputs, classes)
	d.floats(x)
	d.labels(labels)
	return &table{x: x, labels: labels, inputs: inputs, outputs: classes, digest: d.String()}
}

// newValueTable takes rows of inputs and rows of targets.
func newValueTable(x []float32, inputs int, targets []float32, outputs int) *table {
	d := newDigest("values", len(x)/inputs, inputs, outputs)
	d.floats(x)
	d.floats(targets)
	return &table{x: x, targets: targets, inputs: inputs, outputs: outputs, digest: d.String()}
}

func (d *table) Len() int       { return len(d.x) / d.inputs }
func (d *table) Inputs() int    { return d.inputs }
func (d *table) Outputs() int   { return d.outputs }
func (d *table) Classes() bool  { return d.labels != nil }
func (d *table) Digest() string { return d.digest }

func (d *table) Read(indices []int, x []float32, labels []int32, targets []float32) {
	for row, i := range indices {
		copyRow(x, row, d.x, i, d.inputs)
		if d.labels != nil {
			labels[row] = d.labels[i]
		} else {
			copyRow(targets, row, d.targets, i, d.outputs)
		}
	}
}

// copyRow copies row j of src to row i of dst, both of the given width. The
// full slice of dst makes a destination that is too short panic.
func copyRow(dst []float32, i int, src []float32, j, width int) {
	copy(dst[i*width:(i+1)*width], src[j*width:(j+1)*width])
}
