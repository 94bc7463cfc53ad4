package jobs

import (
	"reflect"
	"slices"
	"strings"
)

// sweepable are the tables that may differ between the trials of a sweep. The trials share all
// other tables, because they are one job array with one batch script.
var sweepable = []string{"train", "command", "checkpoint", "restart", "network", "setup.env"}

// ofAllocation are keys of these tables that affect the allocation.
var ofAllocation = []string{"restart.spare_nodes", "restart.min_nodes"}

// sweepableTables are the top-level tables that contain the sweepable tables.
var sweepableTables = []string{"checkpoint", "command", "network", "restart", "setup", "train"}

const axesForms = "for example: train.optimizer.lr = [0.1, 0.01]"

// A leaf is a key of the job file in a table of a sweep, with its value in the sweep.
type leaf struct {
	key   []string     // path in the job file
	at    []string     // path as written, where a quoted key "train.batch" equals train.batch
	kind  reflect.Type // type of the key's value
	value any
}

// name returns the key as written in the file.
func (x leaf) name() string { return keyName(x.at) }

// leaves returns the keys in a table of a sweep, in alphabetical order. It reports keys that
// the job file does not have and keys that cannot differ between trials.
func (d *decoder) leaves(path []string, where span, v any) []leaf {
	table, ok := v.(map[string]any)
	switch {
	case !ok:
		d.addValueError(path, keyName(path), where, valueErrorf(axesForms, "must be a table, not %s", typeName(v)))
		return nil
	case len(table) == 0:
		d.addValueError(path, keyName(path), where, valueErrorf(axesForms, "is empty"))
		return nil
	}
	all := d.walk(leaf{at: path, kind: reflect.TypeFor[Job]()}, table)
	given := map[string]leaf{}
	for _, x := range all {
		if earlier, twice := given[keyName(x.key)]; twice {
			d.addValueError(x.at, x.name(), d.lookup(x.name()).key, valueErrorf("", "is also given as %s", earlier.name()))
		}
		given[keyName(x.key)] = x
	}
	for _, x := range all {
		for n := 1; n < len(x.key); n++ {
			if outer, ok := given[keyName(x.key[:n])]; ok {
				d.addValueError(x.at, x.name(), d.lookup(x.name()).key, valueErrorf("", "is inside of %s, which is also given", outer.name()))
			}
		}
	}
	return all
}

// walk returns the leaves below a table. If in.kind is nil, the table cannot differ between
// trials, and walk does not check its keys.
func (d *decoder) walk(in leaf, table map[string]any) (all []leaf) {
	for _, name := range sortedKeys(table) {
		x, ok := d.step(in, name)
		if !ok {
			continue
		}
		x.value = table[name]
		inner, isTable := x.value.(map[string]any)
		if isTable && (x.kind != nil && tableType(x.kind) != nil || x.kind == nil && !isRange(inner)) {
			if len(inner) == 0 {
				d.addValueError(x.at, x.name(), span{}, valueErrorf(axesForms, "is empty"))
			}
			all = append(all, d.walk(x, inner)...)
			continue
		}
		key := keyName(x.key)
		if !slices.ContainsFunc(sweepable, func(table string) bool { return key != table && isWithin(key, table) }) || slices.Contains(ofAllocation, key) {
			d.addValueError(x.at, x.name(), d.lookup(x.name()).key, valueErrorf("allowed are keys below "+strings.Join(sweepable, ", "),
				"%s cannot differ between the elements of a sweep: they are one job array", key))
			continue
		}
		all = append(all, x)
	}
	return all
}

