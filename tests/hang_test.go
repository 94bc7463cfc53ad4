package tests

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/tests/cluster"
)

var watchedPauses = flag.Int("pauses", 0, "number of pauses just below the limit of command.watch (0: a few that are far below it)")

var hangRounds = flag.Int("hangs", 0, "how many times each kind of hang occurs with each launcher (0: a small selection)")

// TestHangRestarts lets a rank of a PyTorch program on the second node hang in several ways. The
// launcher finds each hang, names the rank and what all ranks are doing, stores their stacks, and
// restarts them.
func TestHangRestarts(t *testing.T) {
	needsPyTorch(t)
	what := map[string]string{
		"stop":     "stopped by SIGSTOP",
		"loop":     "in spin (hangs.py:",
		"mismatch": "in barrier (torch/distributed/distributed_c10d.py:",
	}
	for _, tt := range []struct {
		launcher, argv string
		hangs          []string
		rank           int // of the failure: torchrun counts as one rank per node
	}{
		{"rank", `argv = ["/usr/bin/python3", "hangs.py"]`, []string{"stop", "mismatch"}, 3},
		{"torchrun", `argv = ["--redirects", "9:1", "--tee", "9:1", "hangs.py"]`, []string{"loop"}, 1},
	} {
		t.Run(tt.launcher, func(t *testing.T) {
			s := newSite(t, cluster.Options{})
			hangs := tt.hangs
			if *hangRounds > 0 {
				hangs = slices.Repeat([]string{"stop", "loop", "mismatch"}, *hangRounds)
			}
			program, err := os.ReadFile(filepath.Join("testdata", "hangs.py"))
			if err != nil {
				t.Fatal(err)
			}
			s.write("hangs.py", string(program))
			s.write("job.toml", fmt.Sprintf(`name = "hangs"
[slurm]
nodes = 2
tasks_per_node = 2
time = "02:00:00"
[setup]
env = { PATH = "/usr/bin:/bin", HANGS = %q }
[restart]
max_without_progress = 20
[command]
launcher = %q
%s
[command.watch]
heartbeat = "20s"
action = "restart"
`, strings.Join(hangs, " "), tt.launcher, tt.argv))
			id := s.submit("job.toml")
			if state, err := s.WaitJob(t.Context(), id, "COMPLETED"); err != nil {
				t.Fatalf("job %s: %s, %v\n%s", id, state, err, s.log("hangs", id))
			}
			type end struct {
				Event       string
				Attempt     int
				Cause, Host string
				Rank        *int
			}
			var failed []end
			lines := bufio.NewScanner(strings.NewReader(s.file("runs/hangs/attempts.jsonl")))
			for lines.Scan() {
				var e end
				if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
					t.Fatal(err)
				}
				if e.Cause != "" {
					t.Logf("attempt %d: %s", e.Attempt, e.Cause)
					failed = append(failed, e)
				}
			}
			// On a busy machine, an attempt may also fail before its hang.
			if *hangRounds > 0 && len(failed) != len(hangs) {
				t.Errorf("%d failed attempts, want %d", len(failed), len(hangs))
			}
			for _, kind := range hangs {
				want := "rank 3 on n2 is " + what[kind]
				i := slices.IndexFunc(failed, func(e end) bool { return strings.Contains(e.Cause, want) })
				if i < 0 {
					t.Fatalf("no attempt with %q", want)
				}
				e := failed[i]
				failed = failed[i+1:]
				if e.Rank == nil || *e.Rank != tt.rank || e.Host != "n2" {
					t.Errorf("attempt %d: got rank %v on %q, want %d on n2", e.Attempt, e.Rank, e.Host, tt.rank)
				}
				for _, want := range []string{"the program hangs: no heartbeat for 20s from ", "3 of 4 ranks are in all_reduce (torch/distributed/distributed_c10d.py:"} {
					if !strings.Contains(e.Cause, want) {
						t.Errorf("attempt %d: no %q in %q", e.Attempt, want, e.Cause)
					}
				}
				evidence := s.file(fmt.Sprintf("runs/hangs/evidence/attempt-%04d/stacks.txt", e.Attempt))
				for _, part := range []string{"rank 0 on n1", "rank 1 on n1", "rank 2 on n2", "rank 3 on n2, process", "hangs.py\", line"} {
					if !strings.Contains(evidence, part) {
						t.Errorf("attempt %d: no %q in the evidence:\n%s", e.Attempt, part, evidence)
					}
				}
			}
		})
	}
}

// TestPausesBelowTheLimit lets the ranks of a program on two nodes pause for random times below the
// limit of command.watch. No pause causes an alarm.
func TestPausesBelowTheLimit(t *testing.T) {
	s := newSite(t, cluster.Options{Nodes: 2, CPUs: 16})
	perNode, pauses, limit, longest := 2, 2, 60, 5
	if *watchedPauses > 0 {
		perNode, limit, longest = 16, 20, 18
		pauses = (*watchedPauses + 2*perNode - 1) / (2 * perNode)
	}
	s.write("pauses.py", `import os, random, sys, time
for i in range(int(sys.argv[1])):
    with open(os.environ["DDPBATCH_HEARTBEAT"], "w") as f:
        f.write(str(i))
    pause = random.uniform(0, float(sys.argv[2]))
    print("step", i, "loss 1, pause of %.1f s" % pause, flush=True)
    time.sleep(pause)
`)
	s.write("job.toml", fmt.Sprintf(`name = "pauses"
[slurm]
nodes = 2
tasks_per_node = %d
time = "02:00:00"
[command]
argv = ["/usr/bin/python3", "pauses.py", "%d", "%d"]
[command.watch]
heartbeat = "%ds"
action = "end"
`, perNode, pauses, longest, limit))
	id := s.submit("job.toml")
	s.completed(id)
	log := s.log("pauses", id)
	if n := strings.Count(log, "pause of "); n != 2*perNode*pauses || strings.Contains(log, "hangs") {
		t.Errorf("got %d pauses, want %d without an alarm:\n%s", n, 2*perNode*pauses, log)
	}
}
