package metrics

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestResumeRemovesRepeatedSkip checks that a resume removes the line of a skipped step that it
// repeats. That line has the number of steps before the skipped one.
func TestResumeRemovesRepeatedSkip(t *testing.T) {
	path := filepath.Join(t.TempDir(), "metrics.jsonl")
	lines := []string{`{"kind":"skip","step":9}`, `{"kind":"train","step":10}`, `{"kind":"eval","step":10}`, `{"kind":"skip","step":10}`, ""}
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := Open(path, 10)
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	if got, err := os.ReadFile(path); err != nil || string(got) != strings.Join(lines[:3], "\n")+"\n" {
		t.Errorf("got %q, %v, want the first three of %q", got, err, lines)
	}
}

// TestResumeRemovesRepeatedSteps checks that a resume removes steps that it repeats and an
// incomplete last line.
func TestResumeRemovesRepeatedSteps(t *testing.T) {
	path := filepath.Join(t.TempDir(), "metrics.jsonl")
	write := func(resumeAt int, steps ...int) {
		t.Helper()
		l, err := Open(path, resumeAt)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		for _, s := range steps {
			if err := l.Write(Record{Kind: "train", Step: s, Loss: NewNumber(math.NaN())}); err != nil {
				t.Fatal(err)
			}
		}
	}
	write(0, 10, 20, 30)
	f, _ := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	f.WriteString(`{"kind":"train","st`)
	f.Close()
	write(20, 30, 40)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	if len(lines) != 4 {
		t.Fatalf("%d lines:\n%s", len(lines), b)
	}
	for i, want := range []string{`"step":10`, `"step":20`, `"step":30`, `"step":40`} {
		if !strings.Contains(lines[i], want) || !strings.Contains(lines[i], `"loss":"NaN"`) {
			t.Errorf("line %d: %s", i, lines[i])
		}
	}
}

// TestOpenRejectsLink checks that Open neither reads nor writes through a symbolic link.
func TestOpenRejectsLink(t *testing.T) {
	dir := t.TempDir()
	target, link := filepath.Join(dir, "target"), filepath.Join(dir, "metrics.jsonl")
	if err := os.Symlink(target, link); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(link, 0); err == nil {
		t.Error("opened a dangling link")
	}
	if _, err := os.Lstat(target); err == nil {
		t.Error("created the target")
	}
	if err := os.WriteFile(target, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(link, 0); err == nil {
		t.Error("opened a link")
	}
}

// TestOpenInIgnoresReplacedDirectory checks that a directory which takes the path of an open one
// keeps its metrics.
func TestOpenInIgnoresReplacedDirectory(t *testing.T) {
	parent := t.TempDir()
	run, other := filepath.Join(parent, "run"), filepath.Join(parent, "other")
	line := []byte(`{"kind":"train","step":7}` + "\n")
	for _, dir := range []string{run, other} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "metrics.jsonl"), line, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	root, err := os.OpenRoot(run)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if err := os.Rename(run, filepath.Join(parent, "moved")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(other, run); err != nil {
		t.Fatal(err)
	}
	l, err := OpenIn(root, "metrics.jsonl", 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(filepath.Join(other, "metrics.jsonl")); err != nil || string(got) != string(line) {
		t.Errorf("other run: got %q, %v, want %q", got, err, line)
	}
	if got, err := os.ReadFile(filepath.Join(parent, "moved", "metrics.jsonl")); err != nil || len(got) != 0 {
		t.Errorf("open run: got %q, %v, want an empty file", got, err)
	}
}
