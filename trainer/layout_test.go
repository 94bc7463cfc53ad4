package trainer

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/trainer/checkpoint"
)

// TestResumeReportsUncomparedCheckpoint checks that a run emits an event if it resumes from a
// checkpoint of an older version, which did not compare the ranks.
func TestResumeReportsUncomparedCheckpoint(t *testing.T) {
	dir := t.TempDir()
	_, _, errs := world(t, 2, job(t, fmt.Sprintf(mlp, 2)), dir, stopAfter(Trained, 3))
	ok(t, errs)
	uncompared := func() bool {
		events, _, errs := world(t, 2, job(t, fmt.Sprintf(mlp, 2)), dir, stopAfter(Trained, 3))
		ok(t, errs)
		return slices.ContainsFunc(events, func(e Event) bool { return e.Kind == Uncompared })
	}
	if uncompared() {
		t.Error("reported for a checkpoint that was compared")
	}
	entries, err := checkpoint.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(entries[0].Path, "manifest.json")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	text = regexp.MustCompile(`,?\s*"(replicas|layout|full_digest)": "[^"]*"`).ReplaceAll(text, nil)
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if !uncompared() {
		t.Error("not reported for a checkpoint of an older version")
	}
}

// TestFormatLayout checks the text that a manifest records for the distribution of ranks over
// nodes.
func TestFormatLayout(t *testing.T) {
	for _, tt := range []struct {
		name  string
		nodes []float64
		want  string
	}{
		{"one rank", []float64{0}, "1x1"},
		{"one node", []float64{5, 5, 5}, "1x3"},
		{"even", []float64{0, 0, 1, 1}, "2x2"},
		{"a rank on each node", []float64{2, 0, 1}, "3x1"},
		{"uneven", []float64{0, 0, 0, 1}, "3+1"},
		{"cyclic", []float64{4, 7, 4, 7}, "0,1,0,1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := formatLayout(tt.nodes); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// TestResumeReportsAnotherLayout checks that a run emits an event if it resumes with the same
// ranks on different nodes, because the order of sums may differ.
func TestResumeReportsAnotherLayout(t *testing.T) {
	dir := t.TempDir()
	spread := func(perNode int) func(int, *Options) {
		return func(rank int, o *Options) {
			stopAfter(Trained, 3)(rank, o)
			o.Node = rank / perNode
		}
	}
	for _, tt := range []struct {
		perNode int
		want    string // part of the event, or ""
	}{{2, ""}, {2, ""}, {4, "changed from 2x2 to 1x4"}, {4, ""}, {1, "changed from 1x4 to 4x1"}} {
		events, _, errs := world(t, 4, job(t, fmt.Sprintf(mlp, 2)), dir, spread(tt.perNode))
		ok(t, errs)
		at := slices.IndexFunc(events, func(e Event) bool { return e.Kind == Relocated })
		if (at >= 0) != (tt.want != "") || at >= 0 && !strings.Contains(events[at].String(), tt.want) {
			t.Errorf("%d ranks on each node: %v, want %q", tt.perNode, events, tt.want)
		}
	}
	entries, err := checkpoint.List(dir)
	if err != nil || entries[0].Manifest.Layout != "4x1" {
		t.Errorf("%+v, %v", entries, err)
	}
}
