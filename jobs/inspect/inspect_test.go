package inspect

import (
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ddpbatch/ddpbatch/jobs/process"
)

// TestFind starts processes with and without the variables of a rank.
func TestFind(t *testing.T) {
	start := func(env ...string) int {
		t.Helper()
		cmd := exec.Command("sleep", "600")
		cmd.Env = append(os.Environ(), env...)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
		return cmd.Process.Pid
	}
	const run = process.RunVariable + "=find-test"
	want := start(run, process.RankVariable+"=3", "LOCAL_RANK=1", "SECRET=x")
	start(run, process.RankVariable+"=2", process.NodeVariable+"=other")
	start(run, process.RankVariable+"=x")
	start(run)
	start(process.RunVariable+"=another", process.RankVariable+"=1")
	start(run, process.RankVariable+"=4", process.RendezvousVariable+"=127.0.0.1:1", "CUDA_VISIBLE_DEVICES=5")
	ranks, err := Find("find-test", "here")
	if err != nil {
		t.Fatal(err)
	}
	if len(ranks) != 1 || ranks[0].PID != want || ranks[0].Rank != 3 || ranks[0].Command != "sleep 600" {
		t.Fatalf("got %+v, want rank 3 with process %d", ranks, want)
	}
	if ranks[0].Host != "here" {
		t.Errorf("got host %q, want the name of the Slurm node", ranks[0].Host)
	}
	if v := map[string]string{"RANK": "3", "LOCAL_RANK": "1"}; !maps.Equal(ranks[0].Variables, v) {
		t.Errorf("got variables %v, want %v", ranks[0].Variables, v)
	}
}

// TestFindPython checks which process of a rank counts.
func TestFindPython(t *testing.T) {
	process := func(pid int, command string) Rank { return Rank{PID: pid, Command: command} }
	for _, tt := range []struct {
		name     string
		first    Rank
		children map[int][]Rank
		want     int
	}{
		{"python with workers", process(1, "/usr/bin/python3 train.py"), map[int][]Rank{1: {process(2, "python3 worker.py")}}, 1},
		{"shell", process(1, "/bin/bash run.sh"), map[int][]Rank{1: {process(2, "sleep 5"), process(3, "python3.11 train.py")}, 3: {process(4, "python3.11 train.py")}}, 3},
		{"two wrappers", process(1, "bash run.sh"), map[int][]Rank{1: {process(2, "numactl -N 0 python train.py")}, 2: {process(3, "python train.py")}}, 3},
		{"shell with two", process(1, "bash run.sh"), map[int][]Rank{1: {process(2, "python a.py"), process(3, "python b.py")}}, 1},
		{"no python", process(1, "bash run.sh"), map[int][]Rank{1: {process(2, "./a.out")}}, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := findPython(tt.first, tt.children); got.PID != tt.want {
				t.Errorf("got process %d, want %d", got.PID, tt.want)
			}
		})
	}
}

// TestKernelState stops a process and checks that its state has the signal.
func TestKernelState(t *testing.T) {
	cmd := exec.Command("sleep", "600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	got := ""
	waitUntil(t, func() bool { got = kernelState(cmd.Process.Pid); return strings.HasPrefix(got, stoppedBy) })
	if got != "stopped by SIGSTOP" && got != "stopped by a signal" { // Linux before 5.19
		t.Errorf("got %q", got)
	}
}

// waitUntil waits until a condition is met.
func waitUntil(t *testing.T, met func() bool) {
	t.Helper()
	for end := time.Now().Add(5 * time.Minute); !met(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("timeout")
		}
	}
}

// TestFindPySpyIgnoresProgramOfRoot checks that root does not run a program from the PATH of a
// process. A setuid program has the PATH of another user.
func TestFindPySpyIgnoresProgramOfRoot(t *testing.T) {
	install := func() (env []string, path string) {
		t.Helper()
		dir := t.TempDir()
		path = filepath.Join(dir, "py-spy")
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		return []string{"PATH=" + dir}, path
	}
	program, theirs := install()
	env, own := install()
	empty := []string{"PATH=" + t.TempDir()}
	for _, tt := range []struct {
		name string
		env  []string
		uid  int
		want string // empty for an error
	}{
		{"user", env, 1000, theirs},
		{"root", env, 0, own},
		{"root without py-spy", empty, 0, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := findPySpy(program, tt.env, tt.uid)
			if got != tt.want || (err == nil) != (tt.want != "") {
				t.Errorf("got %q, %v, want %q", got, err, tt.want)
			}
		})
	}
}

// TestSharesFiles checks that a process in another mount namespace, such as a container, is recognized.
// Its PATH names other files than the same path here.
func TestSharesFiles(t *testing.T) {
	for _, tt := range []struct {
		name  string
		flags uintptr
		want  bool
	}{
		{name: "same namespace", want: true},
		{name: "other namespace", flags: unix.CLONE_NEWNS | unix.CLONE_NEWUSER},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), "sleep", "600")
			cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: tt.flags}
			err := cmd.Start()
			if errors.Is(err, syscall.EPERM) && os.Getenv("CI") == "" {
				t.Skipf("namespaces are not permitted: %v", err)
			}
			if err != nil {
				t.Fatal(err)
			}
			defer func() { cmd.Process.Kill(); cmd.Wait() }()
			if got := sharesFiles(cmd.Process.Pid); got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

// TestDescribeState checks that a process that starts another one is not said to wait for a device.
func TestDescribeState(t *testing.T) {
	for _, tt := range []struct {
		letter         byte
		function, want string
	}{
		{'R', "0", "running"},
		{'S', "", "sleeping"},
		{'S', "do_wait", "sleeping in the kernel function do_wait"},
		{'S', "kernel_clone", "sleeping in the kernel function kernel_clone"},
		{'D', "nfs_wait_bit", "waiting for a device or a file system in the kernel function nfs_wait_bit"},
		{'D', "kernel_clone", "waiting until a new process has started its program"},
		{'I', "0", "state I"},
	} {
		if got := describeState(tt.letter, tt.function); got != tt.want {
			t.Errorf("%c, %q: got %q, want %q", tt.letter, tt.function, got, tt.want)
		}
	}
}
