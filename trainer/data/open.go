package data

import (
	"context"
	"fmt"
	"strings"
)

// Kinds of data, as Options.Kind.
const (
	KindIDX         = "idx"         // a folder of images in the files of MNIST, or builtin data
	KindCSV         = "csv"         // a file of comma-separated numbers
	KindText        = "text"        // a file of text, cut into characters or bytes
	KindTokens      = "tokens"      // files of tokens, raw or in llm.c's format
	KindSafetensors = "safetensors" // two arrays of a file
	KindSynthetic   = "synthetic"   // generated numbers
)

// Tasks, as Options.Task. An empty task is regression, except for images and
// tokens, which have classes, and safetensors, where the type of the target says it.
const (
	TaskRegression     = "regression"     // predict numbers
	TaskClassification = "classification" // predict one of several classes
)

// Options say what data to open. Fields that a kind does not name are not used.
type Options struct {
	Kind string
	// Path is for idx the folder, or BuiltinPrefix and a name; for other kinds the
	// file, for tokens also a pattern as fineweb_train_*.bin.
	Path string
	// EvalPath is where held-out data are, for idx the folder with the t10k
	// files when it is another one, for csv and safetensors a file, for tokens also
	// a pattern. Empty for other kinds than idx: there are none but those of Holdout.
	EvalPath string
	// Holdout is for csv, text, tokens and safetensors without EvalPath the share of
	// the data to hold out: the last part of text and tokens; else rows drawn by
	// Seed as PyTorch's random_split does.
	Holdout float64
	// Target is for csv the column to predict: its name, or in a file without a
	// header line its number from 1, empty the last. For safetensors it is the
	// array's name, empty "y".
	Target string
	// Features is for safetensors the name of the array of inputs, empty "x".
	Features string
	// Task is for csv, safetensors and synthetic one of the tasks, or empty.
	Task string
	// Context is for text and tokens the length of a sample in tokens.
	Context int
	// Vocabulary is for text VocabularyChar or VocabularyByte; empty is char.
	Vocabulary string
	// VocabularySize is for tokens a number that all of them are below; 0 means
	// one more than the largest token in the files.
	VocabularySize int
	// DType is for tokens DTypeUint16 or DTypeUint32, how files without a header store
	// one; empty is uint16.
	DType string
	// Samples, Inputs and Outputs are for synthetic the shape to generate.
	Samples, Inputs, Outputs int
	// Seed is for synthetic the seed of the generator, and that of Holdout.
	Seed int64
}

// Open reads or generates the data to train on and the held-out data to evaluate
// on; eval is nil when there are none. It stops when the context ends, with the cause of
// that. Errors name the file and the place in it:
// the line and column of a CSV file, the byte of another one after decompression.
// Those that a user can act on have a method Hint() string.
func Open(ctx context.Context, o Options) (train, eval Dataset, err error) {
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
				return nil, nil, fmt.Errorf("open data %q: builtin data have their own held-out samples, so there can be no others from %q", o.Path, o.EvalPath)
			}
			return openBuiltin(ctx, o.Path)
		}
		return openIDX(ctx, o.Path, o.EvalPath)
	case KindCSV:
		return openCSV(ctx, o)
	case KindText:
		return openText(ctx, o)
	case KindTokens:
		return openTokens(ctx, o)
	case KindSafetensors:
		return openSafetensors(ctx, o)
	case KindSynthetic:
		return openSynthetic(o)
	}
	kinds := []string{KindIDX, KindCSV, KindText, KindTokens, KindSafetensors, KindSynthetic}
	return nil, nil, fmt.Errorf("open data: unknown kind %q, want one of %s", o.Kind, strings.Join(kinds, ", "))
}
