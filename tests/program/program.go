// Package program builds ddpbatch and runs it for tests of the whole program. It also reads a run's
// metrics, weights, and processes.
//
// It builds the program once per test binary, from the source tree of the test. It does not start a
// cluster; see package tests/cluster.
package program

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Main builds the program from the directory source, stores its path in *path, runs the tests, and
// exits. TestMain calls it.
func Main(m *testing.M, source string, path *string) {
	dir, err := os.MkdirTemp("", "ddpbatch-")
	if err == nil {
		*path = filepath.Join(dir, "ddpbatch")
		build := exec.Command("go", "build", "-trimpath", "-o", *path, source)
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		var out []byte
		if out, err = build.CombinedOutput(); err != nil {
			err = fmt.Errorf("%w\n%s", err, out)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "build the program:", err)
		os.Exit(1)
	}
	// If this process ignores these signals (under nohup, or in the background of a script), its
	// children would also ignore them.
	for _, s := range []os.Signal{syscall.SIGHUP, syscall.SIGINT} {
		if signal.Ignored(s) {
			signal.Notify(make(chan os.Signal, 1), s)
		}
	}
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// An Outcome is the output and the exit code of a command.
type Outcome struct {
	Stdout, Stderr string
	Code           int
}

func (o Outcome) String() string {
	return fmt.Sprintf("exit code %d\n--- stdout\n%s--- stderr\n%s", o.Code, o.Stdout, o.Stderr)
}

// Finish runs cmd until it exits, with any exit code.
func Finish(t *testing.T, cmd *exec.Cmd) Outcome {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("%v: %v", cmd.Args, err)
	}
	return Outcome{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
}

// Processes returns the IDs of the running processes whose command line contains a text.
func Processes(t *testing.T, text string) (pids []string) {
	t.Helper()
	found, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range found {
		line, err := os.ReadFile(f) // empty for a dead process
		if err == nil && strings.Contains(strings.ReplaceAll(string(line), "\x00", " "), text) {
			pids = append(pids, filepath.Base(filepath.Dir(f)))
		}
	}
	return pids
}

// WaitUntil waits until ready returns true. After 3 minutes it fails the test.
func WaitUntil(t *testing.T, what string, ready func() bool) {
	t.Helper()
	for end := time.Now().Add(3 * time.Minute); !ready(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("timeout waiting for %s", what)
		}
	}
}

// NeedRoot skips a test that needs root. In CI it fails the test.
func NeedRoot(t *testing.T, why string) {
	t.Helper()
	if os.Getuid() == 0 {
		return
	}
	if os.Getenv("CI") != "" {
		t.Fatal("CI must run as root")
	}
	t.Skip(why + " needs root")
}
