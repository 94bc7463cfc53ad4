package jobs

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"
)

// FuzzParse checks four properties: Parse never panics, the same input gives the same result,
// every diagnostic points into the file, and the scanner agrees with the decoder.
func FuzzParse(f *testing.F) {
	for _, pattern := range []string{"testdata/*/*.toml", "*/*.toml"} {
		files, _ := filepath.Glob(pattern)
		for _, file := range files {
			src, err := os.ReadFile(file)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(src)
		}
	}
	for _, src := range documents {
		f.Add([]byte(src))
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		if len(src) > 1<<16 {
			return
		}
		job, err := Parse("job.toml", src)
		again, err2 := Parse("job.toml", src)
		if !reflect.DeepEqual(job, again) || !reflect.DeepEqual(err, err2) {
			t.Fatalf("two answers:\n%v\n%v", err, err2)
		}
		text := strings.TrimPrefix(string(src), "\ufeff")
		if utf8.ValidString(text) {
			sameKeys(t, text)
		}
		if err == nil {
			if (job.Train == nil) == (job.Command == nil) || job.Name == "" || job.Ranks() < 1 {
				t.Fatalf("incomplete: %+v", job)
			}
			return
		}
		var found Diagnostics
		if !errors.As(err, &found) || len(found) == 0 {
			t.Fatalf("%T: %v", err, err)
		}
		lines := strings.Split(text, "\n")
		for _, d := range found {
			if d.Line == 0 {
				continue
			}
			if d.Line > len(lines) || d.Column < 1 || d.Length < 1 || d.Message == "" {
				t.Fatalf("nowhere: %+v", d)
			}
			line := strings.TrimSuffix(lines[d.Line-1], "\r")
			hidden := strings.HasSuffix(d.Source, "…")
			if d.Source != line && !hidden {
				t.Fatalf("line %d is %q, not %q", d.Line, line, d.Source)
			}
			if d.Column+d.Length-1 > utf8.RuneCountInString(lines[d.Line-1])+1 {
				t.Fatalf("outside of line %q: %+v", line, d)
			}
		}
	})
}
