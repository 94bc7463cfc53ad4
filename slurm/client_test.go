package slurm

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// fakeSlurm is a folder of stand-ins for Slurm's programs, each a shell script,
// and a client that finds nothing else.
type fakeSlurm struct {
	Client
	dir string
}

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

// record is a line for a fake program that notes its arguments, one per line.
const record = `for a in "$0" "$@"; do echo "${a##*/}"; done >>"$FAKE/argv"; echo >>"$FAKE/argv"; `

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

// lines returns what fake programs have written to a file.
func (f fakeSlurm) lines(t *testing.T, file string) []string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(f.dir, file))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")
}

func TestSubmit(t *testing.T) {
	tests := []struct {
		name, sbatch   string
		id, err, hints string
	}{
		{"an id", `echo 123`, "123", "", ""},
		{"with a cluster", `echo '123;west'`, "123", "", ""},
		{"banner and warning first", `echo 'Welcome to 2026'; echo 7; echo 'sbatch: warning: x' >&2; echo 123`, "123", "", ""},
		{"no line break", `printf 123`, "123", "", ""},
		{"nothing printed", `exit 0`, "", "sbatch succeeded but printed no job id", "squeue --me"},
		{"prose", `echo 'Submitted batch job 123'`, "", `printed no job id: "Submitted batch job 123\n"`, "squeue --me"},
		{"refused", `echo 'sbatch: error: invalid partition specified: gpux' >&2; echo 'sbatch: error: Batch job submission failed' >&2; exit 1`,
			"", "sbatch failed (exit status 1): sbatch: error: invalid partition specified: gpux; sbatch: error: Batch job submission failed", "[slurm] partition"},
		{"refused after an id", `echo 123; exit 1`, "", "sbatch failed (exit status 1)", ""},
		{"colours in the message", `printf 'sbatch: \033[31merror\033[0m\r\n' >&2; exit 1`, "", "sbatch: [31merror[0m", ""},
		{"killed", `kill -9 $$`, "", "sbatch failed (signal: killed)", ""},
		{"child left behind", `/bin/sleep 30 & echo 123`, "123", "", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			fake := newFakeSlurm(t, map[string]string{"sbatch": tt.sbatch})
			id, err := fake.Submit(t.Context(), SubmitRequest{Script: "/run/job.sbatch"})
			if id != tt.id {
				t.Errorf("id %q, want %q", id, tt.id)
			}
			if (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Fatalf("error %v, want %q", err, tt.err)
			}
			if err != nil && !strings.Contains(err.Error(), `submitting "/run/job.sbatch"`) {
				t.Errorf("error %v does not say what failed", err)
			}
			if hint := hintOf(err); !strings.Contains(hint, tt.hints) || (hint == "") != (tt.hints == "") {
				t.Errorf("hint %q, want %q", hint, tt.hints)
			}
		})
	}
}

