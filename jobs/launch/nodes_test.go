package launch

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/slurm"
	"github.com/ddpbatch/ddpbatch/trainer/rendezvous"
)

// onFour returns the nodes of a job in an allocation of n1 to n4, with two ranks on each.
func onFour(t *testing.T, trained, spare, least int, sinfo string) (*nodes, *[]string) {
	t.Helper()
	o, _, said := inJob(t, runs, map[string]string{"sinfo": sinfo})
	o.Job.Slurm.Nodes, o.Job.Restart.SpareNodes, o.Job.Restart.MinNodes = trained, spare, least
	o.Allocation.Nodes = []string{"n1", "n2", "n3", "n4"}
	n, err := newNodes(o)
	if err != nil {
		t.Fatal(err)
	}
	return n, said
}

// failed returns the result of an attempt on n with the given failure. States holds the states
// of the ranks by node. Nodes that are not in states have the state Ended.
func failed(n *nodes, first rendezvous.Failure, states map[string]rendezvous.State) Result {
	r := Result{Failure: &first}
	for _, node := range n.chosen {
		for range 2 {
			state := states[node]
			if state == "" {
				state = rendezvous.Ended
			}
			r.Ranks = append(r.Ranks, rendezvous.RankStatus{Rank: len(r.Ranks), Host: node, State: state})
		}
	}
	return r
}

