package jobs

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// A decoder fills a Job from a decoded document and collects what is wrong with
// it. It does not stop at the first mistake.
type decoder struct {
	*layout
	given   map[string]bool // keys of the spec that the document has
	refused map[string]bool // those whose value is no good
	meant   map[string]bool // keys that an unknown key was probably meant to be
	root    reflect.Type    // the struct of the whole file
	found   []finding
}

func newDecoder(l *layout, root any) *decoder {
	return &decoder{layout: l, given: map[string]bool{}, refused: map[string]bool{}, meant: map[string]bool{}, root: reflect.TypeOf(root).Elem()}
}

// A finding is a diagnostic without its place in lines and columns yet.
type finding struct {
	Diagnostic
	where span
}

func (d *decoder) add(key string, where span, message, allowed, suggestion string) {
	d.found = append(d.found, finding{
		Diagnostic{Key: key, Message: message, Allowed: allowed, Suggestion: suggestion}, where,
	})
}

// maxDiagnostics bounds the report on one file.
const maxDiagnostics = 100

// diagnostics returns what was found in file order, what has no place first.
func (d *decoder) diagnostics() Diagnostics {
	slices.SortFunc(d.found, func(a, b finding) int {
		return cmp.Or(a.where.start-b.where.start, a.where.end-b.where.end, strings.Compare(a.Message, b.Message))
	})
	var all Diagnostics
	for i, f := range d.found {
		if i == maxDiagnostics {
			return append(all, Diagnostic{File: d.file, Message: fmt.Sprintf("and %d more mistakes", len(d.found)-i)})
		}
		at := d.point(f.Key, f.where)
		at.Message, at.Allowed, at.Suggestion = f.Message, f.Allowed, f.Suggestion
		all = append(all, at)
	}
	return all
}

// A tomlValue is a type that takes a decoded TOML value and checks it.
type tomlValue interface{ UnmarshalTOML(any) error }

// table decodes a TOML table into a struct.
func (d *decoder) table(path []string, doc map[string]any, into reflect.Value) {
	for key, v := range doc {
		at := append(slices.Clip(path), key)
		field, ok := fieldOf(into, key)
		if !ok {
			d.unknown(path, key, into.Type())
			continue
		}
		name := keyName(at)
		d.given[name] = true
		d.value(at, name, d.lookup(name).value, v, field)
	}
}

// value decodes one value. The key in messages is name, which has an index
// where path has not; where is the place of the value.
func (d *decoder) value(path []string, name string, where span, v any, into reflect.Value) {
	if t, ok := into.Addr().Interface().(tomlValue); ok {
		if err := t.UnmarshalTOML(v); err != nil {
			d.bad(path, name, where, err)
		}
		return
	}
	mismatch := func(want string) {
		d.bad(path, name, where, refuse("", "must be %s, not %s", want, describe(v)))
	}
	switch into.Kind() {
	case reflect.Pointer:
		into.Set(reflect.New(into.Type().Elem()))
		d.value(path, name, where, v, into.Elem())
	case reflect.Struct:
		doc, ok := v.(map[string]any)
		if !ok {
			mismatch("a table")
			return
		}
		d.table(path, doc, into)
	case reflect.Map:
		doc, ok := v.(map[string]any)
		if !ok {
			mismatch("a table")
			return
		}
		d.variables(path, doc, into)
	case reflect.Slice:
		list, ok := v.([]any)
		if tables, also := v.([]map[string]any); also { // [[name]] instead of name = [{...}]
			for _, t := range tables {
				list = append(list, t)
			}
			ok = true
		}
		if !ok {
			mismatch("an array")
			return
		}
		into.Set(reflect.MakeSlice(into.Type(), len(list), len(list)))
		elements := d.lookup(name).elements
		for i, e := range list {
			at := where
			if i < len(elements) {
				at = elements[i]
			}
			inside := path
			if into.Type().Elem().Kind() == reflect.Struct {
				inside = elementOf(path, i)
			}
			d.value(inside, fmt.Sprintf("%s[%d]", name, i), at, e, into.Index(i))
		}
	case reflect.Bool:
		b, ok := v.(bool)
		if !ok {
			mismatch("true or false")
			return
		}
		into.SetBool(b)
	case reflect.String:
		var t Text
		if err := t.UnmarshalTOML(v); err != nil {
			d.bad(path, name, where, err)
			return
		}
		into.SetString(string(t))
	default:
		panic("jobs: the spec holds a type that cannot be decoded: " + into.Type().String())
	}
}

