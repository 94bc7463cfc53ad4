package launch

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/ddpbatch/ddpbatch/internal/safefile"
	"github.com/ddpbatch/ddpbatch/jobs"
)

// A startError reports that a user's program could not be started.
type startError struct {
	name  string
	cause error
	hint  string
}

func (e *startError) Error() string { return fmt.Sprintf("start %q: %v", e.name, e.cause) }
func (e *startError) Unwrap() error { return e.cause }

// Hint returns the fix.
func (e *startError) Hint() string { return e.hint }

const searchHint = "load it in [setup] (modules, conda, or venv), and check that it exists on every node"

// pathLookupError returns the error for a program that is not in the given PATH.
func pathLookupError(name, path string) error {
	e := &startError{name, fmt.Errorf("not found in PATH (%d directories)", len(filepath.SplitList(path))), searchHint}
	if words := strings.Fields(name); len(words) > 1 {
		e.hint = oneWordHint(words)
	}
	return e
}

// oneWordHint returns the hint for a command line that is written as a single word of argv.
func oneWordHint(words []string) string {
	for i := range words {
		words[i] = strconv.Quote(words[i])
	}
	return "write one word per element: argv = [" + strings.Join(words, ", ") + "]"
}

// explainStartError returns an error that explains why the kernel did not start a program in dir
// (execve(2)).
func explainStartError(name, dir string, err error) error {
	e := &startError{name, err, searchHint}
	var pathErr *fs.PathError
	if errors.As(err, &pathErr) {
		e.cause = pathErr.Err // startError already has the name
		if pathErr.Op == "chdir" {
			e.cause, e.hint = fmt.Errorf("change to directory %q: %w", dir, pathErr.Err), "create command.workdir on every node"
			return e
		}
	}
	path := name
	if !filepath.IsAbs(path) {
		path = filepath.Join(dir, path)
	}
	info, statErr := os.Stat(path)
	firstPart, _ := readHead(path)
	line, _, _ := bytes.Cut(firstPart, []byte("\n"))
	interpreted, _ := strings.CutPrefix(string(line), "#!")
	isScript, isBinary := bytes.HasPrefix(firstPart, []byte("#!")), bytes.HasPrefix(firstPart, []byte("\x7fELF"))
	interpreterHint := fmt.Sprintf("put its interpreter in front of it, such as argv = [\"python3\", %q]", name)
	switch {
	case errors.Is(err, syscall.E2BIG):
		e.hint = "write long values to a file: one word of argv may have 128 KiB, and argv and the environment together about 2 MiB"
	case statErr == nil && info.IsDir():
		e.cause, e.hint = fmt.Errorf("it is a directory: %w", e.cause), "name a program in it"
	case errors.Is(err, fs.ErrPermission) && statErr == nil && info.Mode().Perm()&0o111 == 0:
		e.cause, e.hint = fmt.Errorf("it is not executable: %w", e.cause), fmt.Sprintf("run `chmod +x %s`, or %s", jobs.ShellQuote(name), interpreterHint)
	case errors.Is(err, fs.ErrPermission):
		e.hint = "check the permissions of the file, of its directories, and of its interpreter, and whether its file system is mounted with noexec"
	case errors.Is(err, syscall.ENOEXEC) && isBinary:
		e.hint = "build it for the CPUs of the nodes"
	case errors.Is(err, syscall.ENOEXEC):
		e.cause, e.hint = fmt.Errorf("it is not a program, and has no #! line: %w", e.cause), "begin the script with a line such as #!/bin/bash, or "+interpreterHint
	case errors.Is(err, fs.ErrNotExist) && statErr == nil && isScript && strings.HasSuffix(interpreted, "\r"):
		e.cause = fmt.Errorf("its interpreter %q does not exist: its lines end with CR LF, as on Windows", strings.TrimSpace(strings.TrimSuffix(interpreted, "\r"))+"\r")
		e.hint = fmt.Sprintf("run `sed -i 's/\\r$//' %s`", jobs.ShellQuote(name))
	case errors.Is(err, fs.ErrNotExist) && statErr == nil && isScript:
		e.cause, e.hint = fmt.Errorf("its interpreter %q does not exist", strings.TrimSpace(interpreted)), "change its #! line, or "+interpreterHint
	case errors.Is(err, fs.ErrNotExist) && statErr == nil:
		e.cause, e.hint = fmt.Errorf("its dynamic loader does not exist: %w", e.cause), "build it for the system of the nodes"
	case errors.Is(err, fs.ErrNotExist):
		e.hint = "check the path, and that the file exists on every node"
		if words := strings.Fields(name); len(words) > 1 {
			e.hint = oneWordHint(words)
		}
	}
	return e
}

// readHead returns the first 256 bytes of a file, which the kernel reads to find the
// interpreter.
func readHead(path string) ([]byte, error) {
	f, err := safefile.Open(path, 0) // never waits for a FIFO
	if err != nil {
		return nil, err
	}
	defer f.Close()
	head := make([]byte, 256)
	n, err := io.ReadFull(f, head)
	return head[:n], err
}
