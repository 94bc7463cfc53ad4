package slurm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// A fakeSlurm is a client whose PATH contains only shell scripts that replace Slurm's
// programs. The scripts find their directory in $FAKE.
type fakeSlurm struct {
	Client
	dir string
}

// newFakeSlurm creates the scripts. programs maps their names to their commands.
func newFakeSlurm(t *testing.T, programs map[string]string) fakeSlurm {
	t.Helper()
	dir := t.TempDir()
	for name, body := range programs {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+body+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return fakeSlurm{Client{Environ: []string{"PATH=" + dir, "FAKE=" + dir}}, dir}
}

// Shell commands for scripts.
const (
	record         = `for a in "$0" "$@"; do echo "${a##*/}"; done >>"$FAKE/argv"; echo >>"$FAKE/argv"; ` // records the arguments
	unknownID      = `echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1`
	noAccounting   = `echo 'Slurm accounting storage is disabled' >&2; exit 1`
	controllerDown = `echo 'slurm_load_jobs error: Unable to contact slurm controller (connect failure)' >&2; exit 1`
	mustNotRun     = `echo 'must not be called' >&2; exit 99`
)

// show returns a shell command that prints s.
func show(s string) string {
	return "/bin/cat <<'EOF'\n" + s + "EOF\n"
}

// calls returns the recorded command lines.
func (f fakeSlurm) calls(t *testing.T) [][]string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(f.dir, "argv"))
	if err != nil {
		t.Fatal(err)
	}
	var calls [][]string
	for call := range strings.SplitSeq(strings.TrimSuffix(string(data), "\n\n"), "\n\n") {
		calls = append(calls, strings.Split(call, "\n"))
	}
	return calls
}

// isRunning reports whether a process exists and is not a zombie.
func isRunning(pid string) bool {
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	return err == nil && !strings.Contains(string(stat), ") Z ")
}

// TestMissingProgram checks that only executable files in absolute directories of PATH are run,
// and that the error has a hint.
func TestMissingProgram(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	for _, dir := range []string{"sbatch", "bin"} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile("bin/sbatch", []byte("#!/bin/sh\necho 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("bin/squeue", []byte("#!/bin/sh\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, path := range map[string]string{
		"no PATH":             "",
		"missing directory":   "PATH=/nonexistent",
		"directory as name":   "PATH=" + dir,
		"not executable":      "PATH=" + dir + "/bin",
		"relative PATH entry": "PATH=:.:bin",
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Client{Environ: []string{path}}.Submit(t.Context(), SubmitRequest{Script: "/job"})
			var failed *CommandError
			if !errors.As(err, &failed) || !errors.Is(err, exec.ErrNotFound) {
				t.Fatalf("got %v, want a *CommandError of exec.ErrNotFound", err)
			}
			if !strings.Contains(err.Error(), "sbatch") || !strings.Contains(failed.Hint(), "module load slurm") {
				t.Errorf("got %q with hint %q", err, failed.Hint())
			}
		})
	}
	if _, err := (Client{Environ: []string{"PATH=bin"}}).State(t.Context(), "1"); !errors.Is(err, exec.ErrNotFound) {
		t.Errorf("relative PATH entry: got %v, want exec.ErrNotFound", err)
	}
}

// TestOutputIsLimited checks that a program that prints too much does not exhaust the memory, that
// its error is still recognized, and that a part of its output is not used.
func TestOutputIsLimited(t *testing.T) {
	fake := newFakeSlurm(t, map[string]string{
		"scancel": `i=0; while [ $i -lt 20000 ]; do echo "scancel: error: line $i"; i=$((i+1)); done >&2; exit 1`,
	})
	err := fake.Cancel(t.Context(), "12")
	var failed *CommandError
	if !errors.As(err, &failed) {
		t.Fatalf("got %v, want a *CommandError", err)
	}
	if len(failed.Stderr) != maxStderr || !strings.HasPrefix(failed.Stderr, "scancel: error: line 0\nscancel: error: line 1\n") {
		t.Errorf("got %d bytes of stderr, want the first %d", len(failed.Stderr), maxStderr)
	}
	fake = newFakeSlurm(t, map[string]string{"squeue": fmt.Sprintf(`printf '%%%ds\n' x; echo '12|12|N/A|RUNNING|n1|0:05|s|e|0|0|None'`, maxStdout)})
	if got, err := fake.State(t.Context(), "12"); !errors.As(err, &failed) || !strings.Contains(err.Error(), "more than 64 MiB") {
		t.Errorf("too much output: got %+v, %v, want a *CommandError", got, err)
	}
}