// variables decodes a table with free keys.
func (d *decoder) variables(path []string, doc map[string]any, into reflect.Value) {
	into.Set(reflect.MakeMap(into.Type()))
	for key, v := range doc {
		at := append(slices.Clip(path), key)
		name := keyName(at)
		k, e := reflect.New(into.Type().Key()), reflect.New(into.Type().Elem())
		if err := k.Interface().(tomlValue).UnmarshalTOML(key); err != nil {
			d.bad(at, name, d.lookup(name).key, err)
			continue
		}
		if err := e.Interface().(tomlValue).UnmarshalTOML(v); err != nil {
			d.bad(at, name, d.lookup(name).key, err)
			continue
		}
		into.SetMapIndex(k.Elem(), e.Elem())
	}
}

// bad reports a value that its type refuses.
func (d *decoder) bad(path []string, name string, where span, err error) {
	at := d.lookup(keyName(path))
	if !where.known() {
		where = at.key
	}
	d.refused[keyName(path)] = true
	r := &refusal{message: err.Error()}
	errors.As(err, &r)
	d.add(name, where, fmt.Sprintf("%s: %s", name, r.message), r.allowed, r.suggestion)
}

// unknown reports a key that the spec does not have.
func (d *decoder) unknown(path []string, key string, table reflect.Type) {
	names := fieldNames(table)
	name := keyName(append(slices.Clip(path), key))
	where := "at the top level"
	if len(path) > 0 {
		where = "in [" + keyName(path) + "]"
	}
	allowed := fmt.Sprintf("allowed %s: %s", where, strings.Join(names, ", "))
	suggestion := nearest(key, names)
	if suggestion != "" {
		d.meant[keyName(append(slices.Clip(path), suggestion))] = true
	} else if elsewhere := keysNamed(d.root, key); len(elsewhere) == 1 {
		suggestion = elsewhere[0]
		d.meant[suggestion] = true
	}
	d.add(name, d.lookup(name).key, fmt.Sprintf("unknown key %q", name), allowed, suggestion)
}

// fieldOf returns the field of a struct that has the given TOML key.
func fieldOf(v reflect.Value, key string) (reflect.Value, bool) {
	for i := range v.NumField() {
		if v.Type().Field(i).Tag.Get("toml") == key && key != "" {
			return v.Field(i), true
		}
	}
	return reflect.Value{}, false
}

// fieldNames returns the TOML keys of a struct in alphabetical order.
func fieldNames(t reflect.Type) []string {
	var names []string
	for f := range t.Fields() {
		if key := f.Tag.Get("toml"); key != "" {
			names = append(names, key)
		}
	}
	slices.Sort(names)
	return names
}

// keysNamed returns the keys anywhere in a file's struct whose last part is name.
func keysNamed(root reflect.Type, name string) []string {
	var keys []string
	eachKey(root, nil, func(path []string, _ reflect.Type) {
		if path[len(path)-1] == name {
			keys = append(keys, keyName(path))
		}
	})
	return keys
}

// eachKey calls f for every key of a spec's struct, tables included, in the
// order of the fields.
func eachKey(t reflect.Type, path []string, f func(path []string, t reflect.Type)) {
	for field := range t.Fields() {
		key := field.Tag.Get("toml")
		if key == "" {
			continue
		}
		at := append(slices.Clip(path), key)
		f(at, field.Type)
		inner := field.Type
		if inner.Kind() == reflect.Pointer {
			inner = inner.Elem()
		}
		if _, leaf := reflect.New(inner).Interface().(tomlValue); !leaf && inner.Kind() == reflect.Struct {
			eachKey(inner, at, f)
		}
	}
}
