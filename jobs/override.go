package jobs

import (
	"fmt"
	"maps"
	"reflect"
	"strings"
	"unicode/utf8"

	"github.com/BurntSushi/toml"
)

// An Override is a value that replaces a value of a job file.
type Override struct {
	path  []string
	value any
	text  string // value as given
	from  string // source of the value, for messages
}

// Key returns the dotted key.
func (o Override) Key() string { return keyName(o.path) }

// ParseOverride parses "key=value", such as "train.optimizer.lr=0.1", as given with --set. The
// value is TOML. Text that is not valid TOML (gpu, 02:00:00, 120s) becomes a string. For a key
// with string values, numbers, true, and false also become strings. The error has type
// [Diagnostics].
func ParseOverride(s string) (Override, error) {
	from := "--set " + s
	refused := func(format string, args ...any) (Override, error) {
		return Override{}, Diagnostics{{File: from, Message: fmt.Sprintf(format, args...), Allowed: "for example: --set train.batch=64"}}
	}
	if err := checkControl(s); err != nil || !utf8.ValidString(s) {
		// Do not print the text: it may contain a variable's secret value.
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
	// Omit the value: a variable's value may be secret.
	o.from = "--set " + o.Key()
	var value struct{ V any }
	if md, err := toml.Decode("V = "+text, &value); err == nil && len(md.Keys()) > 0 && !strings.ContainsAny(text, "\n\r") {
		switch value.V.(type) {
		case string, int64, float64, bool, []any, map[string]any:
			o.value = value.V // not dates and times: 02:00:00 is a duration in a job file
		}
	}
	return o, nil
}

// override stores the overrides in the document.
func override(l *layout, doc map[string]any, overrides []Override) error {
	for _, o := range overrides {
		if err := assign(doc, o.path, o.typedValue()); err != nil {
			return Diagnostics{{File: o.from, Key: o.Key(), Message: err.Error()}}
		}
		if l.over == nil {
			l.over = map[string]string{}
		}
		maps.DeleteFunc(l.over, func(key, _ string) bool { return isWithin(key, o.Key()) })
		l.over[o.Key()] = o.from
		l.edited = true
	}
	return nil
}

// typedValue returns the value in the type of its key. If the key needs a string, a number or
// boolean becomes a string, because a shell removes the quotes.
func (o Override) typedValue() any {
	switch o.value.(type) {
	case int64, float64, bool:
		if t, ok := typeAt(reflect.TypeFor[Job](), o.path); ok && isText(t) {
			return strings.TrimSpace(o.text)
		}
	}
	return o.value
}

// isText reports whether values of a type are written as strings.
func isText(t reflect.Type) bool {
	return t.Kind() == reflect.String || t == reflect.TypeFor[Duration]() || t == reflect.TypeFor[Interval]()
}

// assign sets a key of a document and creates the tables on its path.
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
