//go:build linux

package cluster

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestClaimKeepsOtherFiles checks that a directory can be claimed once at a time, that the files
// of an earlier cluster are removed, and that a directory with other files is rejected.
func TestClaimKeepsOtherFiles(t *testing.T) {
	l := layout(filepath.Join(t.TempDir(), "new", "directory"))
	lock, err := l.claim()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(l.spool("n1"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := l.claim(); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("claimed a directory in use: %v", err)
	}
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
	if lock, err = l.claim(); err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if _, err := os.Stat(l.spool("n1")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the earlier cluster's files are still there: %v", err)
	}

	foreign := t.TempDir()
	thesis := filepath.Join(foreign, "thesis.tex")
	if err := os.WriteFile(thesis, []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := layout(foreign).claim(); err == nil || !strings.Contains(err.Error(), "thesis.tex") {
		t.Errorf("claimed a directory with other files: %v", err)
	}
	if _, err := os.Stat(thesis); err != nil {
		t.Error(err)
	}
}

// TestCheckHints checks that the hint for a directory name that is too long or has a space
// suggests /tmp.
func TestCheckHints(t *testing.T) {
	for _, dir := range []string{"/tmp/" + strings.Repeat("long/", 20), "/tmp/my cluster"} {
		err := layout(dir).check()
		var h interface{ Hint() string }
		if !errors.As(err, &h) || !strings.Contains(h.Hint(), "/tmp") {
			t.Errorf("check of %q = %v; want an error with a hint", dir, err)
		}
	}
	if err := layout(filepath.Join(t.TempDir(), "not", "yet")).check(); err != nil {
		t.Error(err)
	}
}

// TestEndLeftovers checks that a process of an earlier cluster is killed, even if it is stopped by
// a signal, and that a process that only has the same ID survives.
func TestEndLeftovers(t *testing.T) {
	list, err := os.Create(filepath.Join(t.TempDir(), "list"))
	if err != nil {
		t.Fatal(err)
	}
	defer list.Close()
	left := exec.Command("sh", "-c", "kill -STOP $$")
	if err := left.Start(); err != nil {
		t.Fatal(err)
	}
	if err := record(list, left.Process.Pid); err != nil {
		t.Fatal(err)
	}
	if _, err := list.WriteString("1 12345678901\nhalf a li"); err != nil { // not the start time of process 1
		t.Fatal(err)
	}
	if _, err := list.Seek(0, 0); err != nil {
		t.Fatal(err)
	}
	if err := endLeftovers(list); err != nil {
		t.Fatal(err)
	}
	if err := left.Wait(); err == nil || left.ProcessState.String() != "signal: killed" {
		t.Errorf("the process ended with %v; want it killed", err)
	}
	if st, err := list.Stat(); err != nil || st.Size() != 0 {
		t.Errorf("the list has %d bytes (%v); want it empty", st.Size(), err)
	}
}

// FuzzParseStat checks that any content of /proc/PID/stat is rejected or has a state and a start
// time without spaces.
func FuzzParseStat(f *testing.F) {
	own, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(own))
	f.Add("7 (a) b) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20")
	f.Add("")
	f.Add(")")
	f.Fuzz(func(t *testing.T, text string) {
		state, start, err := parseStat(text)
		if err == nil && (state == "" || start == "" || strings.ContainsAny(state+start, " )")) {
			t.Errorf("parseStat(%q) = %q, %q", text, state, start)
		}
	})
}

// TestParseStat checks the state and the start time of a process whose name has parentheses.
func TestParseStat(t *testing.T) {
	state, start, err := parseStat("7 (a) S 9) Z 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 190 20")
	if state != "Z" || start != "190" || err != nil {
		t.Errorf("parseStat = %q, %q, %v; want Z, 190, nil", state, start, err)
	}
}
