package inspect

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

func TestInnermost(t *testing.T) {
	for _, tt := range []struct{ name, dump, want string }{
		{"main thread is not the first", "Process 7: python train.py\nPython v3.11.2\n\nThread 8 (idle): \"Loader\"\n    get (queue.py:3)\nThread 7 (active): \"MainThread\"\n    all_reduce (torch.py:10)\n    main (train.py:1)\n", "all_reduce (torch.py:10)"},
		{"no main thread", "Thread 0x7f (idle)\n    wait (threading.py:3)\n    run (x.py:1)\nThread 0x80 (idle)\n    get (queue.py:3)\n", "wait (threading.py:3)"},
		{"no threads", "Process 7: python train.py\n", ""},
		{"empty", "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := innermost(tt.dump); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

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
	const run = runVariable + "=find-test"
	want := start(run, rankVariable+"=3")
	start(run, rankVariable+"=2", nodeVariable+"=other")
	start(run, rankVariable+"=x")
	start(run)
	start(runVariable+"=another", rankVariable+"=1")
	start(run, rankVariable+"=4", launcherVariable+"=127.0.0.1:1")
	ranks, err := Find("find-test", "here")
	if err != nil {
		t.Fatal(err)
	}
	if len(ranks) != 1 || ranks[0].PID != want || ranks[0].Rank != 3 || ranks[0].Command != "sleep 600" {
		t.Errorf("got %+v, want rank 3 with process %d", ranks, want)
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
