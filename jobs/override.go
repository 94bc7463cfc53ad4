package jobs

import (
	"fmt"
	"maps"
	"reflect"
	"strings"
	"unicode/utf8"

	"github.com/BurntSushi/toml"
)

// An Override is a value that replaces a value of a job file. It comes from the command line,
// or from [sweep] for one trial.
type Override struct {
	path      []string
	value     any
	from      string             // source of the value, for messages; empty for a value in the file
	positions map[string]*keyPos // positions of the key, and of the keys in it, in [sweep]; nil without position
}

// Key returns the dotted key.
func (o Override) Key() string { return keyName(o.path) }

// ParseOverride parses "key=value", such as "train.optimizer.lr=0.1", as given with --set. The
// value is TOML. Text that is not valid TOML (gpu, 02:00:00, 120s) becomes a string. For a key
// with string values, numbers, true, and false also become strings, because a shell removes the
// quotes. The error has type [Diagnostics].
func ParseOverride(s string) (Override, error) {
	from := "--set " + s
	invalid := func(format string, args ...any) (Override, error) {
		return Override{}, Diagnostics{{File: from, Message: fmt.Sprintf(format, args...), Allowed: "for example: --set train.batch=64"}}
	}
	if err := checkControl(s); err != nil || !utf8.ValidString(s) {
		// Do not print the text: it may contain a variable's secret value.
		from = "--set"
		return invalid("the value is not plain text: it contains a control character or is not UTF-8")
	}
	key, text, ok := strings.Cut(s, "=")
	if !ok {
		return invalid("%q has no %q", s, "=")
	}
	var doc map[string]any
	md, err := toml.Decode(strings.TrimSpace(key)+" = 0", &doc)
	if err != nil || len(md.Keys()) != 1 {
		return invalid("%q is not a key", strings.TrimSpace(key))
	}
	o := Override{path: md.Keys()[0], value: text}
	if len(o.path) > maxDepth {
		return invalid("nested more than %d levels deep", maxDepth)
	}
	// Omit the value: a variable's value may be secret.
	o.from = "--set " + o.Key()
	var value struct{ V any }
	if md, err := toml.Decode("V = "+text, &value); err == nil && len(md.Keys()) > 0 && !strings.ContainsAny(text, "\n\r") {
		switch value.V.(type) {
		case int64, float64, bool:
			if f := fieldAt(reflect.TypeFor[Job](), o.path); f != nil && isString(f.typ) {
				o.value = strings.TrimSpace(text)
			} else {
				o.value = value.V
			}
		case string, []any, map[string]any:
			o.value = value.V // not dates and times: 02:00:00 is a duration in a job file
		}
	}
	return o, nil
}

// override stores the overrides in the document, and their positions in the layout.
func (l *layout) override(doc map[string]any, overrides []Override) error {
	for _, o := range overrides {
		key := o.Key()
		if l.over == nil {
			l.over = map[string]origin{}
		}
		l.order++
		l.over[key] = origin{o.from, l.order}
		l.edited = true
		if _, ok := o.value.(map[string]any); ok && o.positions != nil { // use the keys of the new table only
			l.forgetPositions(key, valueAt(doc, o.path))
		}
		maps.Copy(l.positions, o.positions)
		if err := assign(doc, o.path, o.value); err != nil {
			d := l.at(key)
			d.Message = err.Error()
			return Diagnostics{d}
		}
	}
	return nil
}

// forgetPositions removes the position of a key, and those of the keys in its value.
func (l *layout) forgetPositions(key string, value any) {
	delete(l.positions, key)
	switch value := value.(type) {
	case map[string]any:
		for name, inner := range value {
			l.forgetPositions(key+"."+keyName([]string{name}), inner)
		}
	case []map[string]any:
		for i, inner := range value {
			l.forgetPositions(fmt.Sprintf("%s[%d]", key, i), inner)
		}
	}
}

// valueAt returns the value of a key of a document, or nil.
func valueAt(doc map[string]any, path []string) any {
	var value any = doc
	for _, name := range path {
		table, _ := value.(map[string]any)
		value = table[name]
	}
	return value
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