// TestNodesThatAreLeftOut checks which nodes the next attempt uses after a failure, with spare
// nodes.
func TestNodesThatAreLeftOut(t *testing.T) {
	const well = `printf 'n1|allocated\nn2|allocated\nn3|mixed\nn4|allocated\n'`
	lost := rendezvous.Failure{Rank: 2, Host: "n2", State: rendezvous.Lost}
	elsewhere := rendezvous.Failure{Rank: 0, Host: "n1", State: rendezvous.Failed}
	absent := rendezvous.Failure{Rank: 2, Host: "n2", State: rendezvous.Missing, Phase: "join"}
	tie := rendezvous.Failure{Rank: -1, State: rendezvous.Failed}
	tieOn2 := rendezvous.Failure{Rank: -1, Host: "n2", State: rendezvous.Failed}
	all := func(s rendezvous.State) map[string]rendezvous.State {
		return map[string]rendezvous.State{"n1": s, "n2": s, "n3": s}
	}
	type step struct {
		first  rendezvous.Failure
		states map[string]rendezvous.State
		next   string // nodes of the next attempt, or the error
	}
	on2 := func(s rendezvous.State) map[string]rendezvous.State {
		return map[string]rendezvous.State{"n2": s}
	}
	for name, tt := range map[string]struct {
		spare, least int
		sinfo        string
		steps        []step
		said         string
		lost         bool
	}{
		"a rank is killed once": {1, 0, well, []step{{lost, nil, "n1 n2 n3"}}, "", false},
		"the same host twice": {1, 0, well, []step{{lost, nil, "n1 n2 n3"}, {lost, nil, "n1 n3 n4"}},
			"excluding node n2: its rank failed first in two consecutive attempts\ncontinuing with 3 of 3 nodes: n[1,3-4]", false},
		"a tie between hosts, twice": {1, 0, well, []step{{tie, nil, "n1 n2 n3"}, {tie, nil, "n1 n2 n3"}}, "", false},
		"a tie between ranks of one host, twice": {1, 0, well, []step{{tieOn2, nil, "n1 n2 n3"}, {tieOn2, nil, "n1 n3 n4"}},
			"excluding node n2: its rank failed first in two consecutive attempts\ncontinuing with 3 of 3 nodes: n[1,3-4]", false},
		"one host, then another": {1, 0, well, []step{{lost, nil, "n1 n2 n3"}, {elsewhere, nil, "n1 n2 n3"}, {lost, nil, "n1 n2 n3"}}, "", false},
		"down": {1, 0, `printf 'n2|down*\n'`, []step{{elsewhere, nil, "n1 n3 n4"}},
			"excluding node n2: Slurm reports that it is down*\ncontinuing with 3 of 3 nodes: n[1,3-4]", true},
		"the spare node is down": {1, 0, `printf 'n4|down\n'`, []step{{elsewhere, nil, "n1 n2 n3"}},
			"excluding node n4: Slurm reports that it is down", true},
		"drained by a health check": {1, 0, `printf 'n2|draining\n'`, []step{{lost, nil, "n1 n3 n4"}},
			"excluding node n2: its rank failed first, and Slurm reports that it is draining\ncontinuing with 3 of 3 nodes: n[1,3-4]", false},
		"drained, and not at fault": {1, 0, `printf 'n3|draining\n'`, []step{{lost, nil, "n1 n2 n3"}}, "", false},
		"no answer": {1, 0, well, []step{{elsewhere, on2(rendezvous.Joined), "n1 n3 n4"}},
			"excluding node n2: its ranks stopped responding\ncontinuing with 3 of 3 nodes: n[1,3-4]", true},
		"not joined": {1, 0, well, []step{{absent, on2(rendezvous.Missing), "n1 n3 n4"}},
			"excluding node n2: its ranks did not join\ncontinuing with 3 of 3 nodes: n[1,3-4]", false},
		"not joined, after an attempt in which it did": {1, 0, well, []step{{elsewhere, nil, "n1 n2 n3"}, {absent, on2(rendezvous.Missing), "n1 n3 n4"}},
			"excluding node n2: its ranks did not join\ncontinuing with 3 of 3 nodes: n[1,3-4]", true},
		"not joined, and down later": {0, 2, `if [ -e "$FAKE/asked" ]; then printf 'n2|down\n'; else : >"$FAKE/asked"; fi`,
			[]step{{absent, on2(rendezvous.Missing), "n1 n3 n4"}, {elsewhere, nil, "n1 n3 n4"}},
			"excluding node n2: its ranks did not join\ncontinuing with 3 of 4 nodes: n[1,3-4]", true},
		"nobody joined": {1, 0, well, []step{{absent, all(rendezvous.Missing), "n1 n2 n3"}}, "", false},
		"not started, twice": {1, 0, well, []step{{elsewhere, on2(rendezvous.Missing), "n1 n2 n3"}, {elsewhere, on2(rendezvous.Missing), "n1 n3 n4"}},
			"excluding node n2: its rank failed first in two consecutive attempts\ncontinuing with 3 of 3 nodes: n[1,3-4]", false},
		"fewer nodes": {0, 2, well, []step{{elsewhere, on2(rendezvous.Joined), "n1 n3 n4"}},
			"excluding node n2: its ranks stopped responding\ncontinuing with 3 of 4 nodes: n[1,3-4]", true},
		"too few": {0, 4, well, []step{{elsewhere, on2(rendezvous.Joined), "only 3 of 4 nodes are usable, and the job needs 4"}},
			"excluding node n2: its ranks stopped responding", true},
		"Slurm does not say": {1, 0, "echo broken >&2; exit 1", []step{{elsewhere, on2(rendezvous.Joined), "n1 n3 n4"}},
			"warning: query state of nodes n[1-4]: sinfo failed (exit status 1): broken\n" +
				"excluding node n2: its ranks stopped responding\ncontinuing with 3 of 3 nodes: n[1,3-4]", true},
		"the keys are not given": {0, 0, `printf 'n2|down\n'`, []step{{lost, on2(rendezvous.Joined), "n1 n2 n3 n4"}}, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			n, said := onFour(t, 4-tt.spare, tt.spare, tt.least, tt.sinfo)
			var lost bool
			for i, s := range tt.steps {
				var err error
				lost, err = n.excludeBadNodes(t.Context(), failed(n, s.first, s.states))
				got := strings.Join(n.chosen, " ")
				if err != nil {
					got = err.Error()
				}
				if got != s.next {
					t.Errorf("after attempt %d: %s, want %s", i+1, got, s.next)
				}
			}
			if got := strings.Join(*said, "\n"); got != tt.said {
				t.Errorf("said %q\nwant %q", got, tt.said)
			}
			if lost != tt.lost {
				t.Errorf("lost %v, want %v", lost, tt.lost)
			}
		})
	}
}

