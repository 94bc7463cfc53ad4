package tests

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// longRun starts an endless run with three ranks on this machine, without checkpoints, so that a slow
// disk does not delay steps. It returns when training is in progress, with the process IDs of the
// ranks.
func longRun(t *testing.T, network string) (cmd *exec.Cmd, stderr *strings.Builder, home, run string, pids []int) {
	t.Helper()
	home, run = smallRun(t)
	spec := strings.Replace(small, "epochs = 3", "epochs = 100000", 1) + "[checkpoint]\nevery = \"100000 epochs\"\n[network]\n" + network
	if err := os.WriteFile(filepath.Join(home, "job.toml"), []byte(spec), 0o600); err != nil {
		t.Fatal(err)
	}
	stderr = new(strings.Builder)
	cmd = exec.Command(binary, "launch", "job.toml", "-n", "3")
	cmd.Dir, cmd.Stderr = home, stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_, _ = cmd.Process.Kill(), cmd.Wait()
		if t.Failed() {
			t.Logf("%v: %s", cmd.ProcessState, stderr)
		}
	})
	waitUntil(t, "the first steps", func() bool { return len(figures(t, run)) > 0 })
	for _, r := range []string{"0", "1", "2"} {
		log, err := os.ReadFile(filepath.Join(run, "logs/rank-0000"+r+".jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		var line struct{ PID int }
		first, _, _ := strings.Cut(string(log), "\n")
		if err := json.Unmarshal([]byte(first), &line); err != nil || line.PID == 0 {
			t.Fatalf("log of rank %s begins with %q: %v", r, first, err)
		}
		pids = append(pids, line.PID)
	}
	return cmd, stderr, home, run, pids
}

// TestFrozenRankIsNamed stops a rank with SIGSTOP, which does not close its connections. It checks
// that the attempt ends, that the error names the rank, and that its process is killed.
func TestFrozenRankIsNamed(t *testing.T) {
	cmd, stderr, home, run, pids := longRun(t, "heartbeat_timeout = \"2s\"\n")
	if err := syscall.Kill(pids[1], syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	want := "rank 1 on " + host + " has been silent for 2s at step "
	if cmd.ProcessState.ExitCode() != 4 || !strings.Contains(stderr.String(), want) {
		t.Errorf("%v, want exit code 4 and %q; got\n%s", cmd.ProcessState, want, stderr)
	}
	var failure struct{ First struct{ Rank int } }
	text, err := os.ReadFile(filepath.Join(run, "failure.json"))
	if err == nil {
		err = json.Unmarshal(text, &failure)
	}
	if err != nil || failure.First.Rank != 1 {
		t.Errorf("failure.json: %v\n%s", err, text)
	}
	if left := processesWith(t, home); len(left) > 0 {
		t.Errorf("processes %v are left", left)
	}
}

// TestFrozenRankOfAnOperationIsNamed freezes a rank that a collective detects before the launcher
// does. It checks that the error names the frozen rank and not the rank that detected it.
func TestFrozenRankOfAnOperationIsNamed(t *testing.T) {
	cmd, stderr, _, run, pids := longRun(t, "collective_timeout = \"10s\"\n")
	if err := syscall.Kill(pids[1], syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	frozen := time.Now()
	_ = cmd.Wait()
	if cmd.ProcessState.ExitCode() != 4 || !strings.Contains(stderr.String(), "hangs or is cut off at step ") || !strings.Contains(stderr.String(), "no answer within 10s") {
		t.Errorf("%v, want exit code 4; got\n%s", cmd.ProcessState, stderr)
	}
	var failure struct {
		First struct {
			Rank        int
			State, Host string
		}
		Ranks []struct {
			State string
			Seen  time.Time
		}
	}
	text, err := os.ReadFile(filepath.Join(run, "failure.json"))
	if err == nil {
		err = json.Unmarshal(text, &failure)
	}
	if err != nil || failure.First.Rank != 1 || failure.First.State != "lost" || failure.First.Host == "" || len(failure.Ranks) != 3 {
		t.Fatalf("failure.json: %v\n%s", err, text)
	}
	if seen := failure.Ranks[1].Seen; seen.After(frozen.Add(time.Second)) {
		t.Errorf("rank 1, frozen at %s, was seen at %s\n%s", frozen, seen, text)
	}
}

// TestSuspendedRanksGoOn checks that a run survives a stop of all ranks at the same time, which is
// what Slurm's suspend does.
func TestSuspendedRanksGoOn(t *testing.T) {
	cmd, stderr, _, run, pids := longRun(t, "heartbeat_timeout = \"5s\"\nprogress_timeout = \"5s\"\n")
	for _, s := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGCONT} {
		for _, pid := range pids {
			if err := syscall.Kill(pid, s); err != nil {
				t.Fatal(err)
			}
		}
		if s == syscall.SIGSTOP {
			time.Sleep(8 * time.Second)
		}
	}
	before := len(figures(t, run))
	waitUntil(t, "more steps", func() bool { return len(figures(t, run)) > before+2 })
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if _ = cmd.Wait(); cmd.ProcessState.ExitCode() != 3 {
		t.Errorf("%v: %s", cmd.ProcessState, stderr)
	}
}