// step descends from a table to one of its keys, which may be a quoted key with dots.
func (d *decoder) step(in leaf, name string) (x leaf, ok bool) {
	x = leaf{key: slices.Clone(in.key), at: append(slices.Clip(in.at), name), kind: in.kind}
	where := d.lookup(x.name()).key
	for _, part := range strings.Split(name, ".") {
		if part == "" {
			d.addValueError(x.at, x.name(), where, valueErrorf(axesForms, "%q is not a key of a job file", name))
			return x, false
		}
		outer := x.key
		x.key = append(slices.Clip(outer), part)
		if x.kind == nil {
			continue
		}
		table := tableType(x.kind)
		switch {
		case table == nil:
			d.addValueError(x.at, x.name(), where, valueErrorf("", "%s is not a table, so it has no key %q", keyName(outer), part))
			return x, false
		case table.Kind() == reflect.Map:
			if err := reflect.New(table.Key()).Interface().(tomlValue).UnmarshalTOML(part); err != nil {
				d.addValueError(x.at, x.name(), where, err)
				return x, false
			}
			x.kind = table.Elem()
		default:
			kind, known := typeAt(table, []string{part})
			if !known {
				d.stranger(in.at, x.at, outer, part, table)
				return x, false
			}
			x.kind = kind
		}
		if key := keyName(x.key); !slices.ContainsFunc(sweepable, func(table string) bool { return isWithin(key, table) || isWithin(table, key) }) {
			x.kind = nil
		}
	}
	return x, true
}

// stranger reports an unknown part of a key in the job file's table outer.
func (d *decoder) stranger(table, at, outer []string, part string, kind reflect.Type) {
	names := sweepableTables
	if len(outer) > 0 {
		names = fieldNames(kind)
	}
	d.unknownAmong(names, table, at, part)
	meant := &d.found[len(d.found)-1].Suggestion
	switch {
	case *meant == "":
	case slices.Contains(names, *meant):
		d.unsure = append(d.unsure, keyName(append(slices.Clip(outer), *meant)))
	default: // a key elsewhere in the job file
		if d.unsure = append(d.unsure, *meant); !slices.Contains(sweepableTables, strings.Split(*meant, ".")[0]) {
			*meant = ""
		}
	}
}

// takes reports an error if the type of a leaf rejects v. With an index, v is an element of
// the leaf's list.
func (d *decoder) takes(x leaf, v any, index ...int) {
	at, path, name := d.lookup(x.name()), x.at, x.name()
	where := at.value
	for _, i := range index {
		name = keyName(elementOf(x.at, i))
		if i < len(at.elements) {
			where = at.elements[i]
		}
		if table := tableType(x.kind); table != nil {
			path = elementOf(x.at, i)
		}
	}
	d.value(path, name, where, v, reflect.New(x.kind).Elem())
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

// doubt reports whether the decoder found errors since it had found before errors. If so, it
// marks the leaf as given but invalid.
func (d *decoder) doubt(x leaf, before int) bool {
	if len(d.found) == before {
		return false
	}
	d.unsure = append(d.unsure, keyName(x.key))
	return true
}

// decode accepts a table with the structure of the job file.
func (s *Values) decode(d *decoder, path []string, where span, v any) {
	for _, x := range d.leaves(path, where, v) {
		before, v := len(d.found), asVariable(x.key, x.value)
		d.takes(x, v)
		if !d.doubt(x, before) {
			*s = append(*s, value{x.key, x.name(), v})
		}
	}
}

// decode accepts a table with the structure of the job file, with lists or ranges as values.
func (a *Axes) decode(d *decoder, path []string, where span, v any) {
	for _, x := range d.leaves(path, where, v) {
		before := len(d.found)
		axis := Axis{path: x.key, at: x.name()}
		list, isList := listOf(x.value)
		table, isTable := x.value.(map[string]any)
		at := d.lookup(x.name()).value
		switch {
		case isList && len(list) == 0:
			d.addValueError(x.at, x.name(), at, valueErrorf(axesForms, "has no values"))
		case isList:
			for i, v := range list {
				v = asVariable(x.key, v)
				d.takes(x, v, i)
				axis.values = append(axis.values, v)
			}
		case isTable:
			axis.decodeRange(d, x, table)
		default:
			d.addValueError(x.at, x.name(), at, valueErrorf(axesForms, "must be a list of values, not %s", typeName(x.value)))
		}
		if !d.doubt(x, before) {
			*a = append(*a, axis)
		}
	}
}
