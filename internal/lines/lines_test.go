package lines

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestTail checks that each line gets the prefix, even if it arrives in pieces, and that a
// very long line is split instead of buffered.
func TestTail(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	long := strings.Repeat(strings.Repeat("x", 999)+"\n", 3*tailBytes/1000)
	endless := strings.Repeat("y", 2*maxLine+5)
	if err := os.WriteFile(path, []byte("one\ntw"), 0o600); err != nil {
		t.Fatal(err)
	}
	log := &Tail{Open: func() (*os.File, error) { return os.Open(path) }, Prefix: "[0] "}
	var out bytes.Buffer
	step := func(add, want string) {
		t.Helper()
		f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteString(add); err != nil {
			t.Fatal(err)
		}
		f.Close()
		out.Reset()
		if err := log.Copy(&out); err != nil || out.String() != want {
			t.Errorf("%d bytes, %v, want %d", out.Len(), err, len(want))
		}
	}
	step("", "[0] one\n")
	step("o\n", "[0] two\n")
	step(long, strings.ReplaceAll(long, strings.Repeat("x", 999), "[0] "+strings.Repeat("x", 999)))
	out.Reset()
	step(endless, "[0] "+endless[:2*tailBytes]+"\n")
	if len(log.rest) != 5 {
		t.Errorf("%d bytes are kept", len(log.rest))
	}
	step("\n", "[0] yyyyy\n")
}

// TestTailStartsAgain checks that a file that became shorter is copied from its beginning, and that
// End ends the last line.
func TestTailStartsAgain(t *testing.T) {
	for name, tt := range map[string]struct{ prefix, want string }{
		"without a prefix": {want: "first\nlongnew"},
		"with a prefix":    {prefix: "> ", want: "> first\n> new\n"},
	} {
		path := filepath.Join(t.TempDir(), "log")
		log := &Tail{Open: func() (*os.File, error) { return os.Open(path) }, Prefix: tt.prefix}
		var out bytes.Buffer
		for _, text := range []string{"first\nlong", "new"} {
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := log.Copy(&out); err != nil {
				t.Fatal(err)
			}
		}
		if err := log.End(&out); err != nil || out.String() != tt.want {
			t.Errorf("%s: got %q, %v, want %q", name, &out, err, tt.want)
		}
	}
}

// TestWriters checks the output of a Prefixer and a Filter for text that arrives in pieces.
func TestWriters(t *testing.T) {
	endless := strings.Repeat("a", maxLine+1)
	for name, tt := range map[string]struct {
		pieces             []string
		prefixed, filtered string // by lines that contain a
	}{
		"lines":           {pieces: []string{"a\nb\nca\n"}, prefixed: "> a\n> b\n> ca\n", filtered: "a\nca\n"},
		"pieces":          {pieces: []string{"b", "a", "\n", "\nb"}, prefixed: "> ba\n> \n> b\n", filtered: "ba\n"},
		"incomplete line": {pieces: []string{"b\nxa"}, prefixed: "> b\n> xa\n", filtered: "xa\n"},
		"endless line":    {pieces: []string{endless, "b\n"}, prefixed: "> " + endless + "b\n", filtered: endless + "\n"},
		"nothing":         {},
	} {
		t.Run(name, func(t *testing.T) {
			var prefixed, filtered bytes.Buffer
			p, f := &Prefixer{W: &prefixed, Prefix: "> "}, &Filter{W: &filtered, Pattern: regexp.MustCompile("a")}
			for _, piece := range tt.pieces {
				for _, w := range []io.Writer{p, f} {
					if n, err := w.Write([]byte(piece)); n != len(piece) || err != nil {
						t.Fatalf("got %d, %v, want %d", n, err, len(piece))
					}
				}
			}
			if err := p.EndLine(); err != nil || prefixed.String() != tt.prefixed {
				t.Errorf("with a prefix: got %.40q, %v, want %.40q", &prefixed, err, tt.prefixed)
			}
			if err := f.Flush(); err != nil || filtered.String() != tt.filtered {
				t.Errorf("filtered: got %.40q, %v, want %.40q", &filtered, err, tt.filtered)
			}
		})
	}
}
