package main

import "testing"

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
