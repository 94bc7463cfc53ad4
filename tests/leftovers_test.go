package tests

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/ddpbatch/ddpbatch/tests/cluster"
)

// TestKilledLauncherLeavesNothing kills the launcher. It checks that no rank, no user program, and
// no worker of a program is left.
func TestKilledLauncherLeavesNothing(t *testing.T) {
	home := t.TempDir()
	mark := fmt.Sprintf("%d.%d", 3000+os.Getpid()%1000, os.Getpid())
	spec := "name = \"left\"\n[slurm]\ntasks_per_node = 2\n[command]\nargv = [\"/bin/sh\", \"-c\", \"sleep " + mark + " & sleep " + mark + "\"]\n"
	if err := os.WriteFile(filepath.Join(home, "job.toml"), []byte(spec), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(binary, "launch", "job.toml")
	cmd.Dir = home
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	waitUntil(t, "two programs with a worker each", func() bool { return len(processesWith(t, "sleep "+mark)) >= 4 })
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	waitUntil(t, "all of them to be gone", func() bool {
		return len(processesWith(t, "sleep "+mark)) == 0 && len(processesWith(t, home)) == 0
	})
}

// TestClosedPipeDoesNotEndTheTraining checks that training continues when the reader of the output
// exits.
func TestClosedPipeDoesNotEndTheTraining(t *testing.T) {
	home, run := smallRun(t)
	cmd := exec.CommandContext(t.Context(), binary, "launch", "job.toml", "-n", "2")
	cmd.Dir = home
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = w, w
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	if _, err := io.ReadFull(r, make([]byte, 10)); err != nil {
		t.Fatal(err)
	}
	r.Close()
	if err := cmd.Wait(); err != nil {
		t.Errorf("launch: %v", err)
	}
	weights(t, run)
}

// TestSignalsToALocalLaunch checks that a closed terminal, like Ctrl-C, makes the run save a
// checkpoint and stop.
func TestSignalsToALocalLaunch(t *testing.T) {
	home, run := smallRun(t)
	for _, s := range []syscall.Signal{syscall.SIGHUP, syscall.SIGINT} {
		long := strings.Replace(small, "epochs = 3", "epochs = 100000", 1)
		if err := os.WriteFile(filepath.Join(home, "job.toml"), []byte(long), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.RemoveAll(run); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(binary, "launch", "job.toml", "-n", "2")
		cmd.Dir = home
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		waitUntil(t, "the first steps", func() bool { return len(figures(t, run)) > 0 })
		if err := cmd.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
		if _ = cmd.Wait(); cmd.ProcessState.ExitCode() != 3 {
			t.Errorf("%v: %v", s, cmd.ProcessState)
		}
		if o := here(t, home, "checkpoint", "verify", run); o.code != 0 {
			t.Errorf("%v: %v", s, o)
		}
	}
}

// TestKilledRankLeavesNoWorkers kills the process of a rank on a node. It checks that its program,
// the program's workers, and the other ranks exit.
func TestKilledRankLeavesNoWorkers(t *testing.T) {
	s := newSite(t, cluster.Options{})
	mark := fmt.Sprintf("%d.%d", 5000+os.Getpid()%1000, os.Getpid())
	s.write("job.toml", fmt.Sprintf(`name = "workers"
[slurm]
nodes = 2
tasks_per_node = 2
time = "00:10:00"
[command]
argv = ["/bin/sh", "-c", "trap '' TERM; sleep %s & sleep %[1]s & wait; wait"]
`, mark))
	id := s.submit("job.toml")
	waitUntil(t, "two workers of each of four programs", func() bool { return len(processesWith(t, "sleep "+mark)) >= 8+4 })
	if o := finish(t, s.OnNode(t.Context(), "n2", "pkill", "-KILL", "--newest", "-f", "ddpbatch run")); o.code != 0 {
		t.Fatal(o)
	}
	s.ends(id, "FAILED")
	if left := processesWith(t, "sleep "+mark); len(left) > 0 {
		t.Errorf("processes %v are left", left)
	}
	mustContain(t, s.log("workers", id), " on n[1-2]: ended with the job", " on n2: lost: its process was killed by SIGKILL")
}
