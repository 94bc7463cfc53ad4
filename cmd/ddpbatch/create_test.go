package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestPipesOfOtherUsers checks that no command waits for the writer of a pipe of another user in place of
// a file that the user names.
func TestPipesOfOtherUsers(t *testing.T) {
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	if err := errors.Join(unix.Mkfifo(pipe, 0o666), os.Chown(pipe, 61001, -1)); err != nil {
		t.Fatal(err) // the suite runs as root
	}
	for _, args := range [][]string{
		{"check", pipe}, {"plan", pipe}, {"render", pipe}, {"submit", "--dry-run", pipe}, {"launch", pipe}, {"init", "--from", pipe},
		{"templates", "check", pipe}, {"netif", "--inventory", pipe}, {"env", "--json", "--inventory", pipe}, {"doctor", "--log", pipe},
	} {
		var stderr bytes.Buffer
		p := &program{Stdin: strings.NewReader(""), Stdout: new(bytes.Buffer), Stderr: &stderr, Env: []string{"PATH=" + dir}, Dir: dir}
		if code := p.run(t.Context(), args); code != exitUsage || !strings.Contains(stderr.String(), "not a regular file") {
			t.Errorf("%q: got exit code %d: %s", args, code, &stderr)
		}
	}
}
