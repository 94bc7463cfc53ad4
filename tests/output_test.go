package tests

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/tests/cluster"
)

// TestOutputOfRanks checks that the run directory has the output of each rank of a job on several
// nodes, that the commands select it, and that the log of a failed job ends with a diagnosis.
func TestOutputOfRanks(t *testing.T) {
	s := newSite(t, cluster.Options{Nodes: 2})
	// Rank 2 fails after all ranks have printed.
	s.write("prog.sh", `echo "rank $RANK on $SLURMD_NODENAME prints"
: >"printed.$RANK"
until [ -e printed.0 -a -e printed.1 -a -e printed.2 -a -e printed.3 ]; do sleep 0.1; done
if [ $RANK = 2 ]; then echo "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB" >&2; exit 7; fi
sleep 600
`)
	s.write("job.toml", `name = "out"
[slurm]
nodes = 2
tasks_per_node = 2
time = "00:10:00"
[command]
argv = ["/bin/sh", "prog.sh"]
output = "labeled"
`)
	id := s.submit("job.toml")
	s.ends(id, "FAILED")
	log := strings.TrimSpace(s.log("out", id))
	mustContain(t, log, "[rank 0] rank 0 on ", "[rank 3] rank 3 on ", "ended with exit code 7", "ddpbatch: diagnosis: gpu out of memory: ")
	if at := strings.LastIndex(log, "\n"); !strings.HasPrefix(log[at+1:], "ddpbatch: diagnosis: hint: ") {
		t.Errorf("the log does not end with a diagnosis:\n%s", log)
	}
	files, _ := filepath.Glob(filepath.Join(s.run("out"), "logs", "attempt-0001", "rank-*.out"))
	if len(files) != 4 {
		t.Errorf("got files %v, want one for each of 4 ranks", files)
	}
	logs := func(args ...string) string {
		t.Helper()
		o := s.ddpbatch(append([]string{"logs", "out"}, args...)...)
		if o.code != 0 {
			t.Fatalf("%v: %v", args, o)
		}
		return o.stdout
	}
	if got := logs("--rank", "3"); !strings.HasPrefix(got, "rank 3 on ") || strings.Count(got, "\n") != 1 {
		t.Errorf("rank 3: got %q", got)
	}
	mustContain(t, logs("--failed"), "rank 2 on ", "CUDA out of memory")
	_, node, _ := strings.Cut(strings.TrimSpace(logs("--rank", "3")), " on ")
	node, _, _ = strings.Cut(node, " ")
	got := logs("--node", node)
	mustContain(t, got, "[rank 2] rank 2 on ", "[rank 3] rank 3 on ")
	if strings.Contains(got, "[rank 0]") || strings.Contains(got, "[rank 1]") {
		t.Errorf("%s has output of other nodes: %q", node, got)
	}
	status := s.ddpbatch("status", "runs/out")
	mustContain(t, status.stdout, "last lines", "CUDA out of memory", "diagnosis   gpu out of memory: ")
}

// TestLinesOfRanks checks that lines of ranks on several nodes are not mixed in the log, up to the
// length that srun does not split, and that each rank has all of its lines in a file. The deadline of
// the program is the end of the time limit.
func TestLinesOfRanks(t *testing.T) {
	s := newSite(t, cluster.Options{Nodes: 2})
	const lines, length = 2000, 1024 // SLURM_IO_MAX_MSG_LEN, for the whole line with its label and newline
	s.write("lines.py", fmt.Sprintf(`import os, sys, time
rank = os.environ["RANK"]
for i in range(%d):
    text = "rank %%s line %%d " %% (rank, i)
    sys.stdout.write(text + "x" * (%d - len("[rank 0] ") - len(text) - 1) + "\n")
left = int(os.environ["DDPBATCH_DEADLINE"]) - time.time()
print("deadline", 0 < left < 3 * 3600)
`, lines, length))
	s.write("job.toml", `name = "lines"
[slurm]
nodes = 2
tasks_per_node = 2
time = "03:00:00"
[command]
argv = ["/usr/bin/python3", "lines.py"]
output = "labeled"
`)
	id := s.submit("job.toml")
	s.completed(id)
	next := make([]int, 4)
	for line := range strings.Lines(s.log("lines", id)) {
		var label, rank, i int
		if n, _ := fmt.Sscanf(line, "[rank %d] rank %d line %d ", &label, &rank, &i); n < 3 {
			continue
		}
		if label != rank || len(line) != length || i != next[rank] || strings.Trim(line[len(line)-900:], "x") != "\n" {
			t.Fatalf("rank %d: line %d is %q", label, next[label], line)
		}
		next[rank]++
	}
	for rank, n := range next {
		if n != lines {
			t.Errorf("the log has %d lines of rank %d, want %d", n, rank, lines)
		}
		file := s.file(fmt.Sprintf("runs/lines/logs/attempt-0001/rank-%05d.out", rank))
		if strings.Count(file, "\n") != lines+1 || !strings.HasSuffix(file, "deadline True\n") {
			t.Errorf("the file of rank %d has %d lines:\n%.2000s", rank, strings.Count(file, "\n"), file)
		}
	}
}
