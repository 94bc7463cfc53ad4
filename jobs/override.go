package jobs

import (
	"fmt"
	"maps"
	"reflect"
	"strings"
	"unicode/utf8"

	"github.com/BurntSushi/toml"
)

// An Override is a value that stands over what a job file says.
type Override struct {
	path  []string
	value any
	text  string // the value as given
	from  string // where it came from, for messages
}

// Key is the key as one would write it in a dotted key.
func (o Override) Key() string { return keyName(o.path) }

// ParseOverride reads "key=value", such as "train.optimizer.lr=0.1", as given
// with --set. The value is TOML; what is not (gpu, 02:00:00, 120s) is taken as a
// string, and so is a number, true or false for a key whose values are strings. The error is of type [Diagnostics].
func ParseOverride(s string) (Override, error) {
	from := "--set " + s
	refused := func(format string, args ...any) (Override, error) {
		return Override{}, Diagnostics{{File: from, Message: fmt.Sprintf(format, args...), Allowed: "for example: --set train.batch=64"}}
	}
	if err := noControl(s); err != nil || !utf8.ValidString(s) {
		// Not what it is: it may be a variable's value, and secret.
		from = "--set"
		return refused("the value is not plain text: it holds a control character or is not UTF-8")
	}
	key, text, ok := strings.Cut(s, "=")
	if !ok {
		return refused("%q has no %q", s, "=")
	}
	var doc map[string]any
	md, err := toml.Decode(strings.TrimSpace(key)+" = 0", &doc)
	if err != nil || len(md.Keys()) != 1 {
		return refused("%q is not a key", strings.TrimSpace(key))
	}
	o := Override{path: md.Keys()[0], value: text, text: text}
	if len(o.path) > maxDepth {
		return refused("nested more than %d levels deep", maxDepth)
	}
	// A variable's value may be secret.
	o.from = "--set " + o.Key()
	var value struct{ V any }
	if md, err := toml.Decode("V = "+text, &value); err == nil && len(md.Keys()) > 0 && !strings.ContainsAny(text, "\n\r") {
		switch value.V.(type) {
		case string, int64, float64, bool, []any, map[string]any:
			o.value = value.V // and not a date or a time: 02:00:00 is a span here
		}
	}
	return o, nil
}

// override puts the values into the document.
func override(l *layout, doc map[string]any, overrides []Override) error {
	for _, o := range overrides {
		if err := assign(doc, o.path, o.meant()); err != nil {
			return Diagnostics{{File: o.from, Key: o.Key(), Message: err.Error()}}
		}
		if l.over == nil {
			l.over = map[string]string{}
		}
		maps.DeleteFunc(l.over, func(key, _ string) bool { return within(key, o.Key()) })
		l.over[o.Key()] = o.from
		l.edited = true
	}
	return nil
}

// meant is the value as the key's type has it. Where that is a string, quotes are
// for the file: a shell takes them away.
func (o Override) meant() any {
	switch o.value.(type) {
	case int64, float64, bool:
		if t, ok := typeAt(reflect.TypeFor[Job](), o.path); ok && takesText(t) {
			return strings.TrimSpace(o.text)
		}
	}
	return o.value
}

// takesText reports whether a type of the spec is written as a string.
func takesText(t reflect.Type) bool {
	return t.Kind() == reflect.String || t == reflect.TypeFor[Duration]() || t == reflect.TypeFor[Interval]()
}

// assign sets a key of a document, making the tables on the way.
func assign(doc map[string]any, path []string, value any) error {
	for i, name := range path[:len(path)-1] {
		inner, ok := doc[name]
		if !ok {
			inner = map[string]any{}
			doc[name] = inner
		}
		table, ok := inner.(map[string]any)
		if !ok {
			return fmt.Errorf("%q is not a table, so it has no key %q", keyName(path[:i+1]), path[i+1])
		}
		doc = table
	}
	doc[path[len(path)-1]] = value
	return nil
}
