package jobs

import (
	"fmt"
	"maps"
	"path"
	"reflect"
	"regexp/syntax"
	"slices"
	"strings"
)

// Progress describes where the progress of the user's program is read.
type Progress struct {
	Patterns   []Text         `toml:"patterns" help:"Regular expressions for lines of the output, with named groups such as (?P<step>\\d+) and (?P<loss>\\S+). The first one that matches a line counts. They replace the built-in forms."`
	File       Text           `toml:"file" help:"File with metrics that the program writes, a pattern such as logs/*/metrics.csv, or a directory with TensorBoard event files. Relative paths start at workdir. May contain {run_dir}, {run_id}, and {checkpoint_dir}. Without patterns, the output is then not read."`
	Format     ProgressFormat `toml:"format" default:"auto" enum:"auto,jsonl,csv,tensorboard" help:"Format of file: JSON lines, CSV with a header, or TensorBoard event files. With auto, the name of the file determines it."`
	TotalSteps int            `toml:"total_steps" auto:"from the output" range:"1.." help:"Number of steps of the run, for the remaining time."`
	Names      ProgressNames  `toml:"names" help:"Names in file that differ from the built-in names: names of JSON values, columns, or tags."`
}

// ProgressNames are names in the file with the program's metrics. The keys are also the names of
// groups in patterns.
type ProgressNames struct {
	Step             Text `toml:"step" help:"Name of the step."`
	Steps            Text `toml:"steps" help:"Name of the number of steps."`
	Epoch            Text `toml:"epoch" help:"Name of the epoch."`
	Epochs           Text `toml:"epochs" help:"Name of the number of epochs."`
	Loss             Text `toml:"loss" help:"Name of the training loss."`
	EvalLoss         Text `toml:"eval_loss" help:"Name of the loss on held-out data."`
	Accuracy         Text `toml:"accuracy" help:"Name of the training accuracy."`
	EvalAccuracy     Text `toml:"eval_accuracy" help:"Name of the accuracy on held-out data."`
	LR               Text `toml:"lr" help:"Name of the learning rate."`
	TokensPerSecond  Text `toml:"tokens_per_s" help:"Name of the tokens per second."`
	SamplesPerSecond Text `toml:"samples_per_s" help:"Name of the samples per second."`
	StepsPerSecond   Text `toml:"steps_per_s" help:"Name of the steps per second."`
	StepMillis       Text `toml:"step_ms" help:"Name of the duration of a step, in milliseconds."`
}

// A ProgressFormat is the format of a file with the program's metrics.
type ProgressFormat string

// Values of [Progress.Format].
const (
	ProgressAuto        ProgressFormat = "auto"
	ProgressJSONLines   ProgressFormat = "jsonl"
	ProgressCSV         ProgressFormat = "csv"
	ProgressTensorBoard ProgressFormat = "tensorboard"
)

// All returns the names that are set, by group.
func (n ProgressNames) All() map[string]string {
	set := map[string]string{}
	v := reflect.ValueOf(n)
	for i, f := range tableOf(v.Type()).fields {
		if name := v.Field(i).String(); name != "" {
			set[f.key] = name
		}
	}
	return set
}

// ResolvedFormat returns the format of the file. It returns auto if the file is not set, or if
// its name does not show the format.
func (p Progress) ResolvedFormat() ProgressFormat {
	if p.Format != ProgressAuto || p.File == "" {
		return p.Format
	}
	name := strings.ToLower(path.Base(string(p.File)))
	switch ext := path.Ext(name); {
	case strings.Contains(name, "tfevents"):
		return ProgressTensorBoard
	case ext == ".csv":
		return ProgressCSV
	case ext == ".jsonl", ext == ".ndjson", ext == ".json":
		return ProgressJSONLines
	}
	return ProgressAuto
}

func (d *decoder) checkProgress(p *Progress) {
	const patterns, file, format, names = "command.progress.patterns", "command.progress.file", "command.progress.format", "command.progress.names"
	for i, pattern := range p.Patterns {
		if !d.isValid(patterns) {
			break
		}
		if message, allowed := checkPattern(string(pattern)); message != "" {
			d.reportElementAllowed(patterns, i, message, allowed)
		}
	}
	if d.isValid(file) {
		_, err := path.Match(string(p.File), "")
		switch {
		case p.File == "":
			d.report(file, "", "is empty")
		case err != nil:
			d.report(file, "", "%q is not a valid pattern: a bracket is not closed", p.File)
		case strings.HasPrefix(string(p.File), "~"):
			d.report(file, "write the absolute path", `"~" is not expanded`)
		case hasPlaceholder(string(p.File), PlaceholderAttempt):
			d.report(file, "use a pattern, such as logs/*/metrics.csv", "{attempt} is not valid here")
		case p.ResolvedFormat() == ProgressAuto && !d.invalid[format]:
			d.report(file, `set format = "jsonl", "csv", or "tensorboard"`, "the name %q does not show its format", p.File)
		}
	}
	if !d.given[file] && d.given[format] && p.Format != ProgressAuto {
		d.report(format, "set command.progress.file", "has no effect without file")
	}
	if !d.given[file] && d.given[names] {
		d.report(names, "set command.progress.file; for the output, use named groups in patterns", "has no effect without file")
	}
	groups, all := map[string]string{}, p.Names.All()
	for _, group := range slices.Sorted(maps.Keys(all)) {
		name, key := all[group], names+"."+group
		if other, twice := groups[name]; twice && d.isValid(key) {
			d.report(key, "", "%q is also the name of %s", name, other)
		}
		groups[name] = group
	}
}

// parsePattern parses a regular expression. It returns the reason if [regexp.Compile] would reject it. It does
// not compile it: repetitions such as {1,1000} take a thousand times longer, for each of the patterns in a file,
// and in each trial of a sweep.
func parsePattern(pattern string) (re *syntax.Regexp, invalid string) {
	re, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return nil, "is not a valid regular expression: " + strings.TrimPrefix(err.Error(), "error parsing regexp: ")
	}
	return re, ""
}

// checkPattern returns an error of a pattern, and a fix.
func checkPattern(pattern string) (message, allowed string) {
	re, invalid := parsePattern(pattern)
	if invalid != "" {
		return invalid, "write it in single quotes, so that TOML keeps backslashes; the syntax is RE2"
	}
	groups := tableOf(reflect.TypeFor[ProgressNames]()).names
	hasPosition := false
	for _, name := range re.CapNames() {
		if name != "" && !slices.Contains(groups, name) {
			return fmt.Sprintf("unknown group %q", name), "allowed: " + strings.Join(groups, ", ")
		}
		hasPosition = hasPosition || name == "step" || name == "epoch"
	}
	if !hasPosition {
		return `has no group "step" or "epoch"`, `for example: 'step (?P<step>\d+) loss (?P<loss>\S+)'`
	}
	return "", ""
}
