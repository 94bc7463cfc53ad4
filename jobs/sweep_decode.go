package jobs

import (
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
)

// sweepable are the tables that may differ between the trials of a sweep. The trials share all
// other tables, because they are one job array with one batch script.
var sweepable = []string{"train", "command", "checkpoint", "restart", "network", "setup.env"}

// allocationKeys are keys of these tables that affect the allocation.
var allocationKeys = []string{"restart.spare_nodes", "restart.min_nodes"}

// sweepableTables are the top-level tables that contain the sweepable tables.
var sweepableTables = []string{"checkpoint", "command", "network", "restart", "setup", "train"}

const axesForms = "for example: train.optimizer.lr = [0.1, 0.01]"

// isSweepable reports whether a key may differ between trials.
func isSweepable(key string) bool {
	isInside := func(table string) bool { return key != table && isWithin(key, table) }
	return key == arrayTaskKey || slices.ContainsFunc(sweepable, isInside) && !slices.Contains(allocationKeys, key)
}

// A sweptKey is a key of the job file in a table of [sweep].
type sweptKey struct {
	*field
	path  []string // path in the job file
	at    []string // path as written, where a quoted key "train.batch" equals train.batch
	value any      // value in [sweep]
}

// name returns the key as written in the file.
func (k sweptKey) name() string { return keyName(k.at) }

// sweptKeys returns the keys in a table of a sweep, in alphabetical order. It reports keys that
// the job file does not have and keys that cannot differ between trials.
func (d *decoder) sweptKeys(at []string, where span, v any) []sweptKey {
	table, ok := v.(map[string]any)
	switch {
	case !ok:
		d.addValueError(at, keyName(at), where, valueErrorf(axesForms, "must be a table, not %s", typeName(v)))
		return nil
	case len(table) == 0:
		d.addValueError(at, keyName(at), where, valueErrorf(axesForms, "is empty"))
		return nil
	}
	all := d.walk(at, nil, table)
	given := map[string]sweptKey{}
	for _, k := range all {
		if earlier, twice := given[keyName(k.path)]; twice {
			d.addSweptKeyError(k, "", "is also given as %s", earlier.name())
		}
		given[keyName(k.path)] = k
	}
	for _, k := range all {
		for n := 1; n < len(k.path); n++ {
			if outer, ok := given[keyName(k.path[:n])]; ok {
				d.addSweptKeyError(k, "", "is inside %s, which is also given", outer.name())
			}
		}
	}
	return all
}

// walk returns the keys below a table of a sweep, which has the given path in the job file.
func (d *decoder) walk(at, path []string, table map[string]any) (all []sweptKey) {
	for _, name := range slices.Sorted(maps.Keys(table)) {
		k := sweptKey{
			path: append(slices.Clip(path), strings.Split(name, ".")...), at: append(slices.Clip(at), name), value: table[name],
		}
		k.field = fieldAt(reflect.TypeFor[Job](), k.path)
		inner, isTable := k.value.(map[string]any)
		switch {
		case slices.Contains(k.path, ""):
			d.addSweptKeyError(k, axesForms, "%q is not a key of a job file", name)
		case k.field == nil:
			d.addUnknownSweptKey(k)
		case isTable && tableType(k.typ) != nil:
			if len(inner) == 0 {
				d.addSweptKeyError(k, axesForms, "is empty")
			}
			all = append(all, d.walk(k.at, k.path, inner)...)
		case !isSweepable(keyName(k.path)):
			d.addNotSweepable(k)
		case k.checkKey() != nil:
			d.addValueError(k.at, k.name(), d.lookup(k.name()).key, k.checkKey())
		default:
			all = append(all, k)
		}
	}
	return all
}

func (d *decoder) addSweptKeyError(k sweptKey, allowed, format string, args ...any) {
	d.addValueError(k.at, k.name(), d.lookup(k.name()).key, valueErrorf(allowed, format, args...))
}

func (d *decoder) addNotSweepable(k sweptKey) {
	d.addSweptKeyError(k, "allowed: keys below "+strings.Join(sweepable, ", "),
		"%s must be equal in all trials of a sweep, because they are one job array", keyName(k.path))
}

// addUnknownSweptKey reports a key that the job file does not have.
func (d *decoder) addUnknownSweptKey(k sweptKey) {
	job := reflect.TypeFor[Job]()
	n := 0 // length of the path to the innermost table that exists
	for fieldAt(job, k.path[:n+1]) != nil {
		n++
	}
	outer, names := k.path[:n], sweepableTables
	if n > 0 {
		table := tableType(fieldAt(job, outer).typ)
		if table == nil {
			d.addSweptKeyError(k, "", "%s is not a table, so it has no key %q", keyName(outer), k.path[n])
			return
		}
		key := keyName(outer)
		overlaps := func(table string) bool { return isWithin(key, table) || isWithin(table, key) }
		if !slices.ContainsFunc(sweepable, overlaps) {
			d.addNotSweepable(k)
			return
		}
		names = tableOf(table).names
	}
	d.addUnknownKey(names, k.at[:len(k.at)-1], k.at, k.path[n])
	suggestion := &d.found[len(d.found)-1].Suggestion
	if allowed := &d.found[len(d.found)-1].Allowed; n == 0 && *suggestion == "" {
		*allowed = "write the whole key, such as setup.env.LR or train.optimizer.lr; " + *allowed
	}
	switch {
	case *suggestion == "":
	case slices.Contains(names, *suggestion):
		d.expected = append(d.expected, keyName(append(slices.Clip(outer), *suggestion)))
	default: // a key elsewhere in the job file
		if d.expected = append(d.expected, *suggestion); !slices.Contains(sweepableTables, strings.Split(*suggestion, ".")[0]) {
			*suggestion = ""
		}
	}
}

