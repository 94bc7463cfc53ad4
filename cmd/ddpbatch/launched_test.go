package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/cmd/ddpbatch/manual"
	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/jobs/launch"
	"github.com/ddpbatch/ddpbatch/jobs/rundir"
	"github.com/ddpbatch/ddpbatch/tests/terminal"
)

// ownProgram writes a job file that runs a shell script on each rank, and returns its
// directory.
func ownProgram(t *testing.T, script string) string {
	t.Helper()
	dir := t.TempDir()
	text := fmt.Sprintf("name = \"own\"\n[command]\nargv = [\"sh\", \"-c\", '''%s''']\n", script)
	if err := os.WriteFile(filepath.Join(dir, "job.toml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestNotifierWithoutWorkingDir checks that a launch ends if its run directory cannot be opened for
// the notifications.
func TestNotifierWithoutWorkingDir(t *testing.T) {
	var notes strings.Builder
	p := &program{Stderr: &notes}
	o := launch.Options{Job: &jobs.Job{Notify: &jobs.Notify{Command: []jobs.Text{"true"}}}, Dir: rundir.Dir{Path: filepath.Join(t.TempDir(), "missing")}}
	m := p.notifier(&o, "7")
	m.end(nil, launch.Result{})
	m.Close()
	if !strings.Contains(notes.String(), "no notifications") {
		t.Errorf("got %q, want a warning", notes.String())
	}
}

// TestVariablesOfRanksAreDocumented checks that the reference says of each variable that a program
// receives from ddpbatch that ddpbatch sets it.
func TestVariablesOfRanksAreDocumented(t *testing.T) {
	uses := map[string]string{}
	for _, g := range manual.Variables {
		for _, v := range g.Variables {
			uses[v.Name] = v.Use
		}
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "job.toml"), []byte("name = \"own\"\n[command]\nargv = [\"env\"]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "ddpbatch", "launch", "job.toml", "-n", "1")
	cmd.Dir, cmd.Env = dir, []string{"PATH=" + os.Getenv("PATH"), "PWD=" + dir}
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	set := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^([A-Za-z_]+)=(.*)$`).FindAllStringSubmatch(string(out), -1) {
		if slices.Contains(cmd.Env, m[0]) {
			continue
		}
		set[m[1]] = true
		if !strings.Contains(uses[m[1]], "set") {
			t.Errorf("%s: the reference says %q, want set", m[0], uses[m[1]])
		}
	}
	for _, name := range []string{"RANK", "MASTER_ADDR", "NCCL_DEBUG", "NCCL_SOCKET_IFNAME"} {
		if !set[name] {
			t.Errorf("the program did not receive %s:\n%s", name, out)
		}
	}
}

// started is a running ddpbatch process and its output.
type started struct {
	*exec.Cmd
	out lockedBuffer
}

type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

func start(t *testing.T, dir string, args ...string) *started {
	t.Helper()
	s := &started{Cmd: exec.CommandContext(t.Context(), "ddpbatch", args...)}
	s.Dir, s.Stdout, s.Stderr = dir, &s.out, &s.out
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	return s
}

// ends waits for the process and checks its exit code.
func (s *started) ends(t *testing.T, code int) {
	t.Helper()
	_ = s.Wait()
	if got := s.ProcessState.ExitCode(); got != code {
		t.Errorf("%s: exit code %d, want %d\n%s", strings.Join(s.Args, " "), got, code, s.out.String())
	}
}

// await waits until holds returns true. It fails the test after five minutes.
func await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(5 * time.Minute); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited five minutes: %s", what)
		}
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// TestCancelLaunch cancels, waits for, and follows a local launch from other processes.
func TestCancelLaunch(t *testing.T) {
	dir := ownProgram(t, `trap "echo rank $RANK saves; exit 3" TERM; echo rank $RANK begins; touch begun-$RANK; while :; do sleep 0.1; done`)
	launch := start(t, dir, "launch", "job.toml", "-n", "2")
	await(t, "both ranks begin", func() bool { return exists(dir+"/begun-0") && exists(dir+"/begun-1") })
	wait, follow := start(t, dir, "wait", "own"), start(t, dir, "logs", "-f", "own")
	await(t, "the log is followed", func() bool { return strings.Contains(follow.out.String(), "rank 1 begins") })
	cancel := start(t, dir, "cancel", "own")
	cancel.ends(t, exitDone)
	if text := cancel.out.String(); !strings.Contains(text, fmt.Sprintf("process %d", launch.Process.Pid)) {
		t.Errorf("cancel does not name process %d: %s", launch.Process.Pid, text)
	}
	launch.ends(t, exitStopped)
	wait.ends(t, exitStopped)
	follow.ends(t, exitDone)
	if text := wait.out.String(); !strings.Contains(text, "run own was stopped before it had finished") {
		t.Errorf("wait: %s", text)
	}
	if text := follow.out.String(); !strings.Contains(text, "rank 0 saves") || !strings.Contains(text, "asking all ranks to save and stop") {
		t.Errorf("what was followed lacks the end: %s", text)
	}
}

// TestCancelLaunchTwice checks that a second cancel kills a program that does not stop.
func TestCancelLaunchTwice(t *testing.T) {
	dir := ownProgram(t, `trap "touch asked" TERM; touch begun; while :; do sleep 0.1; done`)
	launch := start(t, dir, "launch", "job.toml", "-n", "1")
	await(t, "the rank begins", func() bool { return exists(dir + "/begun") })
	start(t, dir, "cancel", "own").ends(t, exitDone)
	await(t, "the program is asked to stop", func() bool { return exists(dir + "/asked") })
	run := rundir.Dir{Path: dir + "/runs/own"}
	await(t, "the launcher tells that it stops", func() bool {
		l, ok := run.ReadLive()
		return ok && l.Phase == rundir.PhaseStopping
	})
	time.Sleep(time.Second) // an earlier second request would repeat the first
	again := start(t, dir, "cancel", "own")
	again.ends(t, exitDone)
	if !strings.Contains(again.out.String(), "immediately") {
		t.Errorf("the second cancel: %s", again.out.String())
	}
	launch.ends(t, exitCanceled)
	start(t, dir, "wait", "own").ends(t, exitCanceled)
}

// TestLauncherIsKilled checks that a program can still print and save after its launcher is
// killed. The log contains the earlier output, and wait returns.
func TestLauncherIsKilled(t *testing.T) {
	dir := ownProgram(t, `trap "echo saving && touch saved; exit 3" TERM; echo begins; touch begun; while :; do sleep 0.1; done`)
	launch := start(t, dir, "launch", "job.toml", "-n", "1")
	await(t, "the rank begins", func() bool { return exists(dir + "/begun") })
	logs, err := rundir.Dir{Path: dir + "/runs/own"}.LaunchLogs()
	if err != nil || len(logs) != 1 {
		t.Fatalf("got logs %v, %v, want one", logs, err)
	}
	await(t, "what it printed is kept", func() bool {
		text, err := os.ReadFile(logs[0].Path)
		return err == nil && strings.Contains(string(text), "begins")
	})
	wait, follow := start(t, dir, "wait", "own"), start(t, dir, "logs", "-f", "own")
	await(t, "the log is followed", func() bool { return strings.Contains(follow.out.String(), "begins") })
	if err := launch.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	wait.ends(t, exitFailed)
	if text := wait.out.String(); !strings.Contains(text, "its launcher was killed") {
		t.Errorf("wait: %s", text)
	}
	follow.ends(t, exitDone)
	await(t, "the program saves", func() bool { return exists(dir + "/saved") })
	_ = launch.Wait()
	status := start(t, dir, "status", "own") // immediately, although live.json is recent
	status.ends(t, exitDone)
	if text := status.out.String(); !strings.Contains(text, "killed: its launcher was killed") || !strings.Contains(text, "ddpbatch logs") {
		t.Errorf("status: %s", text)
	}
	cancel := start(t, dir, "cancel", "own")
	cancel.ends(t, exitDone)
	if text := cancel.out.String(); !strings.Contains(text, "has ended: its launcher was killed") {
		t.Errorf("cancel: %s", text)
	}
	// A new launch succeeds.
	again := start(t, dir, "launch", "job.toml", "-n", "1", "--set", `command.argv=["echo", "once more"]`)
	again.ends(t, exitDone)
	start(t, dir, "wait", "own").ends(t, exitDone)
}

// TestLaunchOfAProgramThatPrintsMuch checks that 400 MB of output without a newline do not
// increase the memory use of the launcher.
func TestLaunchOfAProgramThatPrintsMuch(t *testing.T) {
	const each = 200_000_000
	dir := ownProgram(t, fmt.Sprintf("head -c %d /dev/zero", each))
	launch := exec.CommandContext(t.Context(), "ddpbatch", "launch", "job.toml", "-n", "2")
	launch.Dir = dir
	if err := launch.Run(); err != nil {
		t.Fatal(err)
	}
	logs, err := rundir.Dir{Path: dir + "/runs/own"}.LaunchLogs()
	if err != nil || len(logs) != 1 {
		t.Fatalf("got logs %v, %v, want one", logs, err)
	}
	info, err := os.Stat(logs[0].Path)
	if err != nil || info.Size() < 2*each {
		t.Errorf("the log has %d bytes, %v, want %d", info.Size(), err, 2*each)
	}
	if most := launch.ProcessState.SysUsage().(*syscall.Rusage).Maxrss; most > 120<<10 {
		t.Errorf("it needed %d MiB of memory", most>>10)
	}
}

// TestLaunchLeavesTheTerminalToAProgram checks that a user's program detects a terminal and
// can draw on it.
func TestLaunchLeavesTheTerminalToAProgram(t *testing.T) {
	dir := ownProgram(t, `test -t 1 && test -t 2 && echo a terminal of $(stty size <&2); printf "10%%\r20%%\n" >&2`)
	x := terminal.New(t, 110, 12)
	cmd := onTerminal(t, x, dir, nil, "ddpbatch", "launch", "job.toml", "-n", "1")
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, x.All())
	}
	x.Await("a terminal of 12 110\n20%")
	logs := exec.CommandContext(t.Context(), "ddpbatch", "logs", "own")
	logs.Dir = dir
	if text, err := logs.Output(); err != nil || !strings.HasSuffix(string(text), "a terminal of 12 110\n10%\r20%\n") {
		t.Errorf("the log: %v, %q", err, text)
	}
}

// TestLaunchKeepsTheOrderOfStreams checks that the output of both streams stays in order if
// they go to the same file.
func TestLaunchKeepsTheOrderOfStreams(t *testing.T) {
	dir := ownProgram(t, `for i in 1 2 3 4 5 6 7 8 9; do echo out $i; echo err $i >&2; done`)
	launch := start(t, dir, "launch", "job.toml", "-n", "1") // one pipe for both streams
	launch.ends(t, exitDone)
	var want strings.Builder
	for i := 1; i < 10; i++ {
		fmt.Fprintf(&want, "out %d\nerr %d\n", i, i)
	}
	if text := launch.out.String(); !strings.HasSuffix(text, want.String()) {
		t.Errorf("printed:\n%s", text)
	}
}
