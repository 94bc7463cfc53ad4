package jobs

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// A Sweep is a set of trials. Exactly one of Range, Grid, List, and Random determines their values.
type Sweep struct {
	Throttle int        `toml:"throttle" auto:"no limit" range:"1.." help:"Maximum number of trials that run at the same time."`
	Range    ArrayRange `toml:"array" help:"Indices of the trials as in sbatch --array, such as 0-14%4. Each trial has its index as setup.array_task."`
	Grid     Axes       `toml:"grid" help:"Lists of values, by key of the job file. The trials are all combinations."`
	List     []Values   `toml:"list" help:"List of trials. Each is a table with the values of the trial, by key of the job file."`
	Random   *Random    `toml:"random" help:"Random search. Each trial has a random value for each key, independent of the others. The same seed gives the same values."`

	// Trials are the trials, in order. The last axis of a grid varies fastest.
	Trials []Trial
}

// Random configures a random search.
type Random struct {
	Samples int    `toml:"samples" required:"16" range:"1.." help:"Number of trials."`
	Seed    uint64 `toml:"seed" default:"0" range:"0.." help:"Seed of the random values."`
	Values  Axes   `toml:"values" required:"{ train.optimizer.lr = { min = 1e-4, max = 0.1, log = true } }" help:"Values, by key of the job file: a list to choose from, or a range such as { min = 1e-4, max = 0.1, log = true }."`
}

// A Trial is one job of a sweep.
type Trial struct {
	Index  int       // from 0; also the array task ID
	Values []Setting // values that differ from the job file
	Job    *Job      // complete; its name is the sweep's name with "-INDEX"
}

// A Setting is a key of the job file with its value.
type Setting struct {
	Key   string
	Value any // as decoded from TOML
}

// Text returns the value in human-readable form. In a list, ambiguous strings are quoted:
// "[64, 128]", "[train, \"a b\"]".
func (s Setting) Text() string {
	if text, ok := s.Value.(string); ok {
		return text
	}
	return formatValue(s.Value)
}

// formatValue formats a TOML value in human-readable form, without quotes where possible.
func formatValue(v any) string {
	list, isList := listOf(v)
	table, isTable := v.(map[string]any)
	switch text, isText := v.(string); {
	case isText && (text == "" || strings.ContainsAny(text, ` ,"[]{}`)):
		return strconv.Quote(text)
	case isList:
		parts := make([]string, len(list))
		for i, e := range list {
			parts[i] = formatValue(e)
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case isTable:
		var parts []string
		for _, key := range slices.Sorted(maps.Keys(table)) {
			parts = append(parts, key+" = "+formatValue(table[key]))
		}
		return "{" + strings.Join(parts, ", ") + "}"
	}
	if f, ok := v.(float64); ok {
		return strconv.FormatFloat(f, 'g', -1, 64)
	}
	return fmt.Sprint(v)
}

// Axes are keys of the job file, each with its possible values. In TOML, they are written as
// in the job file: train.optimizer.lr = [0.1, 0.01].
type Axes []Axis

// An Axis is one key with its possible values: a list or a range.
type Axis struct {
	path     []string
	at       string // key in the file, below [sweep]
	values   []any  // nil for a range
	min, max float64
	log      bool // whether the distribution is log-uniform
	whole    bool // whether values are integers
}

// Key returns the key of the job file.
func (a Axis) Key() string { return keyName(a.path) }

// Values are keys of the job file with one value each.
type Values []value

type value struct {
	path  []string
	at    string // key in the file, below [sweep]
	value any
}

// Array returns the given trials in the format of sbatch --array, such as "0-7%4". The indices
// must be in ascending order. nil means all trials.
func (s *Sweep) Array(indices []int) string {
	if indices == nil {
		for _, trial := range s.Trials {
			indices = append(indices, trial.Index)
		}
	}
	var parts []string
	for i := 0; i < len(indices); {
		last := i
		for last+1 < len(indices) && indices[last+1] == indices[last]+1 {
			last++
		}
		part := fmt.Sprint(indices[i])
		if last > i {
			part += fmt.Sprintf("-%d", indices[last])
		}
		parts = append(parts, part)
		i = last + 1
	}
	array := strings.Join(parts, ",")
	if s.Throttle > 0 {
		array += fmt.Sprintf("%%%d", s.Throttle)
	}
	return array
}
