package tests

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/jobs/inspect"
	"github.com/ddpbatch/ddpbatch/tests/cluster"
)

// TestInspectRunningJob stops a rank of a program, checks that `stacks` finds it, and runs commands
// next to the ranks with `exec`.
func TestInspectRunningJob(t *testing.T) {
	s := newSite(t, cluster.Options{})
	s.write("job.toml", `name = "mine"
[slurm]
nodes = 2
tasks_per_node = 2
time = "00:10:00"
[command]
argv = ["sleep", "900"]
`)
	id := s.submit("job.toml")
	stacks := func() map[int]inspect.Rank {
		t.Helper()
		o := s.ddpbatch("stacks", "--json", "mine")
		ranks := map[int]inspect.Rank{}
		lines := bufio.NewScanner(strings.NewReader(o.stdout))
		for lines.Scan() {
			var r inspect.Rank
			if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
				t.Fatalf("%q: %v", lines.Text(), err)
			}
			if _, twice := ranks[r.Rank]; twice {
				t.Errorf("rank %d appears twice: %s", r.Rank, o.stdout)
			}
			ranks[r.Rank] = r
		}
		return ranks
	}
	var ranks map[int]inspect.Rank
	asleep := func() (n int) { // a program that has just started may not sleep yet
		for _, r := range ranks {
			if strings.HasPrefix(r.Doing, "sleeping") {
				n++
			}
		}
		return n
	}
	for end := time.Now().Add(5 * time.Minute); asleep() < 4; time.Sleep(time.Second) {
		if time.Now().After(end) {
			t.Fatalf("got %d ranks, want 4: %+v, %v", len(ranks), ranks, s.ddpbatch("stacks", "mine"))
		}
		ranks = stacks()
	}
	for rank := range 4 {
		r := ranks[rank]
		if want := fmt.Sprintf("n%d", rank/2+1); r.Host != want || !strings.HasSuffix(r.Command, "sleep 900") || r.PID == 0 || !strings.HasPrefix(r.Doing, "sleeping") {
			t.Errorf("rank %d: got %+v, want a sleeping process on %s", rank, r, want)
		}
	}
	if o := s.ddpbatch("exec", "mine", "--rank", "3", "--", "kill", "-STOP", strconv.Itoa(ranks[3].PID)); o.code != 0 {
		t.Fatalf("exec: %v", o)
	}
	for end := time.Now().Add(5 * time.Minute); !strings.HasPrefix(ranks[3].Doing, "stopped by "); time.Sleep(time.Second) {
		if time.Now().After(end) {
			t.Fatalf("rank 3: got %+v, want a stopped process", ranks[3])
		}
		ranks = stacks()
	}
	if o := s.ddpbatch("stacks", "mine"); !strings.Contains(o.stdout, fmt.Sprintf("rank 3 on n2, process %d: %s\n", ranks[3].PID, ranks[3].Doing)) {
		t.Errorf("stacks: %v", o)
	}
	if o := s.ddpbatch("exec", "mine", "--all", "--", "hostname"); o.code != 0 || !strings.Contains(o.stdout, "0: n1") || !strings.Contains(o.stdout, "1: n2") {
		t.Errorf("exec --all: %v", o)
	}
	if o := s.ddpbatch("exec", "mine", "--node", "n2", "--", "sh", "-c", "exit 7"); o.code != 7 {
		t.Errorf("exec: got exit code %d, want 7: %v", o.code, o)
	}
	// srun would also start a program in the working directory, where other users may create files.
	s.write("no-such-tool", "#!/bin/sh\necho ran\n")
	if err := os.Chmod(filepath.Join(s.home, "no-such-tool"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, flag := range []string{"--all", "--rank=2"} {
		if o := s.ddpbatch("exec", "mine", flag, "--", "no-such-tool"); o.code == 0 || strings.Contains(o.stdout, "ran") {
			t.Errorf("exec %s of a program that is not in PATH: %v", flag, o)
		}
	}
	// Slurm starts a step in /tmp, where other users can create files, if the node does not have the
	// directory of the caller.
	planted, err := os.CreateTemp("/tmp", "planted")
	if err != nil {
		t.Fatal(err)
	}
	defer os.Remove(planted.Name())
	_, err = planted.WriteString("#!/bin/sh\necho ran\n")
	if err := errors.Join(err, planted.Chmod(0o755), planted.Close()); err != nil {
		t.Fatal(err)
	}
	exec := s.Command(t.Context(), "unshare", "--mount", "sh", "-c", `mkdir private && mount -t tmpfs none private && mkdir private/here && cd private/here && exec "$@"`, "sh",
		s.program, "exec", s.run("mine"), "--node", "n2", "--", "./"+filepath.Base(planted.Name()))
	exec.Dir = s.home
	if o := finish(t, exec); o.code == 0 || strings.Contains(o.stdout, "ran") || !strings.Contains(o.stderr, "on n2: the command starts in /") {
		t.Errorf("exec in a directory that the node does not have: %v", o)
	}
	if o := s.ddpbatch("exec", "mine", "--node", "n2", "--", "pwd"); o.stdout != s.home+"\n" {
		t.Errorf("exec: got directory %q, want %q: %v", o.stdout, s.home, o)
	}
	if o := s.ddpbatch("exec", "mine", "--rank", "2", "--", "sh", "-c", "echo rank $RANK, local rank $LOCAL_RANK, on $SLURMD_NODENAME, $DDPBATCH_RANK_PID"); o.stdout != fmt.Sprintf("rank 2, local rank 0, on n2, %d\n", ranks[2].PID) {
		t.Errorf("exec --rank: %v", o)
	}
	s.write("shell", "#!/bin/sh\nread line\necho $line $*, rank $RANK on $SLURMD_NODENAME\n")
	if err := os.Chmod(filepath.Join(s.home, "shell"), 0o700); err != nil {
		t.Fatal(err)
	}
	shell := s.Command(t.Context(), s.program, "shell", "mine", "--rank", "2")
	shell.Dir, shell.Env, shell.Stdin = s.home, append(shell.Env, "SHELL="+filepath.Join(s.home, "shell")), strings.NewReader("hello\n")
	if o := finish(t, shell); o.code != 0 || !strings.Contains(o.stdout, "hello -i, rank 2 on n2") {
		t.Errorf("shell: %v", o)
	}
	s.ddpbatch("cancel", "mine")
	s.ends(id, "CANCELLED", "FAILED", "COMPLETED")
}
