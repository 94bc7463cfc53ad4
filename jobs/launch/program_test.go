package launch

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/internal/safefile"
)

// TestOpenSnapshotRejects checks that a snapshot that other users can change is not run.
func TestOpenSnapshotRejects(t *testing.T) {
	const nobody = 65534
	tests := []struct {
		name string
		make func(path string) error
		want string
	}{
		{"another user", func(path string) error {
			if err := os.Mkdir(path, 0o755); err != nil {
				return err
			}
			return os.Chown(path, nobody, nobody)
		}, "belongs to user"},
		{"writable", func(path string) error {
			if err := os.Mkdir(path, 0o700); err != nil {
				return err
			}
			return os.Chmod(path, 0o770)
		}, "other users can write"},
		{"link", func(path string) error { return os.Symlink("/", path) }, "not a directory"},
		{"file", func(path string) error { return os.WriteFile(path, nil, 0o600) }, "not a directory"},
		{"missing", func(string) error { return nil }, "no such file"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "code")
			if err := tt.make(path); err != nil {
				t.Fatal(err)
			}
			dir, err := openSnapshot(path)
			if err == nil {
				dir.Close()
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

// TestInsideStepsSkipRelativePath checks that a program after steps in the ranks is found like without
// steps: not in relative directories of PATH.
func TestInsideStepsSkipRelativePath(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"local": "wrong", "bin": "right"} {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.Mkdir(path, 0o700), os.WriteFile(filepath.Join(path, "prog"), []byte("#!/bin/sh\necho "+text+" $STEP \"$@\"\n"), 0o700)); err != nil {
			t.Fatal(err)
		}
	}
	step := fmt.Sprintf("cd %s/local; export STEP=set PATH=.:%s/bin:$PATH", dir, dir)
	result, said, err := launched(t, 1, "program", fmt.Sprintf("steps = [{ run = %q, where = \"inside\" }]\n[command]\nargv = [\"prog\", \"-a\", \"b c\"]\n", step), nil)
	if err != nil || result.Exit != 0 || !strings.Contains(said, "right set -a b c") {
		t.Errorf("got %+v, %v\n%s", result, err, said)
	}
}

// TestProgramStartsInTheOpenSnapshot checks that the program starts in the snapshot even if
// another directory replaces it after it was opened.
func TestProgramStartsInTheOpenSnapshot(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "code")
	write := func(text string) {
		t.Helper()
		err := os.Mkdir(path, 0o700)
		if err == nil {
			err = os.WriteFile(filepath.Join(path, "train.sh"), []byte("echo "+text+"\n"), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	write("verified")
	dir, err := openSnapshot(path)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	if err := os.Rename(path, path+".old"); err != nil {
		t.Fatal(err)
	}
	write("replaced")
	cmd := exec.CommandContext(t.Context(), "/bin/sh", "train.sh")
	cmd.Dir, _ = safefile.DescriptorPath(dir)
	if out, err := cmd.CombinedOutput(); err != nil || string(out) != "verified\n" {
		t.Errorf("%q, %v", out, err)
	}
}
