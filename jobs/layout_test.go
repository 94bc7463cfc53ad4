package jobs

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/BurntSushi/toml"
)

// sameKeys checks the scanner against the TOML decoder: for a document that the decoder
// accepts, both must find the same keys in the same order.
func sameKeys(t *testing.T, src string) {
	t.Helper()
	l := newLayout("job.toml", src)
	var doc map[string]any
	md, err := toml.Decode(src, &doc)
	if err != nil || l.tooDeep.known() || l.tooLong.known() {
		return
	}
	var want []string
	for _, key := range md.Keys() {
		want = append(want, key.String())
	}
	if !l.complete || !slices.Equal(l.keys, want) {
		t.Errorf("complete %v, keys %q, want %q, in %q", l.complete, l.keys, want, src)
	}
	if l.repeated.known() {
		t.Errorf("%q is taken for a repeated key in %q", src[l.repeated.start:l.repeated.end], src)
	}
	for name, at := range l.positions {
		for _, s := range append([]span{at.key, at.header, at.value}, at.elements...) {
			if s.start < 0 || s.end < s.start || s.end > len(src) {
				t.Errorf("%s is at %v in %q", name, s, src)
			}
		}
	}
}

// documents contains unusual but valid TOML.
var documents = []string{
	"", "\n", "# c", "a=1", "a = 1 # = 2\n", " a . b = 1\r\n", "a.b.c = 1\na.b.d = 2\n",
	"[a]\n[a.b]\nc = 1\n[ d . \"e f\" ] # x\ng = 'h'\n", "[a.b]\nx=1\n[a]\ny=1\n",
	"[[a]]\nb = 1\n[[a]]\nb = 2\n[a.c]\nd=1\n[[a]]\n[a.c]\nd=2\n",
	`"" = 1`, `"a\u002eb" = 1` + "\n'c\\d' = 2\n\"e\\\"f\" = 3\n", `"a#b" = "c#d"`,
	`a = """x"""` + "\n" + `b = """` + "\n" + `x \" """""` + "\n" + `c = ""` + "\nd = ''\ne = '''''''\n",
	"a = '''\n[x]\ny = 1\n'''\nb = 1\n", `a = """\` + "\n   x\"\"\"\n",
	"a = [1, 2, # x\n\n 3,\n]\nb = [[1], [], ['x', \"]\"]]\n", "a = [{b = 1}, {b = 2, c.d = 3}]\n", "a = [{}, {}]",
	"a = {}\nb = { }\nc = { d = 1, e.f = [1, {g = 2}], h = {} }\n", "a = {\n b = 1, # c\n c = 2,\n}\n",
	"a = 1979-05-27 07:32:00 # d\nb = 1979-05-27\nc = 07:32:00\n", "a = -inf\nb = +nan\nc = 0xFF\nd = 1e-3\n",
	"a = \t1\t\t\n\tb\t=\t2\n", "é = 1", "'é' = 'ü'\n", "1 = 2\n3.4 = 5\n", "-=1", "true = false",
}

// TestScanner checks that the scanner finds the same keys as the TOML parser, in all test files
// and examples.
func TestScanner(t *testing.T) {
	for _, src := range documents {
		sameKeys(t, src)
	}
	files, _ := filepath.Glob("testdata/*/*.toml")
	more, _ := filepath.Glob("*/*.toml")
	for _, file := range append(files, more...) {
		src, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		sameKeys(t, strings.TrimPrefix(string(src), "\ufeff"))
	}
}

// TestPositions checks the positions of keys, tables, and values, which diagnostics show.
func TestPositions(t *testing.T) {
	src := "\"é\".key = 1\n[t] # c\r\nlist = [ 1,\n  \"two\" , # c\n\t[3, 4],\n  {x = 5}\n]\ninline = { a = 'b', c.d = [true] }\n[[aot]]\nx = 1\n[[aot]]\nx = 2\n[u.v]\n"
	l := newLayout("f", src)
	text := func(s span) string { return src[s.start:s.end] }
	for name, want := range map[string][3]string{
		`"é"`:          {`"é"`, "", ""},
		`"é".key`:      {"key", "", "1"},
		"t":            {"t", "[t]", ""},
		"t.inline":     {"inline", "", "{ a = 'b', c.d = [true] }"},
		"t.inline.a":   {"a", "", "'b'"},
		"t.inline.c":   {"c", "", ""},
		"t.inline.c.d": {"d", "", "[true]"},
		"aot":          {"aot", "[[aot]]", ""},
		"aot[0]":       {"aot", "[[aot]]", ""},
		"aot[0].x":     {"x", "", "1"},
		"aot[1].x":     {"x", "", "2"},
		"t.list[3].x":  {"x", "", "5"},
		"u":            {"u", "", ""},
		"u.v":          {"v", "[u.v]", ""},
	} {
		at := l.lookup(name)
		if got := [3]string{text(at.key), text(at.header), text(at.value)}; got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	var elements []string
	for _, s := range l.lookup("t.list").elements {
		elements = append(elements, text(s))
	}
	if want := []string{"1", `"two"`, "[3, 4]", "{x = 5}"}; !slices.Equal(elements, want) {
		t.Errorf("elements %q, want %q", elements, want)
	}

	d := l.diagnosticAt(l.lookup(`"é".key`).key)
	if d.Line != 1 || d.Column != 5 || d.Length != 3 || d.Source != `"é".key = 1` {
		t.Errorf("columns are not characters: %+v", d)
	}
	if d := l.diagnosticAt(l.lookup("t").header); d.Line != 2 || d.Column != 1 || d.Source != "[t] # c" {
		t.Errorf("a line end of two bytes: %+v", d)
	}
	if d := l.diagnosticAt(l.lookup("t.list").value); d.Line != 3 || d.Column != 8 || d.Length != 4 {
		t.Errorf("a value of several lines: %+v", d)
	}
}
