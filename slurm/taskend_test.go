package slurm

import (
	"bufio"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// Lines as srun prints them, and others that come by the same way: each line of the file
// is one, and what is to be read from it, separated by a tab; nothing where it is another.
func TestParseTaskEnd(t *testing.T) {
	f, err := os.Open("testdata/taskends.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	read := 0
	for lines := bufio.NewScanner(f); lines.Scan(); read++ {
		line, want, _ := strings.Cut(lines.Text(), "\t")
		got := ""
		if e, ok := ParseTaskEnd(line); ok {
			got = fmt.Sprintf("%v %v %d %d %v", e.Hosts, e.Tasks, e.Exit, e.Signal, e.OutOfMemory)
		}
		if got != want {
			t.Errorf("%q is %q, want %q", line, got, want)
		}
	}
	if read < 20 {
		t.Errorf("only %d lines", read)
	}
}

func FuzzParseTaskEnd(f *testing.F) {
	text, err := os.ReadFile("testdata/taskends.txt")
	if err != nil {
		f.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		line, _, _ = strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		e, ok := ParseTaskEnd(line)
		ways := 0
		for _, is := range []bool{e.Exit != 0, e.Signal != 0, e.OutOfMemory} {
			if is {
				ways++
			}
		}
		switch {
		case !ok && (ways > 0 || e.Hosts != nil || e.Tasks != nil):
			t.Errorf("%q is not ok, and is %+v", line, e)
		case !ok:
		case ways != 1 || e.Exit < 0 || e.Exit > 255 || e.Signal < 0 || e.Signal > syscall.Signal(lastSignal):
			t.Errorf("%q ended as %+v", line, e)
		case len(e.Hosts) == 0 || len(e.Tasks) == 0 || e.Tasks[0] < 0 || !slices.IsSorted(e.Tasks):
			t.Errorf("%q is of %+v", line, e)
		}
	})
}
