package jobs

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
	"unicode"
)

// TestControlCharacters checks that no field of the spec accepts a control character, at any
// position of a value and in any notation of the file.
func TestControlCharacters(t *testing.T) {
	var hostile []rune
	for r := rune(0); r <= unicode.MaxLatin1; r++ {
		if unicode.IsControl(r) {
			hostile = append(hostile, r)
		}
	}
	hostile = append(hostile, '\u2028', '\u2029', '\u202e', '\u2066')

	fields := 0
	eachKey(reflect.TypeFor[Job](), nil, func(path []string, f *field) {
		key, typ, format := keyName(path), f.typ, "%s"
		switch typ.Kind() {
		case reflect.Slice:
			typ, format = typ.Elem(), "[%s]"
		case reflect.Map:
			typ, format = typ.Elem(), "{ A = %s }"
		}
		if typ.Kind() != reflect.String && typ != reflect.TypeFor[Duration]() && typ != reflect.TypeFor[Interval]() && typ != reflect.TypeFor[StepRange]() {
			return
		}
		fields++
		for _, r := range hostile {
			for _, value := range []string{"a%sb", "%sa", "1%s", "1 step%s", "64%sG", "1%ss"} {
				escaped := fmt.Sprintf(`"`+value+`"`, fmt.Sprintf(`\u%04X`, r))
				_, err := Parse("job.toml", []byte(key+" = "+fmt.Sprintf(format, escaped)+"\n"))
				if !about(err, key) {
					t.Fatalf("%s takes %s", key, escaped)
				}
			}
		}
	})
	if fields < 30 {
		t.Errorf("only %d fields were tried", fields)
	}
	for _, r := range hostile {
		_, err := Parse("job.toml", fmt.Appendf(nil, "[setup.env]\n\"A\\u%04X\" = \"x\"\n", r))
		if !about(err, "setup.env") {
			t.Errorf("the name of a variable takes %U", r)
		}
	}
}

// about reports whether a diagnostic is about the value of a key, or about a value inside it.
func about(err error, key string) bool {
	var found Diagnostics
	errors.As(err, &found)
	for _, d := range found {
		if strings.HasPrefix(d.Key, key) && strings.HasPrefix(d.Message, d.Key+": ") {
			return true
		}
	}
	return false
}

// TestDiagnosticsHaveNoControlCharacters checks that diagnostics contain no control characters except
// line endings and tabs, whatever the file contains.
func TestDiagnosticsHaveNoControlCharacters(t *testing.T) {
	for _, src := range []string{
		"name = \"a\u009b31m\"\n\"\u009bkey\" = 1\n",
		"name = 'a\u202e'\n\"k\u202e\" = 1\n[setup.env]\n\"\u009b\" = 1\n",
		"name = \"\x1b[31m\n", "x\x1b[31m = 1\n", "name = \x1b]0;title\x07\n",
		`name = "\u001b[31m"` + "\n" + `"\u001b[31m" = 1` + "\n" + `slurm."\n" = 2`,
	} {
		_, err := Parse("job\x1b[31m.toml", []byte(src))
		if err == nil {
			t.Fatalf("%q is accepted", src)
		}
		for _, r := range err.Error() {
			if r != '\n' && r != '\t' && checkControl(string(r)) != nil {
				t.Errorf("%q prints %U:\n%q", src, r, err)
				break
			}
		}
	}
}

// TestSecretsAreNotPrinted checks that diagnostics never contain the values of variables,
// whatever syntax errors surround them.
func TestSecretsAreNotPrinted(t *testing.T) {
	src, err := os.ReadFile("testdata/bad/env.toml")
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(string(src), "\n")
	for i := range lines {
		if !strings.Contains(lines[i], "canary") {
			continue
		}
		for _, broken := range []string{
			strings.TrimRight(lines[i], "\"\n") + "\n",
			strings.ReplaceAll(lines[i], `"`, "") + "\n",
			strings.Replace(lines[i], "=", "", 1),
			strings.Replace(lines[i], "canary", "canary\x01", 1),
			strings.Replace(lines[i], "canary", "canary\xff", 1),
			lines[i] + lines[i],
		} {
			doc := strings.Join(lines[:i], "") + broken + strings.Join(lines[i+1:], "")
			if _, err := Parse("job.toml", []byte(doc)); err == nil || strings.Contains(err.Error(), "canary") {
				t.Errorf("%q prints:\n%v", broken, err)
			}
		}
	}
}

// TestSweptSecretsAreNotPrinted checks that diagnostics never contain a sweep's values of
// variables.
func TestSweptSecretsAreNotPrinted(t *testing.T) {
	for _, sweep := range []string{
		"[sweep.grid]\nsetup.env.A = [\"canary\", ",
		"[sweep.grid]\nsetup.env.A = [\n\"x\",\n\"canary\n]\n",
		"[sweep.grid]\nsetup.env.A = [\n\"x\",\ncanary\n]\n",
		"[sweep.grid]\nsetup.env.A = [\n\"x\" canary,\n]\n",
		"[sweep.grid.setup.env]\nA = canary\n",
		"[sweep.grid.setup.env]\nA = \"x\" canary\n",
		"[[sweep.list]]\nsetup.env.A = \"\"\"\nx = canary\x01\"\"\"\n",
		"[sweep]\nlist = [{ setup.env.A = \"canary }]\n",
		"[sweep]\nlist = [{ setup.env.A = \"x\"canary\" }]\n",
		"[sweep]\nlist = [{ setup.env.A = \"canary\", x = 1, train.batch = 0 }]\n",
		"[sweep]\nlist = [{ \"setup.env.A\" = \"canary\", x = 1 }, [{ setup.env.A = \"canary\" }, { setup.env.A = \"canary\" }]]\n",
		"[sweep]\nlist = { setup.env.A = \"canary\" }\n",
		"[sweep.grid]\nsetup = [{ env = { A = \"canary\" } }, 3]\nsetup.modules = 1\n",
		"[sweep.grid]\n\"setup.env\".A = \"canary\"\n",
		"[sweep.random]\nsamples = 1\nvalues.setup.env.A = { min = \"canary\", max = 3 }\n",
	} {
		if _, err := Parse("job.toml", []byte(program+sweep)); err == nil || strings.Contains(err.Error(), "canary") {
			t.Errorf("%q prints:\n%v", sweep, err)
		}
	}
}
