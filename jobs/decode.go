package jobs

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// A decoder fills a Job from a decoded document and collects all errors. It continues after an
// error.
type decoder struct {
	*layout
	given    map[string]bool // keys that are in the document
	invalid  map[string]bool // keys with invalid values
	guessed  map[string]bool // keys that unknown keys were probably meant to be
	expected []string        // keys of the job file with errors in [sweep]
	root     reflect.Type    // struct of the whole file
	found    []finding

	named map[string][]string // keys of the file by last part; a cache for keysEndingIn
}

func newDecoder(l *layout, root any) *decoder {
	return &decoder{
		layout: l, root: reflect.TypeOf(root).Elem(),
		given: map[string]bool{}, invalid: map[string]bool{}, guessed: map[string]bool{},
	}
}

// A finding is a diagnostic whose line and column are not set yet.
type finding struct {
	Diagnostic
	where span
}

func (d *decoder) add(key string, where span, message, allowed, suggestion string) {
	d.found = append(d.found, finding{
		Diagnostic{Key: key, Message: message, Allowed: allowed, Suggestion: suggestion}, where,
	})
}

// MaxDiagnostics is the maximum number of diagnostics for one file.
const MaxDiagnostics = 100

// diagnostics returns the findings in file order. Findings without a position come first.
func (d *decoder) diagnostics() Diagnostics {
	slices.SortFunc(d.found, func(a, b finding) int {
		return cmp.Or(a.where.start-b.where.start, a.where.end-b.where.end, strings.Compare(a.Message, b.Message))
	})
	var all Diagnostics
	for i, f := range d.found {
		if i == MaxDiagnostics {
			return append(all, Diagnostic{File: d.file, Message: fmt.Sprintf("and %d more errors", len(d.found)-i)})
		}
		at := d.diagnosticFor(f.Key, f.where)
		at.Message, at.Allowed, at.Suggestion = f.Message, f.Allowed, f.Suggestion
		all = append(all, at)
	}
	return all
}

// A tomlValue is a type that decodes and checks a TOML value.
type tomlValue interface{ UnmarshalTOML(any) error }

// A tomlTree is a type that decodes a table with arbitrary keys. It reports each error at its
// position.
type tomlTree interface {
	decode(d *decoder, path []string, where span, v any)
}

// table decodes a TOML table into a struct.
func (d *decoder) table(path []string, doc map[string]any, into reflect.Value) {
	known := tableOf(into.Type())
	for key, v := range doc {
		at := append(slices.Clip(path), key)
		f := known.field(key)
		if f == nil {
			d.addUnknownKey(known.names, path, at, key)
			continue
		}
		name := keyName(at)
		d.given[name] = true
		if text, ok := v.(string); ok && f.typed >= 0 {
			prefix, n, err := splitTyped(text)
			if err != nil {
				d.addValueError(at, name, d.lookup(name).value, err)
				continue
			}
			into.Field(f.typed).SetString(prefix)
			v = n
		}
		d.value(at, name, d.lookup(name).value, v, into.Field(f.index), f.rules)
	}
}

// value decodes one value. Messages use name, which has an index if the value is an array
// element, unlike path. where is the position of the value.
func (d *decoder) value(path []string, name string, where span, v any, into reflect.Value, r rules) {
	if t, ok := into.Addr().Interface().(tomlValue); ok {
		if err := t.UnmarshalTOML(v); err != nil {
			d.addValueError(path, name, where, err)
		}
		return
	}
	if t, ok := into.Addr().Interface().(tomlTree); ok {
		t.decode(d, path, where, v)
		return
	}
	mismatch := func(want string) {
		d.addValueError(path, name, where, valueErrorf("", "must be %s, not %s", want, typeName(v)))
	}
	switch into.Kind() {
	case reflect.Pointer:
		into.Set(reflect.New(into.Type().Elem()))
		d.value(path, name, where, v, into.Elem(), r)
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
		list, ok := listOf(v)
		if !ok {
			d.addValueError(path, name, where, valueErrorf(suggestList(path[len(path)-1], v), "must be a list, not %s", typeName(v)))
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
			if _, tree := into.Index(i).Addr().Interface().(tomlTree); tree || into.Type().Elem().Kind() == reflect.Struct {
				inside = elementOf(path, i)
			}
			d.value(inside, fmt.Sprintf("%s[%d]", name, i), at, e, into.Index(i), r)
		}
	case reflect.Bool:
		b, ok := v.(bool)
		if !ok {
			mismatch("true or false")
			return
		}
		into.SetBool(b)
	case reflect.Int, reflect.Uint64, reflect.Float64:
		if err := r.limits.setNumber(v, into); err != nil {
			d.addValueError(path, name, where, err)
		}
	case reflect.String:
		text, err := r.text(v)
		if err != nil {
			d.addValueError(path, name, where, err)
			return
		}
		into.SetString(text)
	default:
		panic("jobs: cannot decode the type " + into.Type().String())
	}
}

