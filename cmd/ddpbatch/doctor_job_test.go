package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/slurm"
)

// TestDoctorStep checks that the step has one task on each node, also in a heterogeneous job, in which
// srun uses only the first component by default.
func TestDoctorStep(t *testing.T) {
	components := []slurm.Component{{JobID: "1", Nodes: []string{"n1"}}, {JobID: "2", Nodes: []string{"n2", "n3"}}}
	for name, tt := range map[string]struct {
		allocation slurm.Allocation
		want       []string
	}{
		"job":           {slurm.Allocation{Nodes: []string{"n1", "n2"}}, []string{"--nodes=2", "--ntasks=2", "--nodelist=n[1-2]"}},
		"heterogeneous": {slurm.Allocation{Nodes: []string{"n1", "n2", "n3"}, Components: components}, []string{"--het-group=0", "--ntasks=1", "--nodelist=n1", "--het-group=1", "--ntasks=2", "--nodelist=n2,n3"}},
		"--hosts":       {slurm.Allocation{Nodes: []string{"n3"}, Components: components}, []string{"--het-group=1", "--ntasks=1", "--nodelist=n3"}},
	} {
		argv := doctorStep(tt.allocation, "x").SrunArgv()
		got := slices.DeleteFunc(argv, func(word string) bool {
			return !slices.ContainsFunc([]string{"--nodes=", "--ntasks=", "--nodelist=", "--het-group="}, func(option string) bool { return strings.HasPrefix(word, option) })
		})
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: got %q, want %q", name, got, tt.want)
		}
	}
}

// TestReportsOf checks that the lines of several tasks are separated, in any order, and that
// other lines are skipped.
func TestReportsOf(t *testing.T) {
	found := parseReports([]byte("0: Welcome to n1\n01: {\n00: {\n01: \"host\": \"n2\",\nmotd\n01: \"findings\": [{\"part\": \"a: b\"}]}\n00: \"host\": \"n1\"}\n2: {\"host\": \"n3\"\n"))
	if len(found) != 2 || found[0].Host != "n1" || found[1].Host != "n2" || found[1].Findings[0].Part != "a: b" {
		t.Errorf("%+v", found)
	}
}

// FuzzReportsOf checks that each report that parseReports accepts from any output names its host.
func FuzzReportsOf(f *testing.F) {
	f.Add([]byte("0: {\"host\": \"n1\", \"time\": \"2026-01-01T00:00:00Z\", \"inventory\": {\"links\": []}}\n1: {}\n-1: {\n"))
	f.Fuzz(func(t *testing.T, out []byte) {
		for _, n := range parseReports(out) {
			if n.Host == "" {
				t.Errorf("a report of nobody: %+v", n)
			}
		}
	})
}
