package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestCheckedInFilesAreGenerated checks that the assembly files match their generator.
func TestCheckedInFilesAreGenerated(t *testing.T) {
	for name, want := range files() {
		got, err := os.ReadFile(filepath.Join("..", "..", name))
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != want {
			t.Errorf("%s is not what asmgen writes: run go generate ./trainer/gemm", name)
		}
	}
}

// TestEncode compares encoded instructions with the bytes of GNU as, with registers on both sides
// of 8 and of 16.
func TestEncode(t *testing.T) {
	for _, c := range []struct {
		write       func(w *writer, rm, v, reg int)
		rm, v, reg  int
		code, named string
	}{
		{dotPairs, 28, 30, 0, "62 92 0e 40 52 c4", "VDPBF16PS Z28, Z30, Z0"},
		{dotPairs, 1, 31, 27, "62 62 06 40 52 d9", "VDPBF16PS Z1, Z31, Z27"},
		{dotPairs, 9, 2, 17, "62 c2 6e 48 52 c9", "VDPBF16PS Z9, Z2, Z17"},
		{roundTwo, 16, 17, 8, "62 32 77 40 72 c0", "VCVTNE2PS2BF16 Z16, Z17, Z8"},
		{roundTwo, 0, 1, 2, "62 f2 77 48 72 d0", "VCVTNE2PS2BF16 Z0, Z1, Z2"},
	} {
		w := &writer{}
		c.write(w, c.rm, c.v, c.reg)
		b := strings.Fields(c.code)
		want := "\tLONG $0x" + b[3] + b[2] + b[1] + b[0] + "; WORD $0x" + b[5] + b[4] + " // " + c.named + "\n"
		if got := w.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