// What sbatch gets: the arguments as they are, nothing to read, the folder, and
// an environment without the caller's step.
func TestSubmitHandsOver(t *testing.T) {
	fake := newFakeSlurm(t, map[string]string{
		"sbatch": record + `/usr/bin/env >"$FAKE/env"; /bin/readlink /proc/self/fd/0 >"$FAKE/stdin"; pwd >"$FAKE/pwd"; echo 1`,
	})
	fake.Environ = append(fake.Environ, "SLURM_JOB_ID=7", "SBATCH_PARTITION=high", "SLURM_CONF=/etc/slurm.conf", "HF_HOME=/hf")
	dir := t.TempDir()
	_, err := fake.Submit(t.Context(), SubmitRequest{
		Script: filepath.Join(dir, "job $(touch x).sbatch"), Dir: dir, Extra: []string{"--hold"},
		Comment: "a b; c", Dependencies: []Dependency{{AfterOK, []string{"7", "8_3"}}, {AfterAny, []string{"9"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := [][]string{{"sbatch", "--parsable", "--comment=a b; c", "--dependency=afterok:7:8_3,afterany:9", "--hold", "job $(touch x).sbatch"}}
	if got := fake.calls(t); !slices.EqualFunc(got, want, slices.Equal) {
		t.Errorf("called %q, want %q", got, want)
	}
	for file, want := range map[string]string{"stdin": "/dev/null\n", "pwd": dir + "\n"} {
		if got, err := os.ReadFile(filepath.Join(fake.dir, file)); err != nil || string(got) != want {
			t.Errorf("%s is %q, want %q (%v)", file, got, want, err)
		}
	}
	env, err := os.ReadFile(filepath.Join(fake.dir, "env"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"SLURM_JOB_ID=", "SBATCH_PARTITION="} {
		if strings.Contains(string(env), name) {
			t.Errorf("sbatch sees %s", name)
		}
	}
	for _, entry := range []string{"SLURM_CONF=/etc/slurm.conf\n", "HF_HOME=/hf\n"} {
		if !strings.Contains(string(env), entry) {
			t.Errorf("sbatch does not see %s", entry)
		}
	}
}

func TestSubmitRelativeScript(t *testing.T) {
	fake := newFakeSlurm(t, map[string]string{"sbatch": `echo 1`})
	if id, err := fake.Submit(t.Context(), SubmitRequest{Script: "--wrap=id"}); err == nil {
		t.Errorf("got job %s for a script that reads as an option", id)
	}
}

// A program that hangs is stopped with its children when the time is over.
func TestSubmitHangs(t *testing.T) {
	fake := newFakeSlurm(t, map[string]string{
		"sbatch": `echo 'sbatch: error: Socket timed out' >&2; trap '' TERM INT; /bin/sleep 60 & echo $! >"$FAKE/child"; wait`,
	})
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	start := time.Now()
	_, err := fake.Submit(ctx, SubmitRequest{Script: "/run/job.sbatch"})
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("took %s", took)
	}
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "gave no answer within") ||
		!strings.Contains(err.Error(), "Socket timed out") {
		t.Errorf("error %v", err)
	}
	if hint := hintOf(err); !strings.Contains(hint, "squeue --me") {
		t.Errorf("hint %q does not warn of submitting twice", hint)
	}
	child, err := os.ReadFile(filepath.Join(fake.dir, "child"))
	if err != nil {
		t.Fatal(err)
	}
	for running(strings.TrimSpace(string(child))) {
		if time.Since(start) > 10*time.Second {
			t.Fatal("the child of sbatch is still running")
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// running says whether a process exists and is not a zombie.
func running(pid string) bool {
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	return err == nil && !strings.Contains(string(stat), ") Z ")
}

func TestMissingProgram(t *testing.T) {
	holder := t.TempDir()
	t.Chdir(holder)
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
	tests := []struct{ name, path string }{
		{"no PATH", ""},
		{"not there", "PATH=/nonexistent"},
		{"a folder of that name", "PATH=" + holder},
		{"not executable", "PATH=" + holder + "/bin"},
		{"relative PATH", "PATH=:.:bin"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Client{Environ: []string{tt.path}}.Submit(t.Context(), SubmitRequest{Script: "/job"})
			var failed *CommandError
			if !errors.As(err, &failed) || !errors.Is(err, exec.ErrNotFound) {
				t.Fatalf("error %v, want a *CommandError of exec.ErrNotFound", err)
			}
			if !strings.Contains(err.Error(), "sbatch: not found in PATH") || !strings.Contains(failed.Hint(), "module load slurm") {
				t.Errorf("%q, hint %q", err, failed.Hint())
			}
		})
	}
	if _, err := (Client{Environ: []string{"PATH=bin"}}).State(t.Context(), "1"); !errors.Is(err, exec.ErrNotFound) {
		t.Errorf("a relative PATH entry was used: %v", err)
	}
}

// A program that floods us is kept to a limit and still understood.
func TestOutputIsLimited(t *testing.T) {
	fake := newFakeSlurm(t, map[string]string{
		"scancel": `i=0; while [ $i -lt 20000 ]; do echo "scancel: error: line $i"; i=$((i+1)); done >&2; exit 1`,
	})
	err := fake.Cancel(t.Context(), "12")
	var failed *CommandError
	if !errors.As(err, &failed) || len(failed.Stderr) != maxStderr {
		t.Fatalf("kept %d bytes of %v", len(failed.Stderr), failed.Err)
	}
}

func TestCancel(t *testing.T) {
	fake := newFakeSlurm(t, map[string]string{"scancel": record})
	for _, err := range []error{
		fake.Cancel(t.Context(), "12"),
		fake.Cancel(t.Context(), "18_3"),
		fake.CancelStep(t.Context(), "12.0", "USR1"),
		fake.CancelStep(t.Context(), "12.3", ""),
	} {
		if err != nil {
			t.Error(err)
		}
	}
	want := [][]string{
		{"scancel", "--quiet", "12"},
		{"scancel", "--quiet", "18_3"},
		{"scancel", "--quiet", "--signal=USR1", "12.0"},
		{"scancel", "--quiet", "12.3"},
	}
	if got := fake.calls(t); !slices.EqualFunc(got, want, slices.Equal) {
		t.Errorf("called %q, want %q", got, want)
	}
	for name, err := range map[string]error{
		"a user's jobs":    fake.Cancel(t.Context(), "--me"),
		"nothing":          fake.Cancel(t.Context(), ""),
		"an odd element":   fake.Cancel(t.Context(), "18_[1-2]"),
		"a job for a step": fake.CancelStep(t.Context(), "12", "USR1"),
		"an odd step":      fake.CancelStep(t.Context(), "12.batch", "USR1"),
		"an odd signal":    fake.CancelStep(t.Context(), "12.0", "USR1 --me"),
	} {
		if err == nil {
			t.Errorf("%s was cancelled", name)
		}
	}
	if got := fake.calls(t); len(got) != len(want) {
		t.Errorf("scancel was called for a refused request: %q", got)
	}
}

func TestEndTime(t *testing.T) {
	for _, tt := range []struct{ name, end, want, err string }{
		{"known", "2026-11-21T12:02:01", "2026-11-21 12:02:01", ""},
		{"no limit", "N/A", "0001-01-01 00:00:00", ""},
		{"not a time", "soon", "", "reading the end of job 12: "},
	} {
		fake := newFakeSlurm(t, map[string]string{"squeue": show("12|12|N/A|RUNNING|n1|1:05|2026-11-20T10:02:01|" + tt.end + "|0|0|None|a\n")})
		end, err := fake.EndTime(t.Context(), "12")
		if tt.err == "" && (err != nil || end.Format(time.DateTime) != tt.want) || tt.err != "" && (err == nil || !strings.HasPrefix(err.Error(), tt.err)) {
			t.Errorf("%s: %v, %v", tt.name, end, err)
		}
	}
}

func TestCancelUnknownJob(t *testing.T) {
	fake := newFakeSlurm(t, map[string]string{
		"scancel": `echo 'scancel: error: Kill job error on job id 12: Invalid job id specified' >&2; exit 1`,
	})
	err := fake.Cancel(t.Context(), "12")
	if err == nil || !strings.Contains(err.Error(), "cancelling job 12: scancel failed (exit status 1): scancel: error: Kill job error on job id 12: Invalid job id") {
		t.Errorf("error %v", err)
	}
}
