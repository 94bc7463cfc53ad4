package environ_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/ddpbatch/ddpbatch/internal/environ"
)

// TestLookup checks that the last value of a variable counts, as in os/exec.
func TestLookup(t *testing.T) {
	env := []string{"A=1", "EMPTY=", "A=2", "AB=3", "broken", "X=y=z"}
	for _, c := range []struct {
		name, want string
		ok         bool
	}{
		{"A", "2", true},
		{"EMPTY", "", true},
		{"X", "y=z", true},
		{"broken", "", false},
		{"B", "", false},
	} {
		if got, ok := environ.Lookup(env, c.name); got != c.want || ok != c.ok {
			t.Errorf("Lookup(%q): got %q, %v, want %q, %v", c.name, got, ok, c.want, c.ok)
		}
	}
}

// TestLookPath checks that only executable files in absolute directories of PATH are found.
func TestLookPath(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	for name, mode := range map[string]os.FileMode{"first/data": 0o644, "second/data": 0o755, "second/tool": 0o755, "a */tool": 0o755, "tool": 0o755} {
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, nil, mode)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir("first/tool", 0o755); err != nil {
		t.Fatal(err)
	}
	first, second := filepath.Join(dir, "first"), filepath.Join(dir, "second")
	for _, c := range []struct {
		name, path, program, want string
	}{
		{name: "directories are not programs", path: first + ":" + second, program: "tool", want: second + "/tool"},
		{name: "files without an x bit are not programs", path: first + ":" + second, program: "data", want: second + "/data"},
		{name: "path with spaces and patterns", path: filepath.Join(dir, "a *") + ":" + second, program: "tool", want: dir + "/a */tool"},
		{name: "current directory", path: ".:" + first, program: "tool"},
		{name: "empty entry", path: ":" + first, program: "tool"},
		{name: "relative entry", path: "second", program: "tool"},
		{name: "name with a slash", path: first, program: "./tool", want: "./tool"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := environ.LookPath([]string{"PATH=" + c.path}, c.program)
			if got != c.want || (err == nil) != (c.want != "") {
				t.Errorf("got %q, %v, want %q", got, err, c.want)
			}
			if err != nil && !errors.Is(err, exec.ErrNotFound) {
				t.Errorf("got %v, want exec.ErrNotFound", err)
			}
		})
	}
}

// TestStartArgv checks that the command line names the directory of this process.
func TestStartArgv(t *testing.T) {
	if got := environ.StartArgv("/bin/ddpbatch", nil); len(got) > 0 {
		t.Errorf("without a command: got %q", got)
	}
	t.Chdir(t.TempDir())
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"/bin/ddpbatch", "start", "--dir=" + dir, "--owner=" + strconv.Itoa(os.Geteuid()), "--", "./tool", "-x"}
	if got := environ.StartArgv("/bin/ddpbatch", []string{"./tool", "-x"}); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	if got := environ.StartArgv("/bin/ddpbatch", []string{"tool"}); !slices.Contains(got, "--dir=/") {
		t.Errorf("in a directory that was removed: got %q", got)
	}
}
