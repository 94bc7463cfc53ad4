package main

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestStartPrintsNoControlCharacters checks the warning about a directory that the node does not have. Its
// name can contain characters that control a terminal.
func TestStartPrintsNoControlCharacters(t *testing.T) {
	t.Chdir(t.TempDir()) // start changes to "/"
	var printed strings.Builder
	p := &program{Stderr: &printed}
	c := startCmd{Dir: filepath.Join(t.TempDir(), "missing\x1b[2J"), Command: []string{"--", "missing-program"}}
	if err := c.Run(t.Context(), p); exitCode(err) != exitNotFound {
		t.Errorf("got %v", err)
	}
	if text := printed.String(); !strings.Contains(text, "the command starts in /") || strings.Contains(text, "\x1b") {
		t.Errorf("printed %q", text)
	}
}
