package sbatch

import (
	"strings"
	"testing"
	"unicode"
)

// TestHostileScripts checks that a script does not control the terminal, and that a value that
// grows exponentially is not expanded.
func TestHostileScripts(t *testing.T) {
	r, err := Read("job.sh", []byte("#!/bin/bash\ntorchrun train.py $X\x1b[31m\u009b2J\nother \x1b]0;x\x07\n"), testOptions)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Notes) == 0 {
		t.Error("no notes")
	}
	for _, n := range r.Notes {
		if strings.ContainsFunc(n.Text, unicode.IsControl) {
			t.Errorf("%q", n.Text)
		}
	}
	r, err = Read("job.sh", []byte("#!/bin/bash\nX=0123456789abcdef\n"+strings.Repeat("X=$X$X\n", 40)+"python train.py $X\n"), testOptions)
	if err != nil || len(r.TOML) > 2*maxValue || !strings.Contains(string(r.TOML), "$X") {
		t.Errorf("%d bytes, %v", len(r.TOML), err)
	}
}