// checkSwept reports an error if a key does not accept v. With an index, v is an element of the
// key's list. Each value is checked once, because a random search may use a value in no trial,
// or in thousands.
func (d *decoder) checkSwept(k sweptKey, v any, index ...int) {
	at, path, name := d.lookup(k.name()), k.at, k.name()
	where := at.value
	for _, i := range index {
		name = keyName(elementOf(k.at, i))
		if i < len(at.elements) {
			where = at.elements[i]
		}
		if tableType(k.typ) != nil {
			path = elementOf(k.at, i)
		}
	}
	d.value(path, name, where, v, reflect.New(k.typ).Elem(), k.rules)
}

// hasNewErrors reports whether the decoder has found errors in a key. The parameter before is the
// number of errors that it had found before the key. If there are new errors, hasNewErrors marks the
// key as expected, so that trials do not report it as missing.
func (d *decoder) hasNewErrors(k sweptKey, before int) bool {
	if len(d.found) == before {
		return false
	}
	d.expected = append(d.expected, keyName(k.path))
	return true
}

// asVariable returns a value in the type of its key. Environment variables are text, so
// asVariable formats numbers for them.
func asVariable(key []string, v any) any {
	switch v.(type) {
	case int64, float64:
		if isEnvKey(keyName(key)) {
			return formatValue(v)
		}
	}
	return v
}

// decode accepts a table with the structure of the job file.
func (s *Values) decode(d *decoder, path []string, where span, v any) {
	for _, k := range d.sweptKeys(path, where, v) {
		before, v := len(d.found), asVariable(k.path, k.value)
		d.checkSwept(k, v)
		if !d.hasNewErrors(k, before) {
			*s = append(*s, value{k.path, k.name(), v})
		}
	}
}

// decode accepts a table with the structure of the job file, with lists or ranges as values.
func (a *Axes) decode(d *decoder, path []string, where span, v any) {
	for _, k := range d.sweptKeys(path, where, v) {
		before := len(d.found)
		axis := Axis{path: k.path, at: k.name()}
		list, isList := listOf(k.value)
		table, isTable := k.value.(map[string]any)
		at := d.lookup(k.name()).value
		switch {
		case isList && len(list) == 0:
			d.addValueError(k.at, k.name(), at, valueErrorf(axesForms, "has no values"))
		case isList:
			for i, v := range list {
				v = asVariable(k.path, v)
				d.checkSwept(k, v, i)
				axis.values = append(axis.values, v)
			}
		case isTable:
			axis.decodeRange(d, k, table)
		default:
			d.addValueError(k.at, k.name(), at, valueErrorf(axesForms, "must be a list of values, not %s", typeName(k.value)))
		}
		if !d.hasNewErrors(k, before) {
			*a = append(*a, axis)
		}
	}
}

const rangeForms = "allowed: { min = 1e-4, max = 0.1 }, and log = true for a log-uniform distribution"

// decodeRange decodes { min = 1e-4, max = 0.1, log = true }. No message contains the values,
// because they may belong to an environment variable.
func (a *Axis) decodeRange(d *decoder, k sweptKey, table map[string]any) {
	integers, before := 0, len(d.found)
	for _, name := range slices.Sorted(maps.Keys(table)) {
		at := append(slices.Clip(k.at), name)
		where := d.lookup(keyName(at)).value
		v := table[name]
		x, isNumber := v.(float64)
		if n, ok := v.(int64); ok {
			x, isNumber = float64(n), true
			integers++
		}
		b, isBool := v.(bool)
		switch {
		case name == "min" && isNumber:
			a.min = x
		case name == "max" && isNumber:
			a.max = x
		case name == "log" && isBool:
			a.log = b
		case name == "min", name == "max":
			d.addValueError(at, keyName(at), where, valueErrorf(rangeForms, "must be a number, not %s", typeName(v)))
		case name == "log":
			d.addValueError(at, keyName(at), where, valueErrorf(rangeForms, "must be true or false, not %s", typeName(v)))
		default:
			d.addUnknownKey([]string{"log", "max", "min"}, k.at, at, name)
		}
	}
	if len(d.found) > before {
		return
	}
	a.whole = integers == 2
	problem := ""
	switch {
	case table["min"] == nil || table["max"] == nil:
		problem = "needs both min and max"
	case !(a.min < a.max):
		problem = "min must be less than max"
	case a.max-a.min > 1e15:
		problem = "is too wide"
	case a.log && a.min <= 0:
		problem = "with log = true, min must be greater than 0"
	}
	if problem != "" {
		d.addValueError(k.at, k.name(), d.lookup(k.name()).value, valueErrorf(rangeForms, "%s", problem))
		return
	}
	d.checkLimit(a, k, a.min, a.max)
	if len(d.found) == before {
		d.checkLimit(a, k, a.max, a.min)
	}
}

// checkLimit reports a limit of a range that the key does not accept. Random values from a range
// of floats are between the limits, so the range of a learning rate may start at 0. checkLimit
// therefore also accepts a limit if the key accepts the adjacent float32 value inside the range.
// Keys reject values that float32 rounds to 0 or 1.
func (d *decoder) checkLimit(a *Axis, k sweptKey, limit, other float64) {
	if a.whole {
		d.checkSwept(k, asVariable(k.path, int64(limit)))
		return
	}
	before := len(d.found)
	d.checkSwept(k, asVariable(k.path, float64(math.Nextafter32(float32(limit), float32(other)))))
	if len(d.found) > before { // report the limit itself
		d.found = d.found[:before]
		d.checkSwept(k, asVariable(k.path, limit))
	}
}
