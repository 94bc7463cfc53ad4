package rundir

import (
	"slices"
	"testing"
)

// TestChain checks which job of a chain is the last one, and which jobs follow it.
func TestChain(t *testing.T) {
	var r Record
	add := func(id, follows string) { r.Add(Submission{JobID: id, Follows: follows}) }
	check := func(when, last string, chain ...string) {
		t.Helper()
		var got []string
		for _, s := range r.Chain {
			got = append(got, s.JobID)
		}
		if r.LastJob() != last || !slices.Equal(got, chain) || r.HasChain() != (len(chain) > 0) {
			t.Errorf("%s: got last job %s, chain %q, HasChain %v; want %s, %q", when, r.LastJob(), got, r.HasChain(), last, chain)
		}
	}
	add("1", "")
	add("2", "1")
	add("3", "2")
	add("4", "3")
	check("submitted", "1", "2", "3", "4")
	if r.Of("3") == nil || r.Of("5") != nil {
		t.Errorf("Of: got %v for job 3 and %v for job 5", r.Of("3"), r.Of("5"))
	}
	if r.StartChained("1") || r.StartChained("9") {
		t.Error("a job that is not in the chain was started")
	}
	if !r.StartChained("2") {
		t.Error("job 2 was not started")
	}
	check("second", "2", "3", "4")
	if !r.StartChained("4") {
		t.Error("job 4 was not started")
	}
	check("third canceled", "4")
	add("5", "4")
	add("6", "")
	check("submitted again", "6")
	r.Pending = &Submission{Follows: "6"}
	if !r.HasChain() {
		t.Error("a chain whose submission is not complete was not found")
	}
}
