package launch

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/jobs/rundir"
	"github.com/ddpbatch/ddpbatch/trainer/rendezvous"
)

// TestGroups checks that a node has the state of its rank with the highest priority.
func TestGroups(t *testing.T) {
	now := time.Now()
	rank := func(r int, host string, s rendezvous.State, phase string, step int, ago time.Duration) rendezvous.RankStatus {
		return rendezvous.RankStatus{Rank: r, Host: host, State: s, Phase: phase, Step: step, Seen: now.Add(-ago)}
	}
	for _, tt := range []struct {
		name   string
		trains bool
		ranks  []rendezvous.RankStatus
		want   []rundir.NodeGroup
	}{
		{"joining", true, []rendezvous.RankStatus{
			rank(0, "n1", rendezvous.Joined, "", 0, 0), {Rank: 1, Host: "n1", State: rendezvous.Missing}, rank(2, "n2", rendezvous.Joined, "", 0, 0),
		}, []rundir.NodeGroup{
			{State: "joining", Hosts: "n1", Ranks: []int{1}, Count: 1},
			{State: "connecting", Hosts: "n2", Ranks: []int{2}, Count: 1},
		}},
		{"saving", true, []rendezvous.RankStatus{
			rank(0, "n1", rendezvous.Joined, "saving", 50, 0), rank(1, "n1", rendezvous.Joined, "training", 51, 0),
			rank(2, "n2", rendezvous.Joined, "training", 51, 0), rank(3, "n3", rendezvous.Joined, "training", 49, 0),
		}, []rundir.NodeGroup{
			{State: "saving", Hosts: "n1", Ranks: []int{0}, Count: 1, Least: 50, Most: 50},
			{State: "training", Hosts: "n[2-3]", Ranks: []int{2, 3}, Count: 2, Least: 49, Most: 51},
		}},
		{"trouble", true, []rendezvous.RankStatus{
			rank(0, "n1", rendezvous.Joined, "training", 7, 11*time.Second), rank(1, "n2", rendezvous.Lost, "training", 6, time.Minute),
			rank(2, "n3", rendezvous.Joined, "training", 7, time.Second),
		}, []rundir.NodeGroup{
			{State: "lost", Hosts: "n2", Ranks: []int{1}, Count: 1, Least: 6, Most: 6},
			{State: "silent", Hosts: "n1", Ranks: []int{0}, Count: 1, Least: 7, Most: 7},
			{State: "training", Hosts: "n3", Ranks: []int{2}, Count: 1, Least: 7, Most: 7},
		}},
		{"a user's program", false, []rendezvous.RankStatus{rank(0, "n1", rendezvous.Joined, "", 0, 0)},
			[]rundir.NodeGroup{{State: "running", Hosts: "n1", Ranks: []int{0}, Count: 1}}},
	} {
		if got := groupNodes(tt.ranks, tt.trains, now); !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s: %+v, want %+v", tt.name, got, tt.want)
		}
	}
}

// TestAttemptsAreKept checks that attempts.jsonl has a start and an end for each attempt, with
// the cause.
func TestAttemptsAreKept(t *testing.T) {
	result, said, err := launched(t, 2, "once", "[restart]\nmax_without_progress = 1\n", nil)
	if err != nil || result.Exit != 0 {
		t.Fatalf("%+v, %v\n%s", result, err, said)
	}
	events, err := lastDir.ReadAttempts()
	if err != nil || len(events) != 4 {
		t.Fatalf("%+v, %v", events, err)
	}
	for i, want := range []struct {
		event   string
		attempt int
		exit    int
		again   bool
		cause   string
	}{
		{rundir.AttemptBegan, 1, 0, false, ""}, {rundir.AttemptEnded, 1, 1, true, "not yet"},
		{rundir.AttemptBegan, 2, 0, false, ""}, {rundir.AttemptEnded, 2, 0, false, ""},
	} {
		e := events[i]
		if e.Event != want.event || e.Attempt != want.attempt || e.Exit != want.exit || e.Again != want.again ||
			!strings.Contains(e.Cause, want.cause) || want.cause == "" && e.Cause != "" || e.Ranks != 2 || e.Hosts == "" {
			t.Errorf("event %d is %+v, want %+v", i, e, want)
		}
	}
	if e := events[1]; e.Rank == nil || *e.Rank != 1 || e.Host == "" {
		t.Errorf("the rank that is the cause: %+v", e)
	}
	if l, ok := lastDir.ReadLive(); !ok || l.Phase != rundir.PhaseOver || l.Attempt != 2 || l.Joined != 2 ||
		len(l.Nodes) != 1 || l.Nodes[0].State != "done" || l.Nodes[0].Count != 2 {
		t.Errorf("live.json: %+v, %v", l, ok)
	}
	if n, err := lastDir.ReadNetwork(); err != nil || n == nil || n.Choice.Why == "" || len(n.Hosts) != 1 || n.Hosts[0].Address == "" {
		t.Errorf("network.json: %+v, %v", n, err)
	}
}
