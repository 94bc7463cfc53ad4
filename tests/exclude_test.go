package tests

import (
	"testing"

	"github.com/ddpbatch/ddpbatch/tests/cluster"
)

// TestWaitingJobIsKeptOffNode checks the command in hints about bad nodes: after `scontrol update
// JobId=ID ExcNodeList=NODE`, a pending job does not start on that node.
func TestWaitingJobIsKeptOffNode(t *testing.T) {
	s := newSite(t, cluster.Options{Nodes: 2})
	s.write("job.toml", "name = \"elsewhere\"\n[slurm]\nnodes = 1\n[command]\nargv = [\"hostname\"]\n")
	if o := finish(t, s.Command(t.Context(), "sbatch", "--nodes=2", "--exclusive", "--output=/dev/null", "--wrap", "sleep 600")); o.code != 0 {
		t.Fatal(o)
	}
	id := s.submit("job.toml")
	for _, argv := range [][]string{{"scontrol", "update", "JobId=" + id, "ExcNodeList=n1"}, {"scancel", "1"}} {
		if o := finish(t, s.Command(t.Context(), argv...)); o.code != 0 {
			t.Fatal(o)
		}
	}
	s.completed(id)
	mustContain(t, s.log("elsewhere", id), "1 rank on 1 node", "n2")
}
