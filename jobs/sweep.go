package jobs

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Sweep makes many jobs of one file: each element is the file with some values
// set otherwise, and has a run of its own. Exactly one of Grid, List and Random
// says which values.
type Sweep struct {
	Throttle Count    `toml:"throttle"` // elements that run at once; 0 is no limit
	Grid     Axes     `toml:"grid"`     // every combination of these lists of values
	List     []Values `toml:"list"`     // each of these sets of values
	Random   *Random  `toml:"random"`   // values drawn at random

	// Elements are the jobs, in order. The last axis of a grid varies fastest.
	Elements []Element
}

// Random draws each element's values independently of each other. The same seed
// gives the same values.
type Random struct {
	Samples Count `toml:"samples"` // how many elements
	Seed    Seed  `toml:"seed"`    // default 0
	Values  Axes  `toml:"values"`  // a list to choose from, or { min = 1e-4, max = 0.1, log = true }
}

// Element is one job of a sweep.
type Element struct {
	Index  int       // from 0: Slurm's array task id
	Values []Setting // what is set otherwise
	Job    *Job      // complete; its name is the sweep's with "-INDEX"
}

// Setting is a key of the job file and its value.
type Setting struct {
	Key   string
	Value any // as TOML has it
}

// Text is the value as people read it.
func (s Setting) Text() string {
	if f, ok := s.Value.(float64); ok {
		return strconv.FormatFloat(f, 'g', -1, 64)
	}
	return fmt.Sprint(s.Value)
}

// Axes are keys of the job file, each with the values that it may have. In TOML
// they are written as in the job file itself: train.optimizer.lr = [0.1, 0.01].
type Axes []Axis

// Axis is one key and the values that it may have: a list, or a range.
type Axis struct {
	path   []string
	values []any
	min    float64
	max    float64
	log    bool // equally likely in each decade
	whole  bool // whole numbers only
}

// Key is the key of the job file.
func (a Axis) Key() string { return keyName(a.path) }

// Values are keys of the job file with one value each.
type Values []value

type value struct {
	path  []string
	value any
}

// UnmarshalTOML takes a table of the job file's form whose values are lists.
func (a *Axes) UnmarshalTOML(v any) error {
	leaves, err := flatten(v, func(v any) bool { _, table := v.(map[string]any); return !table || isRange(v) })
	if err != nil {
		return err
	}
	for _, leaf := range leaves {
		axis := Axis{path: leaf.path}
		switch v := leaf.value.(type) {
		case []any:
			axis.values = v
		case map[string]any:
			if err := axis.setRange(v); err != nil {
				return err
			}
		default:
			return refuse(axesForms, "%s must be a list of values, not %s", keyName(leaf.path), describe(v))
		}
		if axis.values != nil && len(axis.values) == 0 {
			return refuse(axesForms, "%s has no values", keyName(leaf.path))
		}
		*a = append(*a, axis)
	}
	return nil
}

// UnmarshalTOML takes a table of the job file's form.
func (s *Values) UnmarshalTOML(v any) error {
	leaves, err := flatten(v, func(v any) bool { _, table := v.(map[string]any); return !table })
	*s = leaves
	return err
}

const axesForms = "for example: train.optimizer.lr = [0.1, 0.01]"

// flatten turns nested tables into dotted keys, in alphabetical order. A quoted
// key "train.batch" is the same as train.batch.
func flatten(v any, leaf func(any) bool) ([]value, error) {
	table, ok := v.(map[string]any)
	if !ok {
		return nil, refuse(axesForms, "must be a table, not %s", describe(v))
	}
	var out []value
	var walk func(path []string, table map[string]any) error
	walk = func(path []string, table map[string]any) error {
		for _, key := range sortedKeys(table) {
			at := append(slices.Clip(path), strings.Split(key, ".")...)
			if slices.Contains(at, "") {
				return refuse(axesForms, "%q is not a key of a job file", keyName(at))
			}
			if leaf(table[key]) {
				if err := maySweep(at); err != nil {
					return err
				}
				out = append(out, value{at, table[key]})
			} else if err := walk(at, table[key].(map[string]any)); err != nil {
				return err
			}
		}
		return nil
	}
	if err := walk(nil, table); err != nil {
		return nil, err
	}
	for i, v := range out {
		if j := slices.IndexFunc(out[:i], func(o value) bool { return slices.Equal(o.path, v.path) }); j >= 0 {
			return nil, refuse("", "%s is given twice", keyName(v.path))
		}
	}
	if len(out) == 0 {
		return nil, refuse(axesForms, "is empty")
	}
	return out, nil
}

// sweepable are the tables that may differ between the elements of a sweep. They
// share the rest, for they are one array of one script.
var sweepable = []string{"train", "command", "checkpoint", "restart", "network", "setup.env"}

func maySweep(path []string) error {
	key := keyName(path)
	for _, table := range sweepable {
		if strings.HasPrefix(key, table+".") {
			return nil
		}
	}
	return refuse("allowed are keys below "+strings.Join(sweepable, ", "),
		"%s cannot differ between the elements of a sweep: they are one job array", key)
}

func isRange(v any) bool {
	table, ok := v.(map[string]any)
	_, min := table["min"]
	_, max := table["max"]
	return ok && (min || max)
}

const rangeForms = "allowed: { min = 1e-4, max = 0.1 }, and log = true for equal chances in each decade"

func (a *Axis) setRange(table map[string]any) error {
	key := keyName(a.path)
	wholes := 0
	for _, name := range sortedKeys(table) {
		v := table[name]
		f, number := v.(float64)
		if i, ok := v.(int64); ok {
			f, number = float64(i), true
			wholes++
		}
		b, isBool := v.(bool)
		switch {
		case name == "min" && number:
			a.min = f
		case name == "max" && number:
			a.max = f
		case name == "log" && isBool:
			a.log = b
		case name == "min", name == "max":
			return refuse(rangeForms, "%s.%s must be a number, not %s", key, name, describe(v))
		case name == "log":
			return refuse(rangeForms, "%s.log must be true or false, not %s", key, describe(v))
		default:
			return refuse(rangeForms, "%s has an unknown key %q", key, name)
		}
	}
	a.whole = wholes == 2
	switch {
	case table["min"] == nil || table["max"] == nil:
		return refuse(rangeForms, "%s needs both min and max", key)
	case !(a.min < a.max) || a.max-a.min > 1e15:
		return refuse(rangeForms, "%s goes from %g to %g", key, a.min, a.max)
	case a.log && a.min <= 0:
		return refuse(rangeForms, "%s: with log = true, min must be more than 0", key)
	}
	return nil
}

func sortedKeys(table map[string]any) []string {
	keys := make([]string, 0, len(table))
	for key := range table {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// Array is the sweep's elements, or those given in rising order, as sbatch --array
// takes them: "0-7%4".
func (s *Sweep) Array(elements []int) string {
	if elements == nil {
		for _, e := range s.Elements {
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
