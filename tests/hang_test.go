package tests

import (
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/tests/cluster"
)

// TestHangRestarts stops a rank of a program on the second node. The launcher finds that the program
// hangs, stores what the ranks on both nodes are doing, and restarts them.
func TestHangRestarts(t *testing.T) {
	s := newSite(t, cluster.Options{})
	s.write("job.toml", `name = "hangs"
[slurm]
nodes = 2
tasks_per_node = 2
time = "00:10:00"
[restart]
max_without_progress = 5
[command]
argv = ["sh", "hangs.sh"]
[command.watch]
silence = "60s"
action = "restart"
`)
	s.write("hangs.sh", `if test "$DDPBATCH_ATTEMPT" -gt 1; then
	exit 0
fi
case $RANK in
0)
	until test -e stopping; do
		echo waiting
		sleep 0.5
	done ;;
3)
	touch stopping
	kill -STOP $$ ;;
esac
exec sleep 900
`)
	id := s.submit("job.toml")
	s.ends(id, "COMPLETED")
	const want = "the program hangs: no output for 1m; 3 of 4 ranks are sleeping"
	attempts := s.file("runs/hangs/attempts.jsonl")
	if !strings.Contains(attempts, want) || !strings.Contains(attempts, "rank 3 on n2 is stopped by a signal") || !strings.Contains(attempts, `"rank":3,"host":"n2"`) {
		t.Errorf("attempts.jsonl: got\n%s\nwant %q and rank 3 on n2", attempts, want)
	}
	evidence := s.file("runs/hangs/evidence/attempt-0001/stacks.txt")
	for _, part := range []string{"rank 0 on n1", "rank 1 on n1", "rank 2 on n2", "rank 3 on n2, process"} {
		if !strings.Contains(evidence, part) {
			t.Errorf("no %q in the evidence:\n%s", part, evidence)
		}
	}
}
