package data

import (
	"fmt"
	"strings"
)

// Kinds of data, as Options.Kind.
const (
	KindIDX       = "idx"       // a folder of images in the files of MNIST, or builtin data
	KindCSV       = "csv"       // a file of comma-separated numbers
	KindSynthetic = "synthetic" // generated numbers
)

// Tasks, as Options.Task. An empty task is regression, except for images, which
// have classes.
const (
	TaskRegression     = "regression"     // predict numbers
	TaskClassification = "classification" // predict one of several classes
)

// Options say what data to open. Fields that a kind does not name are not used.
type Options struct {
	Kind string
	// Path is for idx the folder, or BuiltinPrefix and a name; for csv the file.
	Path string
	// EvalPath is where held-out data are, for idx the folder with the t10k
	// files when it is another one, for csv a file. Empty for csv: there are none.
	EvalPath string
	// Target is for csv the column to predict: its name, or in a file without a
	// header line its number from 1. Empty is the last.
	Target string
	// Task is for csv and synthetic one of the tasks, or empty.
	Task string
	// Samples, Inputs and Outputs are for synthetic the shape to generate.
	Samples, Inputs, Outputs int
	// Seed is for synthetic the seed of the generator.
	Seed int64
}

// Open reads or generates the data to train on and the held-out data to evaluate
// on; eval is nil when there are none. Errors name the file and the place in it:
// the line and column of a CSV file, the byte of an IDX file after decompression.
// Those that a user can act on have a method Hint() string.
func Open(o Options) (train, eval Dataset, err error) {
	if o.Task != "" && o.Task != TaskRegression && o.Task != TaskClassification {
		return nil, nil, fmt.Errorf("open data: unknown task %q, want %q or %q", o.Task, TaskRegression, TaskClassification)
	}
	switch o.Kind {
	case KindIDX:
		if o.Task == TaskRegression {
			return nil, nil, fmt.Errorf("open data: idx images have classes, so the task cannot be %q", o.Task)
		}
		if strings.HasPrefix(o.Path, BuiltinPrefix) {
			if o.EvalPath != "" {
				return nil, nil, fmt.Errorf("open data %q: builtin data have their own held-out samples, so there can be no others from %q", o.Path, o.EvalPath)
			}
			return openBuiltin(o.Path)
		}
		return openIDX(o.Path, o.EvalPath)
	case KindCSV:
		return openCSV(o)
	case KindSynthetic:
		return openSynthetic(o)
	}
	return nil, nil, fmt.Errorf("open data: unknown kind %q, want %q, %q or %q", o.Kind, KindIDX, KindCSV, KindSynthetic)
}
