package doctor

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/slurm"
)

// TestNodesStep checks that the step has one task on each node, also in a heterogeneous job, in which
// srun uses only the first component by default.
func TestNodesStep(t *testing.T) {
	components := []slurm.Component{{JobID: "1", Nodes: []string{"n1"}}, {JobID: "2", Nodes: []string{"n2", "n3"}}}
	for _, tt := range []struct {
		name       string
		allocation slurm.Allocation
		want       []string
	}{
		{name: "job", allocation: slurm.Allocation{Nodes: []string{"n1", "n2"}}, want: []string{"--nodes=2", "--ntasks=2", "--nodelist=n[1-2]"}},
		{name: "heterogeneous", allocation: slurm.Allocation{Nodes: []string{"n1", "n2", "n3"}, Components: components}, want: []string{"--het-group=0", "--ntasks=1", "--nodelist=n1", "--het-group=1", "--ntasks=2", "--nodelist=n2,n3"}},
		{name: "some nodes", allocation: slurm.Allocation{Nodes: []string{"n3"}, Components: components}, want: []string{"--het-group=1", "--ntasks=1", "--nodelist=n3"}},
	} {
		argv := nodesStep(tt.allocation, "x").SrunArgv()
		got := slices.DeleteFunc(argv, func(word string) bool {
			return !slices.ContainsFunc([]string{"--nodes=", "--ntasks=", "--nodelist=", "--het-group="}, func(option string) bool { return strings.HasPrefix(word, option) })
		})
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
}

// TestParseReports checks that the lines of several tasks are separated, in any order, and that
// other lines are skipped.
func TestParseReports(t *testing.T) {
	found := parseReports([]byte("0: Welcome to n1\n01: {\n00: {\n01: \"host\": \"n2\",\nmotd\n01: \"findings\": [{\"part\": \"a: b\"}]}\n00: \"host\": \"n1\"}\n2: {\"host\": \"n3\"\n"))
	if len(found) != 2 || found[0].Host != "n1" || found[1].Host != "n2" || found[1].Findings[0].Part != "a: b" {
		t.Errorf("%+v", found)
	}
}

// FuzzParseReports checks that each report that parseReports accepts from any output names its host.
func FuzzParseReports(f *testing.F) {
	f.Add([]byte("0: {\"host\": \"n1\", \"time\": \"2026-01-01T00:00:00Z\", \"inventory\": {\"links\": []}}\n1: {}\n-1: {\n"))
	f.Fuzz(func(t *testing.T, out []byte) {
		for _, n := range parseReports(out) {
			if n.Host == "" {
				t.Errorf("a report of nobody: %+v", n)
			}
		}
	})
}

// TestCheckAnswers checks that nodes without results, and nodes that do not share the file system, are
// reported.
func TestCheckAnswers(t *testing.T) {
	token := filepath.Join(t.TempDir(), "token")
	if err := createEmpty(answerPath(token, "n1")); err != nil {
		t.Fatal(err)
	}
	nodes := []string{"n1", "n2", "n3", "n4"}
	for _, tt := range []struct {
		name    string
		nodes   []string
		results []Node
		want    []string // parts and nodes
	}{
		{name: "all visible", nodes: nodes[:1], results: []Node{{Host: "n1"}}},
		{name: "no results", nodes: nodes, results: []Node{{Host: "n1"}}, want: []string{"nodes: n[2-4]"}},
		{name: "not shared", nodes: nodes, results: []Node{{Host: "n3"}, {Host: "n1"}, {Host: "n2"}}, want: []string{"nodes: n4", "files of all nodes: n[2-3]"}},
	} {
		var got []string
		for _, f := range checkAnswers(tt.nodes, tt.results, token, "srun: error") {
			got = append(got, f.Part+": "+f.Hosts)
			if f.Level != Fail || f.Hint == "" {
				t.Errorf("%s: got %+v", tt.name, f)
			}
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
}
