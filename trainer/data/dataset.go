// Package data holds the samples that a run trains and evaluates on, and says
// which of them each rank takes, and when.
//
// A [Dataset] is immutable and in memory: [Open] reads it once (IDX image
// folders, CSV files, generated numbers, or the Fashion-MNIST subset that is
// part of the program), checks everything, and after that reading a batch
// allocates nothing and cannot fail. [Sampler] gives each rank its samples of an
// epoch exactly as PyTorch's DistributedSampler does, and can give the rest of an
// epoch to another number of ranks.
//
// It does not stream data that is larger than memory, augment or normalise
// samples, download anything, or look at the environment.
package data

// Dataset is a list of samples, each a row of inputs with either a class label
// or a row of target values. It is safe for concurrent use.
type Dataset interface {
	// Len returns the number of samples, at least 1.
	Len() int
	// Inputs returns the number of input values per sample.
	Inputs() int
	// Outputs returns the number of classes, or of target values per sample:
	// what a model must have as outputs.
	Outputs() int
	// Classes reports whether samples have labels (0 to Outputs-1) and no targets.
	Classes() bool
	// Read writes the inputs of the samples with the given indices as rows of x,
	// and their labels or their target rows. The other of labels and targets is
	// not touched and may be nil. Destinations may be longer than needed; one
	// that is too short and an index out of range panic.
	Read(indices []int, x []float32, labels []int32, targets []float32)
	// Digest returns the SHA-256, in hexadecimal, of shape and content, so that a
	// resumed run can see that the data changed. It does not depend on the
	// file's name or compression.
	Digest() string
}

// maxValues limits the numbers in one dataset, inputs and targets together, to
// what 32-bit arithmetic in file formats and 8 GiB of memory can hold.
const maxValues = 1 << 31

// maxClasses limits labels. A larger one is nearly always a column of numbers
// that is no label at all, and would make a model of that width.
const maxClasses = 10000