// TestNodesWithDifferentRanks checks that the ranks of a node are found if the nodes have different
// numbers of ranks, and that a spare node gets the ranks at its position.
func TestNodesWithDifferentRanks(t *testing.T) {
	n, _ := onFour(t, 3, 1, 0, "true")
	n.o.Job.Slurm.RanksPerNode = []int{3, 1, 2}
	var r Result
	for rank := range 6 {
		state := rendezvous.Done
		if rank == 3 {
			state = rendezvous.Joined
		}
		r.Ranks = append(r.Ranks, rendezvous.RankStatus{Rank: rank, State: state})
	}
	for node, want := range map[string]bool{"n1": false, "n2": true, "n3": false, "n4": false} {
		if got := n.ranksOn(node, r, rendezvous.Joined); got != want {
			t.Errorf("%s: got %v, want %v", node, got, want)
		}
	}
	n.excluded["n2"] = "down"
	if err := n.choose(); err != nil {
		t.Fatal(err)
	}
	var tasks []int
	for i := range n.chosen {
		tasks = append(tasks, n.o.Job.RanksOn(i))
	}
	if got, want := strings.Join(taskNodes(n.chosen, tasks), " "), "n1 n1 n1 n3 n4 n4"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestNodesOfTheWrongNumber checks the errors for spare nodes that the allocation does not have.
func TestNodesOfTheWrongNumber(t *testing.T) {
	o, _, _ := inJob(t, runs, nil)
	o.Job.Slurm.Nodes, o.Job.Restart.SpareNodes = 2, 1
	o.Allocation.Nodes = []string{"n1", "n2"}
	if _, err := newNodes(o); fmt.Sprint(err) != "the allocation has 2 nodes (n[1-2]), but the job needs 3, including 1 spare nodes" {
		t.Error(err)
	}
	o.Allocation.Nodes = []string{"n1", "n2", "n3"}
	o.Allocation.Components = make([]slurm.Component, 2)
	if _, err := newNodes(o); fmt.Sprint(err) != "restart.spare_nodes and restart.min_nodes are not valid in a heterogeneous job (2 components)" {
		t.Error(err)
	}
}

// TestPrintRankEnds checks that ranks with equal ends share a line.
func TestPrintRankEnds(t *testing.T) {
	o, _, said := inJob(t, runs, nil)
	ranks := []rendezvous.RankStatus{
		{Rank: 0, Host: "n1", State: rendezvous.Ended, Exit: 4}, {Rank: 1, Host: "n1", State: rendezvous.Ended, Exit: 4},
		{Rank: 2, Host: "n2", State: rendezvous.Lost, Error: "its process was killed or crashed"}, {Rank: 3, Host: "n2", State: rendezvous.Ended},
		{Rank: 4, Host: "n3", State: rendezvous.Lost, Error: "EOF"}, {Rank: 5, Host: "n3", State: rendezvous.Joined},
		{Rank: 6, Host: "n4", State: rendezvous.Missing}, {Rank: 7, Host: "n4", State: rendezvous.Failed, Exit: 9}, {Rank: 8, Host: "n5", State: rendezvous.Done, Exit: 3},
	}
	o.printRankEnds(ranks, map[int]bool{4: true, 5: true})
	want := []string{"how the ranks ended:",
		"  ranks 0, 1, 3 on n[1-2]: ended with the job", "  rank 2 on n2: lost: its process was killed or crashed",
		"  rank 4 on n3: killed after 4s", "  rank 5 on n3: stopped responding",
		"  rank 6 on n4: did not join", "  rank 7 on n4: failed with exit code 9", "  rank 8 on n5: ended with exit code 3"}
	if !slices.Equal(*said, want) {
		t.Errorf("said %q\nwant %q", *said, want)
	}
	*said = nil
	o.printRankEnds(ranks[:1], nil)
	for rank := range 20 {
		ranks = append(ranks, rendezvous.RankStatus{Rank: 9 + rank, Host: "n6", State: rendezvous.Failed, Exit: 20 + rank})
	}
	o.printRankEnds(ranks, nil)
	if n := len(*said); n != maxKinds+2 || !strings.Contains((*said)[n-1], "15 other ways: see ") {
		t.Errorf("said %q", *said)
	}
}
