package jobs

import (
	"encoding/json"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestKeysHaveHelp checks that each key has a description in full sentences, that a key has
// either a default, a description of it, or neither, and that required keys have an example.
func TestKeysHaveHelp(t *testing.T) {
	eachKey(reflect.TypeFor[Job](), nil, func(path []string, f *field) {
		name := keyName(path)
		if !strings.HasSuffix(f.help, ".") || strings.ToUpper(f.help[:1]) != f.help[:1] && !strings.HasPrefix(f.help, "ddpbatch") {
			t.Errorf("%s: the help %q is not a sentence", name, f.help)
		}
		if f.value.IsValid() && (f.auto != "" || f.required) || f.auto != "" && f.required {
			t.Errorf("%s has more than one of default, auto, and required", name)
		}
		if (f.required || len(f.requires) > 0) && f.example == "" && !f.isTable() {
			t.Errorf("%s is required and has no example", name)
		}
		for _, choice := range f.kinds {
			if kind := fieldAt(reflect.TypeFor[Job](), append(path[:len(path)-1:len(path)-1], "kind")); !slices.Contains(kind.rules.choices, choice) {
				t.Errorf("%s: no kind %q", name, choice)
			}
		}
	})
	if f := fieldAt(reflect.TypeFor[Job](), []string{"train", "model", "kernel"}); f.value.Int() != defaultKernel {
		t.Errorf("the default of train.model.kernel is %d, want %d", f.value.Int(), defaultKernel)
	}
}

// TestForms checks that every value that a type accepts matches its schema, and that the schema
// rejects all other values that it can express.
func TestForms(t *testing.T) {
	probes := []any{int64(0), int64(1), int64(-1), int64(7), int64(1 << 31), 0.0, 0.5, 0.75, 1.0, -0.5, 2.5, true, "", "0", "90", "all", "64G", "0G", "5g",
		"02:00:00", "90:30", "1-12", "1-12:00", "1-12:00:00", "2:3:4:5", "25 MiB", "25 MB", "1.5 MiB", "90s", "1h30m", "1.5h", "+3s", ".5s", "300ms", "2 h", "5us",
		"500 steps", "100-110", "1 epoch", "1 step", "3 epochs", "3", "eth0", "auto", "a/b", "a b", "-x", ".x", "x", "ib0.8000", "name_that_is_too_long",
		"afterok:prepare", "singleton", "singleton:x", "--tmp=10G", "--x", "--tmp 1", "after:1", "never:x", "afterok:", "OMP_NUM_THREADS", "1X", "ü", "tab\t", "line\n", "quote\"", "caf\u00e9 1", "\u202e", "a#b"}
	check := func(name string, typ reflect.Type, r rules) {
		form, accepted, rejected := formOf(typ, r), 0, 0
		for _, p := range probes {
			d := newDecoder(newLayout("", ""), &Job{})
			if v, ok := reflect.New(typ).Interface().(*EnvName); ok {
				if v.UnmarshalTOML(p) != nil {
					d.found = append(d.found, finding{})
				}
			} else {
				d.value([]string{"x"}, "x", span{}, p, reflect.New(typ).Elem(), r)
			}
			passes := passesForm(t, form.schema, p)
			if len(d.found) == 0 && !passes {
				t.Errorf("%s accepts %#v, but its schema does not: %v", name, p, form.schema)
			}
			if len(d.found) == 0 {
				accepted++
			} else if !passes {
				rejected++
			}
		}
		if accepted == 0 || rejected < len(probes)/5 {
			t.Errorf("%s accepts %d of %d probes, and the schema rejects %d", name, accepted, len(probes), rejected)
		}
	}
	for typ := range forms {
		if typ.Kind() != reflect.Slice { // the axes and values of a sweep are tables
			check(typ.String(), typ, rules{})
		}
	}
	eachKey(reflect.TypeFor[Job](), nil, func(path []string, f *field) {
		switch f.typ.Kind() {
		case reflect.Int, reflect.Uint64, reflect.Float64:
			check(keyName(path), f.typ, f.rules)
		}
	})
}

// passesForm validates a value with the subset of JSON schema that forms use.
func passesForm(t *testing.T, schema map[string]any, v any) bool {
	t.Helper()
	n, isNumber := 0.0, false
	switch x := v.(type) {
	case int64:
		n, isNumber = float64(x), true
	case float64:
		n, isNumber = x, true
	}
	s, isText := v.(string)
	number := func(limit any) float64 {
		f, err := strconv.ParseFloat(strings.TrimSpace(string(marshal(limit))), 64)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	for word, limit := range schema {
		ok := true
		switch word {
		case "anyOf":
			ok = slices.ContainsFunc(limit.([]any), func(one any) bool { return passesForm(t, one.(map[string]any), v) })
		case "enum":
			ok = isText && slices.Contains(limit.([]string), s)
		case "type":
			_, isBool := v.(bool)
			ok = map[string]bool{"string": isText, "number": isNumber, "integer": isNumber && n == float64(int64(n)), "boolean": isBool}[limit.(string)]
		case "pattern":
			ok = isText && regexp.MustCompile(limit.(string)).MatchString(s)
		case "minimum":
			ok = n >= number(limit)
		case "maximum":
			ok = n <= number(limit)
		case "exclusiveMinimum":
			ok = n > number(limit)
		case "exclusiveMaximum":
			ok = n < number(limit)
		default:
			t.Fatalf("the test does not know %q", word)
		}
		if !ok {
			return false
		}
	}
	return true
}

// TestSchemaHasEveryKey checks that the JSON schema describes every key with its help text.
func TestSchemaHasEveryKey(t *testing.T) {
	var root map[string]any
	if err := json.Unmarshal(Schema(), &root); err != nil {
		t.Fatal(err)
	}
	for _, k := range Keys() {
		at := root
		for part := range strings.SplitSeq(k.Name, ".") {
			next, ok := at["properties"].(map[string]any)[part].(map[string]any)
			if !ok {
				t.Fatalf("no %s in the schema", k.Name)
			}
			at = next
		}
		if at["description"] != k.Help {
			t.Errorf("%s is described as %q", k.Name, at["description"])
		}
	}
}