// suggestList returns the key with a single value written as a list. It splits a command line
// into words. It returns an empty string if the value is not a string or a number.
func suggestList(key string, v any) string {
	var text string
	switch v := v.(type) {
	case string:
		words := []string{v}
		if key == "argv" && !strings.ContainsAny(v, "'\"\\|<>&;$`") {
			words = strings.Fields(v)
		}
		for i, w := range words {
			words[i] = strconv.Quote(w)
		}
		text = strings.Join(words, ", ")
	case int64, float64:
		text = fmt.Sprint(v)
	default:
		return ""
	}
	return fmt.Sprintf("write %s = [%s]", key, text)
}

// listOf returns the elements of an array or of an array of tables ([[name]]).
func listOf(v any) (list []any, ok bool) {
	if tables, ok := v.([]map[string]any); ok {
		for _, t := range tables {
			list = append(list, t)
		}
		return list, true
	}
	list, ok = v.([]any)
	return list, ok
}

// variables decodes a table with arbitrary keys into a map.
func (d *decoder) variables(path []string, doc map[string]any, into reflect.Value) {
	into.Set(reflect.MakeMap(into.Type()))
	for key, v := range doc {
		at := append(slices.Clip(path), key)
		name := keyName(at)
		k, e := reflect.New(into.Type().Key()), reflect.New(into.Type().Elem())
		if err := k.Interface().(tomlValue).UnmarshalTOML(key); err != nil {
			d.addValueError(at, name, d.lookup(name).key, err)
			continue
		}
		if err := e.Interface().(tomlValue).UnmarshalTOML(v); err != nil {
			d.addValueError(at, name, d.lookup(name).key, err)
			continue
		}
		into.SetMapIndex(k.Elem(), e.Elem())
	}
}

// addValueError reports a value that its type rejects.
func (d *decoder) addValueError(path []string, name string, where span, err error) {
	at := d.lookup(keyName(path))
	if !where.known() {
		where = at.key
	}
	d.invalid[keyName(path)] = true
	r := &valueError{message: err.Error()}
	errors.As(err, &r)
	d.add(name, where, fmt.Sprintf("%s: %s", name, r.message), r.allowed, r.suggestion)
}

// addUnknownKey reports an unknown key. The slice at is its path, and key is the last part of that
// path. The slice table is the path of the table around it, and names are the keys that this table has.
func (d *decoder) addUnknownKey(names, table, at []string, key string) {
	where := "at the top level"
	if len(table) > 0 {
		where = "in [" + keyName(table) + "]"
	}
	allowed := fmt.Sprintf("allowed %s: %s", where, strings.Join(names, ", "))
	suggestion := Nearest(key, names)
	if suggestion != "" {
		d.guessed[keyName(append(slices.Clip(table), suggestion))] = true
	} else if option, ok := sbatchOption(table, key); ok {
		allowed = fmt.Sprintf("the job file has no key for sbatch --%s: add it to slurm.options; %s", option, allowed)
	} else if elsewhere := d.keysEndingIn(key); len(elsewhere) == 1 {
		suggestion = elsewhere[0]
		d.guessed[suggestion] = true
	}
	d.add(keyName(at), d.lookup(keyName(at)).key, fmt.Sprintf("unknown key %q", keyName(at)), allowed, suggestion)
}

// keysEndingIn returns all keys of the file whose last part is name.
func (d *decoder) keysEndingIn(name string) []string {
	if d.named == nil {
		d.named = map[string][]string{}
		eachKey(d.root, nil, func(path []string, _ *field) {
			last := path[len(path)-1]
			d.named[last] = append(d.named[last], keyName(path))
		})
	}
	return d.named[name]
}
