package tests

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/ddpbatch/ddpbatch/tests/program"
)

// midway launches a job and returns its process when started reports true, with its ranks stopped.
// The output goes to a file in home. resume lets the ranks continue.
func midway(t *testing.T, home, run string, started func() bool) (cmd *exec.Cmd, output string, resume func()) {
	t.Helper()
	output = filepath.Join(home, "output")
	out, err := os.Create(output)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	cmd = exec.CommandContext(t.Context(), binary, "launch", "job.toml", "-n", "2")
	cmd.Dir, cmd.Stdout, cmd.Stderr = home, out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	waitUntil(t, "the first steps", started)
	var held []int
	for _, p := range processesWith(t, "run --run-dir "+run) {
		if pid, err := strconv.Atoi(p); err == nil && syscall.Kill(pid, syscall.SIGSTOP) == nil {
			held = append(held, pid)
		}
	}
	return cmd, output, func() {
		for _, pid := range held {
			_ = syscall.Kill(pid, syscall.SIGCONT)
		}
	}
}

// writeLong writes a job file for a long run, with additional keys of [train] and
// [checkpoint].
func writeLong(t *testing.T, home, train, checkpoint string) {
	t.Helper()
	spec := strings.Replace(small, "epochs = 3\n", "epochs = 100\n"+train, 1) + "[checkpoint]\nevery = \"10 epochs\"\n" + checkpoint
	if err := os.WriteFile(filepath.Join(home, "job.toml"), []byte(spec), 0o600); err != nil {
		t.Fatal(err)
	}
}

func contents(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func mustNotContain(t *testing.T, text string, words ...string) {
	t.Helper()
	for _, word := range words {
		if strings.Contains(text, word) {
			t.Errorf("%q is in:\n%s", word, text)
		}
	}
}

func mustBeGone(t *testing.T, path string) {
	t.Helper()
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s is there again (%v)", path, err)
	}
}

// TestRunDirectoryIsMovedDuringTraining moves the run directory during training. It checks that
// training stops at the next save and leaves nothing at the old path. After the directory is moved
// back, the run resumes, and its weights are equal to those of an undisturbed run.
func TestRunDirectoryIsMovedDuringTraining(t *testing.T) {
	undisturbed, whole := smallRun(t)
	writeLong(t, undisturbed, "", "")
	if o := here(t, undisturbed, "launch", "job.toml", "-n", "2"); o.code != 0 {
		t.Fatal(o)
	}
	want := weights(t, whole)
	for _, tt := range []struct{ name, train, checkpoint string }{
		{"saves in the foreground", "", ""},
		{"saves in the background", "", "async = true\n"},
		{"failed saves are tolerated", "", "on_error = \"continue\"\n"},
		{"every rank writes its part", "strategy = \"zero1\"\n", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			home, run := smallRun(t)
			writeLong(t, home, tt.train, tt.checkpoint)
			cmd, output, resume := midway(t, home, run, func() bool { return len(figures(t, run)) > 0 })
			moved := filepath.Join(home, "moved")
			if err := os.Rename(run, moved); err != nil {
				t.Fatal(err)
			}
			resume()
			if _ = cmd.Wait(); cmd.ProcessState.ExitCode() != 1 {
				t.Errorf("launch ended with %v", cmd.ProcessState)
			}
			mustBeGone(t, run)
			mustContain(t, contents(t, output), "was moved to", "hint: move it back")
			mustContain(t, contents(t, filepath.Join(moved, "failure.json")), "was moved to")
			if o := here(t, home, "status", "moved", "--json"); o.code != 0 || !strings.Contains(o.stdout, `"failed"`) {
				t.Errorf("status of the moved run: %v", o)
			}
			if err := os.Rename(moved, run); err != nil {
				t.Fatal(err)
			}
			o := here(t, home, "launch", "job.toml", "-n", "2")
			if o.code != 0 {
				t.Fatal(o)
			}
			mustContain(t, o.stdout, "resuming after step")
			if got := weights(t, run); got != want {
				t.Errorf("other weights:\n%s\n%s", got, want)
			}
		})
	}
}

// TestRunDirectoryIsDeletedDuringTraining deletes or replaces the run directory during training. It
// checks that training stops at the next save and writes nothing at the old path.
func TestRunDirectoryIsDeletedDuringTraining(t *testing.T) {
	for _, tt := range []struct {
		name    string
		replace bool
	}{{"deleted", false}, {"replaced", true}} {
		t.Run(tt.name, func(t *testing.T) {
			home, run := smallRun(t)
			writeLong(t, home, "", "")
			cmd, output, resume := midway(t, home, run, func() bool { return len(figures(t, run)) > 0 })
			// The launcher is not suspended, and may create a file at the same time.
			waitUntil(t, "the removal of the run directory", func() bool { return os.RemoveAll(run) == nil })
			if tt.replace {
				if err := os.Mkdir(run, 0o700); err != nil {
					t.Fatal(err)
				}
			}
			resume()
			if _ = cmd.Wait(); cmd.ProcessState.ExitCode() != 1 {
				t.Errorf("launch ended with %v", cmd.ProcessState)
			}
			mustContain(t, contents(t, output), "was deleted while the run was in progress", "hint: start the job again")
			mustNotContain(t, contents(t, output), "moved back", "openat", "record an attempt") // no warning for each file
			if !tt.replace {
				mustBeGone(t, run)
			} else if found, err := os.ReadDir(run); err != nil || len(found) > 0 {
				t.Errorf("the new directory holds %v (%v)", found, err)
			}
		})
	}
}

// TestRunDirectoryIsMovedDuringAProgram moves the run directory during a user's program. The
// program may write elsewhere, so it runs to its end, and ddpbatch returns its exit code. The
// launcher reports the move, records the end of the attempt in the moved directory, and creates
// nothing at the old path.
func TestRunDirectoryIsMovedDuringAProgram(t *testing.T) {
	home := t.TempDir()
	run, moved := filepath.Join(home, "runs", "own"), filepath.Join(home, "moved")
	spec := "name = \"own\"\n[command]\nargv = [\"/bin/sh\", \"-c\", \"touch began; until test -e done; do sleep 0.1; done\"]\n"
	if err := os.WriteFile(filepath.Join(home, "job.toml"), []byte(spec), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd, output, resume := midway(t, home, run, func() bool {
		_, err := os.Stat(filepath.Join(home, "began"))
		return err == nil
	})
	resume()
	if err := os.Rename(run, moved); err != nil {
		t.Fatal(err)
	}
	waitForText(t, output, "warning: run directory")
	if err := os.WriteFile(filepath.Join(home, "done"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("launch: %v\n%s", err, contents(t, output))
	}
	mustBeGone(t, run)
	mustContain(t, contents(t, output), "was moved to", "the program continues", "hint: move it back")
	mustNotContain(t, contents(t, output), "resumes", "start the job again") // the run has finished
	mustContain(t, contents(t, filepath.Join(moved, "attempts.jsonl")), `"event":"end"`)
	mustContain(t, contents(t, filepath.Join(moved, "ended.json")), `"exit":0`)
	program.WaitUntil(t, "no process to be left", func() bool { return len(processesWith(t, home)) == 0 })
}
