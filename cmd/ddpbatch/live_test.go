package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/tests/terminal"
)

// onTerminal starts a program on a terminal, as a shell does.
func onTerminal(t *testing.T, x *terminal.Terminal, dir string, environ []string, program string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = dir, x.TTY, x.TTY, x.TTY
	cmd.Env = append(append(os.Environ(), "TERM=xterm", "LC_ALL=C.UTF-8", "NO_COLOR="), environ...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd
}

// endless is a job file with a given number of samples. With a million, it trains until it is
// stopped.
const endless = `name = "long"
[slurm]
tasks_per_node = 2
[train]
epochs = 60
batch = 8
log_every = "1 epoch"
[train.model]
kind = "linear"
[train.data]
kind = "synthetic"
task = "regression"
samples = %d
inputs = 4
outputs = 1
[train.optimizer]
kind = "sgd"
lr = 0.01
[checkpoint]
every = "1000 epochs"
`

// TestInitOnATerminal answers the questions of init. It checks that init repeats the question
// after an invalid answer, and that the job file has the keys that the site requires and omits the
// keys that the site sets.
func TestInitOnATerminal(t *testing.T) {
	dir, x := t.TempDir(), terminal.New(t, 110, 24)
	cmd := onTerminal(t, x, dir, nil, "ddpbatch", "init")
	for _, q := range []struct{ question, answer string }{
		{"Kind of job: ", "script"},
		{`unknown kind "script"`, "command"},
		{"Site profile ", "lumi"},
		{"Billing account (lumi requires one)", "project_1"},
		{"Number of nodes ", "2"},
		{"GPUs per node ", "8"},
	} {
		x.Await(q.question)
		x.Type(q.answer + "\n")
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, x.All())
	}
	text, err := os.ReadFile(filepath.Join(dir, "job.toml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"\nnodes = 2\n", "\ngpus_per_node = 8\n", "\naccount = \"project_1\" ", "\n#cpus_per_task = 7 "} {
		if !strings.Contains(string(text), want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
}

// TestLaunchOnATerminal checks that the view appears below the output, fits the width of the
// terminal, and disappears at the end.
func TestLaunchOnATerminal(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "job.toml"), fmt.Appendf(nil, endless, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	x := terminal.New(t, 110, 12)
	cmd := onTerminal(t, x, dir, []string{"NO_COLOR=1"}, "ddpbatch", "launch", "job.toml")
	x.Await("━")
	x.Await(" training") // the nodes, in the last line
	lines := strings.Split(x.Screen(), "\n")
	if head := lines[len(lines)-3]; !strings.HasPrefix(head, "long  ") || !strings.Contains(head, "%  step ") || !strings.HasSuffix(head, " left") {
		t.Errorf("the line with the bar: %q", head)
	}
	if line := lines[len(lines)-2]; !strings.HasPrefix(line, "loss ") || !strings.Contains(line, " samples/s  communication ") {
		t.Errorf("the line of figures: %q", line)
	}
	if strings.Contains(x.Raw(), "\x1b[3") {
		t.Error("there are colours in spite of NO_COLOR")
	}
	x.Resize(30, 12)
	if err := cmd.Process.Signal(syscall.SIGWINCH); err != nil {
		t.Fatal(err)
	}
	x.Await(" left\nloss") // the first line omits fields that do not fit
	for line := range strings.Lines(x.Screen()) {
		if n := len([]rune(strings.TrimRight(line, "\n"))); n > 30 {
			t.Errorf("%d columns: %q", n, line)
		}
	}
	x.Resize(110, 12)
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	err := cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != exitStopped {
		t.Fatalf("%v, exit code %d\n%s", err, code, x.All())
	}
	fmt.Fprint(x.TTY, "$ ")
	x.Await("start the job again to resume\n$")
	all := x.All()
	for _, text := range []string{"━", " left\nloss", "\nlong  "} {
		if strings.Contains(all, text) {
			t.Errorf("%q of the view is left:\n%s", text, all)
		}
	}
	for _, text := range []string{"training from the start", "asking all ranks to save and stop", "saved step "} {
		if !strings.Contains(all, text) {
			t.Errorf("%q is missing:\n%s", text, all)
		}
	}
}

// TestLaunchPlain checks that there is no view with --plain, on a dumb terminal, or in the
// background.
func TestLaunchPlain(t *testing.T) {
	dir := t.TempDir()
	short := strings.Replace(fmt.Sprintf(endless, 64), "epochs = 60", "epochs = 2", 1)
	if err := os.WriteFile(filepath.Join(dir, "job.toml"), []byte(short), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		environ, args []string
	}{
		"asked for":         {nil, []string{"ddpbatch", "launch", "job.toml", "--plain"}},
		"a poor terminal":   {[]string{"TERM=dumb"}, []string{"ddpbatch", "launch", "job.toml", "--run-dir=dumb"}},
		"in the background": {nil, []string{"sh", "-mc", "ddpbatch launch job.toml --run-dir=behind & wait"}}, // a view would overwrite the prompt
	} {
		x := terminal.New(t, 110, 12)
		cmd := onTerminal(t, x, dir, tt.environ, tt.args[0], tt.args[1:]...)
		if err := cmd.Wait(); err != nil {
			t.Fatalf("%s: %v\n%s", name, err, x.All())
		}
		x.Await("finished: 2 epochs")
		if strings.Contains(x.Raw(), "\x1b") {
			t.Errorf("%s: the terminal is steered: %q", name, x.Raw())
		}
	}
}

// TestTopOnATerminal checks that top updates its table until q, and restores the terminal.
func TestTopOnATerminal(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "job.toml"), fmt.Appendf(nil, endless, 64), 0o600); err != nil {
		t.Fatal(err)
	}
	launch := exec.CommandContext(t.Context(), "ddpbatch", "launch", "job.toml", "--set", "train.epochs=2")
	launch.Dir = dir
	if out, err := launch.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	x := terminal.New(t, 60, 8)
	fmt.Fprint(x.TTY, "$ ddpbatch top\n")
	x.Await("$ ddpbatch top")
	cmd := onTerminal(t, x, dir, nil, "ddpbatch", "top")
	x.Await("  1 done  q leaves\n\nRUN   PHASE  ")
	x.Await("\nlong  done   ")
	x.Type("xq")
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	x.Await("$ ddpbatch top")
}

// TestTopSuspended checks that Control-Z suspends top and restores the shell's screen, and
// that fg resumes top.
func TestTopSuspended(t *testing.T) {
	x := terminal.New(t, 60, 8)
	fmt.Fprint(x.TTY, "before\n")
	cmd := onTerminal(t, x, t.TempDir(), nil, "sh", "-mc", "ddpbatch top; echo; echo the shell; read line; fg")
	x.Await("q leaves")
	x.Type("\x1a")
	x.Await("the shell")
	if got := x.Screen(); !strings.HasPrefix(got, "before") || strings.Contains(got, "q leaves") {
		t.Errorf("the shell shows\n%s", got)
	}
	x.Type("go on\n")
	x.Await("q leaves")
	if got := x.Screen(); strings.Contains(got, "the shell") {
		t.Errorf("the page shows\n%s", got)
	}
	x.Type("q")
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	x.Await("the shell")
}

// TestLogsOnATerminal checks that logs -f shows the job's status below its output.
func TestLogsOnATerminal(t *testing.T) {
	dir := t.TempDir()
	fake := filepath.Join(dir, "slurm")
	if err := os.Mkdir(fake, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "job.toml"), fmt.Appendf(nil, endless, 64), 0o600); err != nil {
		t.Fatal(err)
	}
	put := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	environ := []string{"FAKE_DIR=" + fake}
	submit := exec.CommandContext(t.Context(), "ddpbatch", "submit", "job.toml")
	submit.Dir, submit.Env = dir, append(os.Environ(), environ...)
	if out, err := submit.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	state, log := filepath.Join(fake, "job-101.state"), filepath.Join(dir, "runs/long/slurm-101.out")
	put(state, "PENDING Priority 0:0 2026-11-22T08:00:00\n")
	x := terminal.New(t, 100, 8)
	cmd := onTerminal(t, x, dir, environ, "ddpbatch", "logs", "-f", "long")
	x.Await("long  queued: other jobs come first; expected to start at 2026-11-22T08:00:00")
	put(log, "hello\n")
	x.Await("hello\nlong  queued")
	put(state, "COMPLETED None 0:0\n")
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	select {
	case err := <-done:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(10 * time.Minute):
		t.Fatal("it goes on after the job")
	}
	fmt.Fprint(x.TTY, "$ ") // after all output of logs
	x.Await("$")
	if want := "ddpbatch: job 101 is pending (Priority)\nhello\nddpbatch: job 101 is completed\n$"; x.All() != want {
		t.Errorf("what is left:\n%s\nwant\n%s", x.All(), want)
	}
}
