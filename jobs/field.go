package jobs

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// A field is the declaration of a key: a field of a struct with its tags. See [Job] for the
// tags.
type field struct {
	key      string
	index    int // in the struct
	typ      reflect.Type
	help     string
	auto     string // description of a default that depends on other keys
	example  string // example, as TOML
	required bool   // whether the key must be set if its table is set
	kinds    []string
	requires []string // kinds that require the key
	rules    rules
	typed    int           // index of the field that takes the prefix of a number; -1 without one
	mapKey   reflect.Type  // type of key if the table is a map; nil for a struct
	value    reflect.Value // default; the zero Value without default
	text     string        // default, as TOML
}

// rules are the limits of a value in addition to the rules of its type.
type rules struct {
	limits  limits
	choices []string          // valid strings with aliases; nil for all
	aliases map[string]string // values of aliases
}

// appliesTo reports whether a table of the given kind has the key.
func (f *field) appliesTo(kind string) bool {
	return f.kinds == nil || slices.Contains(f.kinds, kind)
}

// checkKey returns an error if the key is not a valid key of its map.
func (f *field) checkKey() error {
	if f.mapKey == nil {
		return nil
	}
	return reflect.New(f.mapKey).Interface().(tomlValue).UnmarshalTOML(f.key)
}

// isTable reports whether the key is a table with fixed keys.
func (f *field) isTable() bool {
	t := tableType(f.typ)
	return t != nil && t.Kind() == reflect.Struct
}

// A table is the declaration of a TOML table: a struct.
type table struct {
	fields []field
	names  []string // keys in alphabetical order
	byKey  map[string]int
}

// field returns the declaration of a key, or nil.
func (t *table) field(key string) *field {
	if i, ok := t.byKey[key]; ok {
		return &t.fields[i]
	}
	return nil
}

var tables sync.Map // reflect.Type to *table

// tableOf returns the declarations of the keys in a struct. It panics on an invalid tag, which
// is a bug.
func tableOf(t reflect.Type) *table {
	if known, ok := tables.Load(t); ok {
		return known.(*table)
	}
	all := &table{byKey: map[string]int{}}
	for i := range t.NumField() {
		if f, ok := newField(t, i); ok {
			all.byKey[f.key] = len(all.fields)
			all.fields = append(all.fields, f)
			all.names = append(all.names, f.key)
		}
	}
	slices.Sort(all.names)
	tables.Store(t, all)
	return all
}

// newField reads the tags of a struct field. ok is false if the field is not a key.
func newField(t reflect.Type, index int) (f field, ok bool) {
	s := t.Field(index)
	f = field{key: s.Tag.Get("toml"), index: index, typed: -1, typ: s.Type, help: s.Tag.Get("help"), auto: s.Tag.Get("auto")}
	if f.key == "" {
		return f, false
	}
	f.example, f.required = s.Tag.Lookup("required")
	if !f.required {
		f.example = s.Tag.Get("example")
	}
	f.example = f.quoted(f.example)
	if kinds, ok := s.Tag.Lookup("kinds"); ok {
		for kind := range strings.SplitSeq(kinds, ",") {
			name, requires := strings.CutSuffix(kind, "!")
			f.kinds = append(f.kinds, name)
			if requires {
				f.requires = append(f.requires, name)
			}
		}
	}
	f.rules = newRules(s.Tag, elementType(s.Type))
	if name, ok := s.Tag.Lookup("typed"); ok {
		prefix, _ := t.FieldByName(name)
		f.typed = prefix.Index[0]
	}
	if text, ok := s.Tag.Lookup("default"); ok {
		f.text = f.quoted(text)
		f.value = f.parse(text)
	}
	return f, true
}

// newRules reads the tags with rules for the values of a type. It panics if a number has no range
// tag, or if a string type has neither an enum tag nor its own decoder.
func newRules(tag reflect.StructTag, t reflect.Type) (r rules) {
	if enum, ok := tag.Lookup("enum"); ok {
		r.aliases = map[string]string{}
		for choice := range strings.SplitSeq(enum, ",") {
			name, value, alias := strings.Cut(choice, "=")
			r.choices = append(r.choices, name)
			if alias {
				r.aliases[name] = value
			}
		}
	}
	text, hasRange := tag.Lookup("range")
	if hasRange {
		r.limits = parseLimits(text, t.Kind(), tag.Get("bits") == "64")
	}
	if reflect.PointerTo(t).Implements(reflect.TypeFor[tomlValue]()) {
		return r
	}
	switch t.Kind() {
	case reflect.Int, reflect.Uint64, reflect.Float64:
		if !hasRange {
			panic("jobs: no range tag for a number: " + string(tag))
		}
	case reflect.String:
		if t != reflect.TypeFor[string]() && r.choices == nil {
			panic("jobs: no enum tag for the type " + t.String() + ": " + string(tag))
		}
	}
	return r
}

// quoted returns a value in a tag as TOML.
func (f *field) quoted(text string) string {
	if text != "" && isString(f.typ) {
		return strconv.Quote(text)
	}
	return text
}

// parse returns the value of a default tag in the type of the field.
func (f *field) parse(text string) reflect.Value {
	var v any = text
	if !isString(f.typ) {
		if n, err := strconv.ParseInt(text, 10, 64); err == nil {
			v = n
		} else if x, err := strconv.ParseFloat(text, 64); err == nil {
			v = x
		} else if b, err := strconv.ParseBool(text); err == nil {
			v = b
		}
	}
	d := &decoder{layout: &layout{}, given: map[string]bool{}, invalid: map[string]bool{}}
	into := reflect.New(f.typ).Elem()
	d.value([]string{f.key}, f.key, span{}, v, into, f.rules)
	if len(d.found) > 0 {
		panic(fmt.Sprintf("jobs: invalid default of %s: %s", f.key, d.found[0].Message))
	}
	return into
}

// isString reports whether a type is written as a string in TOML.
func isString(t reflect.Type) bool {
	switch t {
	case reflect.TypeFor[Duration](), reflect.TypeFor[Interval](), reflect.TypeFor[StepRange](), reflect.TypeFor[Size]():
		return true
	}
	return t.Kind() == reflect.String
}

// elementType returns the type of the innermost elements of a pointer, a list, or a map.
func elementType(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Map {
		t = t.Elem()
	}
	return t
}

// fieldAt returns the declaration of the key at path in a struct, or nil. An element of a map,
// such as setup.env.NAME, has a declaration without help.
func fieldAt(t reflect.Type, path []string) *field {
	var f *field
	for _, key := range path {
		if t = tableType(t); t == nil {
			return nil
		}
		if t.Kind() == reflect.Map {
			f = &field{key: key, typ: t.Elem(), mapKey: t.Key()}
		} else if f = tableOf(t).field(key); f == nil {
			return nil
		}
		t = f.typ
	}
	return f
}

// tableType returns the struct or map type of a TOML table, or nil if t is not a table.
func tableType(t reflect.Type) reflect.Type {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct && t.Kind() != reflect.Map || reflect.PointerTo(t).Implements(reflect.TypeFor[tomlValue]()) {
		return nil
	}
	return t
}

// eachKey calls f for each key of a struct, including tables, in the order of declaration.
func eachKey(t reflect.Type, path []string, f func(path []string, declared *field)) {
	all := tableOf(t).fields
	for i := range all {
		at := append(slices.Clip(path), all[i].key)
		f(at, &all[i])
		if all[i].isTable() {
			eachKey(tableType(all[i].typ), at, f)
		}
	}
}
