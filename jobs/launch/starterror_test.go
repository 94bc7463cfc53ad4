package launch

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestCannotStartHints checks that each cause for which a program cannot start has its own
// hint.
func TestCannotStartHints(t *testing.T) {
	dir := t.TempDir()
	for name, file := range map[string]struct {
		text string
		mode os.FileMode
	}{
		"plain.sh":  {"#!/bin/sh\n", 0o600},
		"crlf.py":   {"#!/usr/bin/python3\r\nprint()\r\n", 0o700},
		"sp ace.py": {"#!/usr/bin/python3\r\n", 0o700},
		"gone.py":   {"#!/opt/gone/python3\n", 0o700},
		"nohead.sh": {"echo x\n", 0o700},
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(file.text), file.mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "folder"), 0o700); err != nil {
		t.Fatal(err)
	}
	hints := map[string]string{}
	for _, tt := range []struct {
		name, program, dir string
		args               []string
		says, hint         string
	}{
		{"not executable", "./plain.sh", dir, nil, "not executable", "chmod +x ./plain.sh"},
		{"directory", "./folder", dir, nil, "is a directory", "name a program"},
		{"no #! line", "./nohead.sh", dir, nil, "no #! line", "#!/bin/bash"},
		{"missing interpreter", "./gone.py", dir, nil, `"/opt/gone/python3" does not exist`, "change its #! line"},
		{"CR LF", "./crlf.py", dir, nil, "CR LF", "sed -i"},
		{"CR LF, space in name", "./sp ace.py", dir, nil, "CR LF", `'./sp ace.py'`},
		{"arguments too long", "/bin/true", dir, []string{strings.Repeat("x", 300<<10)}, "argument list too long", "128 KiB"},
		{"missing", "./none", dir, nil, "no such file", "check the path"},
		{"one word", "./plain.sh --x", dir, nil, "no such file", `argv = ["./plain.sh", "--x"]`},
		{"no directory", "/bin/true", dir + "/gone", nil, "change to directory", "command.workdir"},
	} {
		cmd := exec.Command(tt.program, tt.args...)
		cmd.Path, cmd.Err, cmd.Dir = tt.program, nil, tt.dir
		err := cmd.Run()
		if err == nil {
			t.Fatalf("%s: it started", tt.name)
		}
		err = explainStartError(tt.program, tt.dir, err)
		var hinted interface{ Hint() string }
		if !errors.As(err, &hinted) {
			t.Fatalf("%s: no hint: %v", tt.name, err)
		}
		if !strings.Contains(err.Error(), tt.says) || strings.Count(err.Error(), tt.program) != 1 || !strings.Contains(hinted.Hint(), tt.hint) {
			t.Errorf("%s: got %q, hint %q, want %q, %q", tt.name, err, hinted.Hint(), tt.says, tt.hint)
		}
		if other := hints[hinted.Hint()]; other != "" {
			t.Errorf("%s has the hint of %s: %q", tt.name, other, hinted.Hint())
		}
		hints[hinted.Hint()] = tt.name
	}
}

// TestNotInPath checks that the error does not print PATH, which may have many directories.
func TestNotInPath(t *testing.T) {
	for name, hint := range map[string]string{"no-such-program": "[setup]", "python3 train.py": `argv = ["python3", "train.py"]`} {
		_, err := lookPath([]string{"PATH=/opt/secret-directory:/bin"}, name)
		var hinted interface{ Hint() string }
		if !errors.As(err, &hinted) || strings.Contains(err.Error(), "secret-directory") || !strings.Contains(err.Error(), "not found in PATH") || !strings.Contains(hinted.Hint(), hint) {
			t.Errorf("%s: got %v, want the hint %q", name, err, hint)
		}
	}
}
