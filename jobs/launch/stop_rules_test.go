package launch

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ddpbatch/ddpbatch/jobs"
)

// TestStopSignalOfTheJob checks that each signal in command.stop_signal reaches the process that
// handles it, alone, below a shell, and below a launcher such as torchrun, and that
// command.stop_codes marks the run as stopped.
func TestStopSignalOfTheJob(t *testing.T) {
	for _, name := range []string{"USR1", "USR2", "TERM", "INT", "HUP"} {
		for _, tt := range []struct{ started, prefix, suffix string }{
			{"plain", "exec ", ""},
			{"shell", "", "; code=$?; exit $code"},
			{"launcher", "TORCHELASTIC_RUN_ID=x ", "; exit 1"},
		} {
			t.Run(name+" "+tt.started, func(t *testing.T) {
				if number := unix.SignalNum("SIG" + name); signal.Ignored(number) {
					// The program would ignore it as well, and a shell could not trap it.
					signal.Notify(make(chan os.Signal, 1), number)
				}
				ready := filepath.Join(t.TempDir(), "ready")
				worker := fmt.Sprintf(`sh -c 'trap "echo got %s; exit 42" %s; touch %s; while :; do sleep 0.1; done'`, name, name, ready)
				result, said, err := launched(t, 1, "program",
					fmt.Sprintf("[command]\nstop_signal = %q\nstop_codes = [42]\nargv = [\"/bin/sh\", \"-c\", %q]\n", name, tt.prefix+worker+tt.suffix), stopOnceReady(ready))
				// The launcher ends with its own code. After SIGINT, dash ends by that signal.
				want := []int{exitStopped}
				if name == "INT" && tt.started == "shell" {
					want = append(want, 128+int(syscall.SIGINT))
				}
				if err != nil || result.Failure != nil || !slices.Contains(want, result.Exit) || !result.Stopped || result.StopUnhandled {
					t.Errorf("got %+v, %v, want exit code %d of a stopped run\n%s", result, err, want, said)
				}
				if result.ReportedSave != (result.Exit == exitStopped) || strings.Contains(said, "stopped as requested: the exit code of the program means that it saved") != result.ReportedSave {
					t.Errorf("the save is reported as %v:\n%s", result.ReportedSave, said)
				}
				if n := strings.Count(said, "got "+name); n != 1 {
					t.Errorf("the program received the signal %d times, want 1\n%s", n, said)
				}
			})
		}
	}
}

// TestStopGrace checks that a program that ignores the stop signal is killed with its workers,
// even outside its process group, and that the error names the key.
func TestStopGrace(t *testing.T) {
	dir := t.TempDir()
	script := `trap '' USR1; setsid sh -c 'echo $$ > ` + dir + `/pid; mv ` + dir + `/pid ` + dir + `/ready; sleep 600' & while :; do sleep 0.1; done`
	result, said, err := launched(t, 1, "program",
		fmt.Sprintf("[command]\nstop_grace = \"1ms\"\nargv = [\"/bin/sh\", \"-c\", %q]\n", script), stopOnceReady(dir+"/ready"))
	if err != nil || result.Failure == nil || result.Exit != exitLost || !strings.Contains(result.Failure.Reason, "sh did not end within 1ms after SIGUSR1, and was killed") {
		t.Fatalf("got %+v, %v\n%s", result, err, said)
	}
	text, err := os.ReadFile(dir + "/ready")
	if err != nil {
		t.Fatal(err)
	}
	var pid int
	fmt.Sscan(string(text), &pid)
	if worker, orphans := findProcesses(pid, pid); worker != nil && !worker.Ended {
		t.Errorf("the worker outlived its program: %+v, %v", worker.Stat, orphans)
	}
}

// TestKillProgramOutsideGroup checks that a program that has left its process group is killed.
func TestKillProgramOutsideGroup(t *testing.T) {
	group, release, err := newProcessGroup()
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	ready := filepath.Join(t.TempDir(), "ready")
	p := &userProgram{cmd: exec.CommandContext(t.Context(), "setsid", "sh", "-c", "trap '' TERM; touch "+ready+"; exec sleep 600"), group: group, ended: make(chan struct{})}
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pgid: group}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for _, err := os.Stat(ready); err != nil; _, err = os.Stat(ready) {
		time.Sleep(5 * time.Millisecond)
	}
	p.kill()
	_ = p.cmd.Wait()
	close(p.ended)
	if status := p.cmd.ProcessState.Sys().(syscall.WaitStatus); status.Signal() != syscall.SIGKILL {
		t.Errorf("got %v, want SIGKILL", status)
	}
}

// TestKillProcessesChecksParent checks that another process with the PID of a program that has ended is
// not killed.
func TestKillProcessesChecksParent(t *testing.T) {
	group, release, err := newProcessGroup()
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	cmd := exec.CommandContext(t.Context(), "sh", "-c", "sleep 600 & echo $!; wait $!; echo status $?")
	out, err := cmd.StdoutPipe()
	if err := errors.Join(err, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	lines.Scan()
	pid, err := strconv.Atoi(lines.Text())
	if err != nil {
		t.Fatal(err)
	}
	killProcesses(pid, group)
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	lines.Scan()
	if want := fmt.Sprintf("status %d", 128+int(syscall.SIGTERM)); lines.Text() != want {
		t.Errorf("got %q, want %q", lines.Text(), want)
	}
	_ = cmd.Wait()
}

// TestStopCodes checks which exit codes mean that a program has stopped on request.
func TestStopCodes(t *testing.T) {
	plain := stopCodesOf(&jobs.Job{Command: &jobs.Command{}})
	set := stopCodesOf(&jobs.Job{Command: &jobs.Command{StopSignal: "INT", StopCodes: []int{42}}})
	for _, tt := range []struct {
		name       string
		code       int
		plain, set bool
	}{
		{"complete", 0, true, true},
		{"stopped", exitStopped, true, true},
		{"SIGUSR1", 128 + int(syscall.SIGUSR1), true, true},
		{"SIGTERM", 128 + int(syscall.SIGTERM), true, true},
		{"stop_signal", 128 + int(syscall.SIGINT), false, true},
		{"stop_codes", 42, false, true},
		{"failure", 1, false, false},
		{"SIGKILL", 128 + int(syscall.SIGKILL), false, false},
	} {
		if got := plain.has(tt.code); got != tt.plain {
			t.Errorf("%s, without keys: got %v, want %v", tt.name, got, tt.plain)
		}
		if got := set.has(tt.code); got != tt.set {
			t.Errorf("%s, with keys: got %v, want %v", tt.name, got, tt.set)
		}
	}
	if got := set.normalize(42); got != exitStopped {
		t.Errorf("got exit code %d for a code in stop_codes, want %d", got, exitStopped)
	}
}
