// Package data provides the samples for training and evaluation, and determines which samples each
// rank processes, and when.
//
// A [Dataset] is immutable. [Open] reads it once (IDX image directories, CSV files, text, token
// files, safetensors arrays, generated values, or the builtin Fashion-MNIST subset) and validates
// every value. After that, reading a batch allocates nothing and cannot fail. [Sampler] assigns
// each rank its samples of an epoch exactly like PyTorch's DistributedSampler, and can assign the
// rest of an epoch to a different number of ranks. [BatchSampler] divides them into batches.
// [State] is the position of a run in them. [Loader] prefetches batches.
//
// Data are in memory, except token files, which are mapped and may be larger than memory. Open reads
// all tokens once; OpenScanned reads none if the result of an earlier read is available. Writing to a
// token file during the run changes the training data. If a token file is truncated, or a token is
// not in the vocabulary, Loader.Next returns an error that names it, and Dataset.Read panics with
// that error.
//
// The package tokenizes only by character or byte. It does not augment or normalize samples,
// download anything, or read environment variables.
package data

// Dataset is a list of samples. A sample is either a row of values with a class label or a row of
// target values, or a sequence of tokens, each with the next token as its label. It is safe for
// concurrent use.
type Dataset interface {
	// Len returns the number of samples, at least 1.
	Len() int
	// Inputs returns the number of input values per sample, 0 for tokens.
	Inputs() int
	// Image returns the dimensions of a sample that is an image, with values in the order channels
	// x height x width. For other samples it returns zeros.
	Image() (channels, height, width int)
	// Tokens returns the number of tokens per sample, 0 for rows of values.
	Tokens() int
	// Outputs returns the number of classes, of target values per sample, or of tokens in the
	// vocabulary. A model must have that many outputs.
	Outputs() int
	// Classes reports whether samples have labels (0 to Outputs-1) instead of targets. It is true
	// for tokens.
	Classes() bool
	// Read writes the samples with the given indices to the start of into's slices, see [Batch]. It
	// panics if a slice is too short or an index is out of range.
	Read(indices []int, into Batch)
	// Digest returns the SHA-256, in hexadecimal, of shape and content, so that a resumed run can
	// detect changed data. It does not depend on the file's name or compression.
	Digest() string
}

const (
	// maxValues is the maximum number of values of a dataset in memory, inputs and targets
	// together: the limit of 32-bit arithmetic in file formats, and 8 GiB of memory.
	maxValues = 1 << 31

	// maxClasses limits labels. A larger one is nearly always a column of values that is not a
	// label, and would give a model of that width.
	maxClasses = 10000

	// maxVocabulary limits tokens. The largest vocabularies in use have about a million.
	maxVocabulary = 1 << 20
)
