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

// TestParseTaskEnd checks a file of messages. Each line has a line of standard error, a tab, and
// the expected result. The result is empty for lines that are not from srun.
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
			t.Errorf("%q: got %q, want %q", line, got, want)
		}
	}
	if read < 20 {
		t.Errorf("got %d lines, want at least 20", read)
	}
}

// FuzzParseTaskEnd checks that any line is rejected or has exactly one result, with hosts and
// tasks.
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
		results := 0
		for _, isSet := range []bool{e.Exit != 0, e.Signal != 0, e.OutOfMemory} {
			if isSet {
				results++
			}
		}
		switch {
		case !ok && (results > 0 || e.Hosts != nil || e.Tasks != nil):
			t.Errorf("%q: got %+v and not ok", line, e)
		case !ok:
		case results != 1 || e.Exit < 0 || e.Exit > 255 || e.Signal < 0 || e.Signal > syscall.Signal(lastSignal):
			t.Errorf("%q: got %+v", line, e)
		case len(e.Hosts) == 0 || len(e.Tasks) == 0 || e.Tasks[0] < 0 || !slices.IsSorted(e.Tasks):
			t.Errorf("%q: got %+v", line, e)
		}
	})
}
