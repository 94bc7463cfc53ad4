package jobs

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Sweep makes many jobs of one file: each element is the file with some values
// set otherwise, and has a run of its own. Exactly one of grid, list and random
// says which values.
type Sweep struct {
	Throttle Count    `toml:"throttle"` // elements that run at once; default no limit
	Grid     Axes     `toml:"grid"`     // every combination of these lists of values
	List     []Values `toml:"list"`     // each of these sets of values
	Random   *Random  `toml:"random"`   // values drawn at random

	// Elements are the trials, in order. The last axis of a grid varies fastest.
	Trials []Trial
}

// Random draws each element's values independently of each other. The same seed
// gives the same values.
type Random struct {
	Samples Count `toml:"samples"` // how many elements
	Seed    Seed  `toml:"seed"`    // of the draws; default 0
	Values  Axes  `toml:"values"`  // a list to choose from, or { min = 1e-4, max = 0.1, log = true }
}

// Trial is one trial of a sweep.
type Trial struct {
	Index  int       // from 0; also the array task ID
	Values []Setting // values that differ from the job file
	Job    *Job      // complete; its name is the sweep's name with "-INDEX"
}

// Setting is a key of the job file with its value.
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
		for _, key := range sortedKeys(table) {
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

// Axis is one key with its possible values: a list or a range.
type Axis struct {
	path   []string
	at     string // key in the file
	values []any
	min    float64
	max    float64
	log    bool // whether the distribution is log-uniform
	whole  bool // whether values are whole numbers
}

// Key returns the key of the job file.
func (a Axis) Key() string { return keyName(a.path) }

// Values are keys of the job file with one value each.
type Values []value

type value struct {
	path  []string
	at    string // key in the file
	value any
}

func sortedKeys(table map[string]any) []string {
	keys := make([]string, 0, len(table))
	for key := range table {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// Array returns the given trials in the format of sbatch --array, such as "0-7%4". The indices
// must be in ascending order. nil means all trials.
func (s *Sweep) Array(elements []int) string {
	if elements == nil {
		for _, e := range s.Trials {
			elements = append(elements, e.Index)
		}
	}
	var parts []string
	for i := 0; i < len(elements); {
		last := i
		for last+1 < len(elements) && elements[last+1] == elements[last]+1 {
			last++
		}
		part := fmt.Sprint(elements[i])
		if last > i {
			part += fmt.Sprintf("-%d", elements[last])
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
