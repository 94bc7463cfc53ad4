package main

import (
	"os/exec"
	"strings"
	"testing"
)

// TestShellQuote checks that a shell parses each quoted word unchanged.
func TestShellQuote(t *testing.T) {
	for _, word := range []string{"", "plain", "a b", "it's", `"$HOME"`, "`id`", `\`, "*", "=ls", "~", "-n", "#", "ä", "a;b", "''", "x=1"} {
		out, err := exec.CommandContext(t.Context(), "sh", "-c", "printf %s. "+shellQuote(word)).Output()
		if err != nil || string(out) != word+"." {
			t.Errorf("%q: the shell read %q (%v)", word, out, err)
		}
	}
	if got := shellQuote("/a/b-1_2.toml"); strings.Contains(got, "'") {
		t.Errorf("%s needs no quotes", got)
	}
}

// TestShort checks which paths are printed relative to the current directory.
func TestShort(t *testing.T) {
	p := &program{Dir: "/home/ada"}
	for path, want := range map[string]string{
		"/home/ada/runs/a": "runs/a", "/home/ada/..a/b": "..a/b", "/home/ada": ".", "/": "/", "/home/b": "/home/b", "/home/ada2/a": "/home/ada2/a",
	} {
		if got := p.short(path); got != want {
			t.Errorf("%s: got %q, want %q", path, got, want)
		}
	}
}
