package data

import (
	"context"
	"fmt"
	"strings"
)

// Kinds of data, for Options.Kind.
const (
	KindIDX         = "idx"         // a directory of images in MNIST's files, or builtin data
	KindCSV         = "csv"         // a file of comma-separated values
	KindText        = "text"        // a text file, split into characters or bytes
	KindTokens      = "tokens"      // files of tokens, raw or in llm.c's format
	KindSafetensors = "safetensors" // two arrays of a file
	KindSynthetic   = "synthetic"   // generated values
)

// Tasks, for Options.Task. An empty task means regression, except for images and tokens, which have
// classes, and safetensors, for which it depends on the type of the target.
const (
	TaskRegression     = "regression"     // predict values
	TaskClassification = "classification" // predict one of several classes
)

// Options selects the data to open. Fields that are not for the kind are ignored.
type Options struct {
	Kind string
	// Path is the directory for idx, or BuiltinPrefix and a name. For other kinds it is the file.
	// For tokens it may be a pattern such as fineweb_train_*.bin.
	Path string
	// EvalPath is the path of the held-out data: for idx the directory with the t10k files if it
	// differs from Path, for csv and safetensors a file, for tokens a file or a pattern. If it is
	// empty, only idx, synthetic classification, and Holdout provide held-out data.
	EvalPath string
	// Holdout is the fraction of the data to hold out, for csv, text, tokens, and safetensors
	// without EvalPath: the last part of text and tokens, otherwise random rows selected with Seed,
	// like PyTorch's random_split.
	Holdout float64
	// Target is the column to predict for csv: its name, or its number from 1 in a file without a
	// header line; empty means the last. For safetensors it is the name of the array; empty means
	// "y".
	Target string
	// Features is the name of the array of inputs for safetensors; empty means "x".
	Features string
	// Task is one of the tasks, or empty, for csv, safetensors, and synthetic.
	Task string
	// Context is the length of a sample in tokens, for text and tokens.
	Context int
	// Vocabulary is VocabularyChar or VocabularyByte, for text; empty means char.
	Vocabulary string
	// VocabularySize is an upper bound for token IDs (exclusive), for tokens; 0 means one more than
	// the largest token ID in the files.
	VocabularySize int
	// DType is DTypeUint16 or DTypeUint32, the type of tokens in files without a header, for
	// tokens; empty means uint16.
	DType string
	// Samples, Inputs, and Outputs are the shape to generate, for synthetic.
	Samples, Inputs, Outputs int
	// Seed is the seed of the generator for synthetic, and the seed for Holdout.
	Seed int64
}

// Open reads or generates the training data and the held-out data; eval is nil if there are no
// held-out data. If the context ends while files are read, Open returns its cause. Errors name the
// file and the position in it: the line and column of a CSV file, the byte offset after
// decompression in other files. Errors that a user can fix have a method Hint() string.
func Open(ctx context.Context, o Options) (train, eval Dataset, err error) {
	return OpenScanned(ctx, o, func(ctx context.Context, _ ScanKey, compute func(context.Context) (Scan, error)) (Scan, error) {
		return compute(ctx)
	})
}

// A Scanner returns the scan of token files: the result of compute, which reads all tokens, or an
// earlier result with the same key.
type Scanner func(ctx context.Context, key ScanKey, compute func(context.Context) (Scan, error)) (Scan, error)

// OpenScanned opens data like [Open]. It calls scan once for token files, and not for other data. It
// returns the error of scan.
func OpenScanned(ctx context.Context, o Options, scan Scanner) (train, eval Dataset, err error) {
	if o.Task != "" && o.Task != TaskRegression && o.Task != TaskClassification {
		return nil, nil, fmt.Errorf("open data: unknown task %q, want %q or %q", o.Task, TaskRegression, TaskClassification)
	}
	if err := checkHoldout(o); err != nil {
		return nil, nil, err
	}
	switch o.Kind {
	case KindIDX, KindText, KindTokens:
		if o.Task == TaskRegression {
			return nil, nil, fmt.Errorf("open data: %s data have classes, so the task cannot be %q", o.Kind, o.Task)
		}
	}
	switch o.Kind {
	case KindIDX:
		if strings.HasPrefix(o.Path, BuiltinPrefix) {
			if o.EvalPath != "" {
				return nil, nil, fmt.Errorf("open data %q: builtin data have their own held-out samples, so eval_path %q cannot be used", o.Path, o.EvalPath)
			}
			return openBuiltin(ctx, o.Path)
		}
		return openIDX(ctx, o.Path, o.EvalPath)
	case KindCSV:
		return openCSV(ctx, o)
	case KindText:
		return openText(ctx, o)
	case KindTokens:
		return openTokens(ctx, o, scan)
	case KindSafetensors:
		return openSafetensors(ctx, o)
	case KindSynthetic:
		return openSynthetic(o)
	}
	kinds := []string{KindIDX, KindCSV, KindText, KindTokens, KindSafetensors, KindSynthetic}
	return nil, nil, fmt.Errorf("open data: unknown kind %q, want one of %s", o.Kind, strings.Join(kinds, ", "))
}
