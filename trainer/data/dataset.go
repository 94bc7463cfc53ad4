// Package data holds the samples that a run trains and evaluates on, and says
// which of them each rank takes, and when.
//
// A [Dataset] is immutable: [Open] reads it once (IDX image folders, CSV files,
// text, token files, safetensors arrays, generated numbers, or the Fashion-MNIST
// subset that is part of the program) and checks every value of it, so that after
// that reading a batch allocates nothing and cannot fail. [Sampler] gives each rank
// its samples of an epoch exactly as PyTorch's DistributedSampler does, and can
// give the rest of an epoch to another number of ranks; [BatchSampler] cuts them
// into batches; [State] says how far a run has come in them. [Loader] reads batches
// ahead of the caller.
//
// Data are in memory, but for token files, which are mapped and may be larger than
// memory. Whoever writes to a token file during the run changes what is trained on;
// if one is made shorter, Loader.Next returns an error that names it, and
// Dataset.Read panics with that error.
//
// It does not tokenise but by character and byte, augment or normalise samples,
// download anything, or look at the environment.
package data

// Dataset is a list of samples. A sample is a row of numbers with either a class
// label or a row of target values, or it is a sequence of tokens with the token
// that follows each as its label. It is safe for concurrent use.
type Dataset interface {
	// Len returns the number of samples, at least 1.
	Len() int
	// Inputs returns the number of input values per sample, 0 for tokens.
	Inputs() int
	// Image returns what the input values of a sample are when they are an image:
	// channels x height x width of them, in this order. Zeros for anything else.
	Image() (channels, height, width int)
	// Tokens returns the number of tokens per sample, 0 for rows of numbers.
	Tokens() int
	// Outputs returns the number of classes, of target values per sample, or of
	// tokens in the vocabulary: what a model must have as outputs.
	Outputs() int
	// Classes reports whether samples have labels (0 to Outputs-1) and no targets,
	// as tokens do.
	Classes() bool
	// Read writes the samples with the given indices to the front of into's slices,
	// those that the dataset has: see [Batch]. One that is too short and an index
	// out of range panic.
	Read(indices []int, into Batch)
	// Digest returns the SHA-256, in hexadecimal, of shape and content, so that a
	// resumed run can see that the data changed. It does not depend on the
	// file's name or compression.
	Digest() string
}

const (
	// maxValues limits the numbers in one dataset in memory, inputs and targets
	// together, to what 32-bit arithmetic in file formats and 8 GiB of memory can hold.
	maxValues = 1 << 31

	// maxClasses limits labels. A larger one is nearly always a column of numbers
	// that is no label at all, and would make a model of that width.
	maxClasses = 10000

	// maxVocabulary limits tokens in the same way; the largest vocabularies in use
	// have about a million.
	maxVocabulary = 1 << 20
)
