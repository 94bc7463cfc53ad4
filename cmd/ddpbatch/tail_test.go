package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestTail checks that each line gets the prefix, even if it arrives in pieces, and that a
// very long line is split instead of buffered.
func TestTail(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	lines := strings.Repeat(strings.Repeat("x", 999)+"\n", 3*tailBytes/1000)
	endless := strings.Repeat("y", 2*longestLine+5)
	if err := os.WriteFile(path, []byte("one\ntw"), 0o600); err != nil {
		t.Fatal(err)
	}
	log := &tail{open: func() (*os.File, error) { return os.Open(path) }, prefix: "[0] "}
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
		if err := log.copy(&out); err != nil || out.String() != want {
			t.Errorf("%d bytes, %v, want %d", out.Len(), err, len(want))
		}
	}
	step("", "[0] one\n")
	step("o\n", "[0] two\n")
	step(lines, strings.ReplaceAll(lines, strings.Repeat("x", 999), "[0] "+strings.Repeat("x", 999)))
	out.Reset()
	step(endless, "[0] "+endless[:2*tailBytes]+"\n")
	if len(log.rest) != 5 {
		t.Errorf("%d bytes are kept", len(log.rest))
	}
	step("\n", "[0] yyyyy\n")
}
