package data

import (
	"fmt"
	"slices"
)

// table is a dataset of rows with labels or targets.
type table struct {
	features features
	labels   []int32   // for classification
	targets  []float32 // rows x outputs, for regression
	outputs  int
	image    [3]int // channels, height, width; zeros if rows are not images
	rows     []int  // indices of this dataset's rows; nil: all rows
	digest   string
}

// newClassTable returns a dataset with rows of inputs and labels below classes. kind describes the
// inputs; the digest includes it.
func newClassTable(kind string, f features, labels []int32, classes int) *table {
	d := newDigest(kind, len(labels), f.width(), classes)
	f.hash(d)
	d.labels(labels)
	return &table{features: f, labels: labels, outputs: classes, digest: d.String()}
}

// oneClassHint is the hint for checkVariety's error.
const oneClassHint = "a model cannot learn from one class: check that these are the labels"

// checkVariety returns an error if there are labels and all are equal.
func checkVariety(labels []int32) error {
	if len(labels) == 0 || slices.ContainsFunc(labels, func(label int32) bool { return label != labels[0] }) {
		return nil
	}
	return fmt.Errorf("all %d labels are %d, want at least 2 classes", len(labels), labels[0])
}

// newValueTable returns a dataset with rows of inputs and rows of targets.
func newValueTable(kind string, f features, targets []float32, outputs int) *table {
	d := newDigest(kind, len(targets)/outputs, f.width(), outputs)
	f.hash(d)
	d.floats(targets)
	return &table{features: f, targets: targets, outputs: outputs, digest: d.String()}
}

func (d *table) Len() int {
	switch {
	case d.rows != nil:
		return len(d.rows)
	case d.labels != nil:
		return len(d.labels)
	}
	return len(d.targets) / d.outputs
}

func (d *table) Inputs() int    { return d.features.width() }
func (d *table) Tokens() int    { return 0 }
func (d *table) Outputs() int   { return d.outputs }
func (d *table) Classes() bool  { return d.labels != nil }
func (d *table) Digest() string { return d.digest }

func (d *table) Image() (channels, height, width int) {
	return d.image[0], d.image[1], d.image[2]
}

func (d *table) Read(indices []int, into Batch) {
	inputs := d.features.width()
	for at, i := range indices {
		if d.rows != nil {
			i = d.rows[i]
		}
		d.features.row(i, into.X[at*inputs:(at+1)*inputs])
		if d.labels != nil {
			into.Labels[at] = d.labels[i]
		} else {
			copy(into.Targets[at*d.outputs:(at+1)*d.outputs], d.targets[i*d.outputs:(i+1)*d.outputs])
		}
	}
}
