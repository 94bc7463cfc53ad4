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