// TestCommandErrorText checks that the text of an error has the cause and the program's output
// without control characters.
func TestCommandErrorText(t *testing.T) {
	for _, tt := range []struct {
		name string
		err  CommandError
		want []string // parts of the text
	}{
		{name: "failed", err: CommandError{Err: errors.New("exit status 1"), Stderr: "error: a\n\n  error: b\n"}, want: []string{"exit status 1", "error: a; error: b"}},
		{name: "no message", err: CommandError{Err: errors.New("exit status 1")}, want: []string{"exit status 1"}},
		{name: "control characters", err: CommandError{Err: errors.New("x"), Stderr: "\x1b[31merror\x1b[0m\tin\r\nred\u200b"}, want: []string{"[31merror[0m in; red"}},
		{name: "timeout", err: CommandError{Err: context.DeadlineExceeded, After: 3 * time.Second, Stderr: "Socket timed out"}, want: []string{"3s", "Socket timed out"}},
		{name: "canceled", err: CommandError{Err: context.Canceled, Stderr: "interrupted"}, want: []string{"canceled"}},
	} {
		tt.err.Argv = []string{"sbatch", "--parsable"}
		text := tt.err.Error()
		if !strings.HasPrefix(text, "sbatch") || strings.ContainsAny(text, "\n\r\x1b\u200b") {
			t.Errorf("%s: got %q", tt.name, text)
		}
		for _, want := range tt.want {
			if !strings.Contains(text, want) {
				t.Errorf("%s: got %q, want %q in it", tt.name, text, want)
			}
		}
	}
}

// TestScrub checks which variables of a job are removed from the environment of Slurm's programs.
func TestScrub(t *testing.T) {
	env := []string{
		"HOME=/home/u",
		"SLURM_CONF=/etc/slurm/slurm.conf",
		"SLURM_STEP_NODELIST=n1",
		"SLURM_CONF_SERVER=ctl",
		"SLURMD_NODENAME=n1",
		"SBATCH_PARTITION=high",
		"SRUN_CPUS_PER_TASK=1",
		"SRUNNER=kept",
		"PMI_RANK=0",
		"PMI2_FD=3",
		"PMIX_NAMESPACE=x",
		"PMIEPATH=kept",
		"SQUEUE_FORMAT=kept",
		"EMPTY=",
		"SLURM_TOKEN=secret=1",
		"HOME=/again",
	}
	kept, dropped := Scrub(slices.Clone(env))
	wantKept := []string{
		"HOME=/home/u", "SLURM_CONF=/etc/slurm/slurm.conf", "SRUNNER=kept", "PMIEPATH=kept",
		"SQUEUE_FORMAT=kept", "EMPTY=", "HOME=/again",
	}
	wantDropped := []string{
		"SLURM_STEP_NODELIST", "SLURM_CONF_SERVER", "SLURMD_NODENAME", "SBATCH_PARTITION", "SRUN_CPUS_PER_TASK", "PMI_RANK", "PMI2_FD",
		"PMIX_NAMESPACE", "SLURM_TOKEN",
	}
	if !slices.Equal(kept, wantKept) {
		t.Errorf("got kept %q, want %q", kept, wantKept)
	}
	if !slices.Equal(dropped, wantDropped) {
		t.Errorf("got dropped %q, want %q", dropped, wantDropped)
	}
}
