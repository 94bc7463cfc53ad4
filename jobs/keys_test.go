package jobs

import (
	"encoding/json"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// Every key has a description. Documented default values must equal the defaults that a job
// gets.
func TestKeysSayTheirDefaults(t *testing.T) {
	const head = "name = \"a\"\n"
	const trained = head + "[train]\nepochs = 1\nbatch = 1\n[train.optimizer]\nkind = \"adamw\"\nlr = 0.1\n"
	loaded := []*Job{
		parse(t, trained+"[train.model]\nkind = \"cnn\"\nchannels = [8]\nhidden = [8]\n[train.data]\nkind = \"safetensors\"\npath = \"x\"\ntask = \"classification\"\n"),
		parse(t, trained+"[train.model]\nkind = \"gpt\"\nsize = \"gpt2\"\n[train.data]\nkind = \"text\"\npath = \"x\"\n"),
		parse(t, trained+"[train.model]\nkind = \"gpt\"\nsize = \"gpt2\"\n[train.data]\nkind = \"tokens\"\npath = \"x\"\n"),
		parse(t, head+"[command]\nargv = [\"true\"]\n"),
	}
	// These defaults are described in words, because they depend on other keys.
	inWords := map[string]bool{"slurm.signal_before_end": true, "slurm.tasks_per_node": true, "train.bucket": true, "train.first_bucket": true,
		"train.data.target": true, "train.optimizer.weight_decay": true, "train.optimizer.decay": true, "restart.max_without_progress": true, "restart.min_nodes": true, "command.workdir": true,
		"train.data.vocabulary_size": true}
	compared := 0
	for _, k := range Keys() {
		if k.Help == "" || k.Type == "" {
			t.Errorf("%s has no comment in its struct", k.Name)
		}
		if k.Table || k.Default == "needed" {
			continue
		}
		for _, job := range loaded {
			got, ok := valueAt(job, k.Name)
			if !ok || got.IsZero() || job.IsSet(k.Name) || inWords[k.Name] {
				continue
			}
			want := reflect.New(got.Type())
			if got.Kind() == reflect.String && got.Type() == reflect.TypeFor[string]() {
				want.Elem().SetString(strings.Trim(k.Default, `"`))
			} else if err := decodeDefault(want, k.Default); err != nil {
				t.Errorf("%s: default %q: %v", k.Name, k.Default, err)
			}
			if !reflect.DeepEqual(want.Elem().Interface(), got.Interface()) {
				t.Errorf("%s is said to be %s by default, and is %v", k.Name, k.Default, got)
			}
			compared++
		}
	}
	if compared < 40 {
		t.Errorf("only %d defaults were compared", compared)
	}
}

// decodeDefault decodes a default value as if it were in the job file.
func decodeDefault(into reflect.Value, text string) error {
	var v any = strings.Trim(text, `"`)
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		v = n
	} else if f, err := strconv.ParseFloat(text, 64); err == nil {
		v = f
	} else if b, err := strconv.ParseBool(text); err == nil {
		if into.Elem().Kind() == reflect.Pointer {
			into.Elem().Set(reflect.ValueOf(&b))
			return nil
		}
		v = b
	}
	return into.Interface().(tomlValue).UnmarshalTOML(v)
}

// valueAt returns the value of a key in a job. It returns false if a table around the key is
// not set.
func valueAt(job *Job, key string) (reflect.Value, bool) {
	v := reflect.ValueOf(job).Elem()
	for part := range strings.SplitSeq(key, ".") {
		if v.Kind() == reflect.Pointer {
			if v.IsNil() {
				return v, false
			}
			v = v.Elem()
		}
		field, ok := fieldOf(v, part)
		if !ok {
			return v, false
		}
		v = field
	}
	return v, true
}

// Every value that a type accepts must match its schema. The schema must reject all other
// values that it can express.
func TestForms(t *testing.T) {
	probes := []any{int64(0), int64(1), int64(-1), int64(7), int64(1 << 31), 0.0, 0.5, 0.75, 1.0, -0.5, 2.5, true, "", "0", "90", "64G", "0G", "5g",
		"02:00:00", "90:30", "1-12", "1-12:00", "1-12:00:00", "2:3:4:5", "25 MiB", "25 MB", "1.5 MiB", "90s", "1h30m", "1.5h", "+3s", ".5s", "300ms", "2 h", "5us",
		"500 steps", "100-110", "1 epoch", "1 step", "3 epochs", "3", "eth0", "auto", "a/b", "a b", "-x", ".x", "x", "ib0.8000", "name_that_is_too_long",
		"afterok:prepare", "after:1", "never:x", "afterok:", "OMP_NUM_THREADS", "1X", "ü", "tab\t", "line\n", "quote\"", "caf\u00e9 1", "\u202e", "a#b"}
	for typ, form := range forms {
		taken, refused := 0, 0
		for _, p := range probes {
			d := newDecoder(newLayout("", ""), &Job{})
			if name, ok := reflect.New(typ).Interface().(*EnvName); ok {
				if name.UnmarshalTOML(p) != nil {
					d.found = append(d.found, finding{})
				}
			} else {
				d.value([]string{"x"}, "x", span{}, p, reflect.New(typ).Elem())
			}
			passes := passesForm(t, form.schema, p)
			if len(d.found) == 0 && !passes {
				t.Errorf("%s takes %#v, and its schema does not: %v", typ, p, form.schema)
			}
			if len(d.found) == 0 {
				taken++
			} else if !passes {
				refused++
			}
		}
		if taken == 0 || refused < len(probes)/5 {
			t.Errorf("%s: %d of %d probes are taken, and the schema refuses %d", typ, taken, len(probes), refused)
		}
	}
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
