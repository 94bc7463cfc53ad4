package watch

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/internal/printable"
	"github.com/ddpbatch/ddpbatch/jobs/watch/screen"
)

// TestTableOfLongNames checks that a long name does not displace other columns, and keeps both
// of its ends.
func TestTableOfLongNames(t *testing.T) {
	step := 1200
	long := "pretrain-bert-large-uncased-wikipedia-lr0.1-bs64-seed42"
	all := []Status{
		{Name: long, Dir: "/runs/" + long, Phase: "failed", Detail: "rank 3 on n2 was killed"},
		{Name: "short", Dir: "/runs/other", Phase: "training", Step: &step, Steps: 2400},
		{Name: "sweep-3", Dir: "/runs/sweep/elements/3", Phase: "done"},
	}
	for _, width := range []int{80, 100, 0} {
		lines := TopTable(all).Lines(width)
		text := strings.Join(lines, "\n")
		want := []string{"short (other)", "sweep-3 ", "50%", "rank 3 on n2", "PHASE", "NOTE"}
		if width == 0 {
			want = append(want, long+" ")
		} else {
			want = append(want, "pretrain-b", "...", "seed42 ")
		}
		for _, w := range want {
			if !strings.Contains(text, w) {
				t.Errorf("%d columns: no %q in\n%s", width, w, text)
			}
		}
		for _, line := range lines {
			if width > 0 && screen.Width(line) > width {
				t.Errorf("%q is wider than %d columns", line, width)
			}
		}
	}
}

// TestStatusTableRemovesControlCharacters checks that the keys and values of a sweep, which may belong
// to another user, cannot control the terminal.
func TestStatusTableRemovesControlCharacters(t *testing.T) {
	const steer = "\x1b[2J\r\u202e\x00"
	all := []Status{{Name: "a" + steer, Values: map[string]string{"train." + steer + "lr": "1" + steer}}}
	for _, line := range StatusTable(all).Lines(0) {
		if line != printable.Text(line) {
			t.Errorf("%q has control characters", line)
		}
	}
}

// TestStatusTableOfManyKeys checks that the table of a sweep, whose record may belong to another user,
// has a limited number of columns, and that cells have a limited length.
func TestStatusTableOfManyKeys(t *testing.T) {
	all := []Status{{Name: "a", Values: map[string]string{}}, {Name: "b"}}
	for i := range 10 * MaxSweepKeys {
		all[0].Values[fmt.Sprintf("train.k%04d", i)] = "1"
	}
	all[0].Detail, all[0].Values["train.a"] = strings.Repeat("x", 1<<20), strings.Repeat("y", 1<<20)
	table := StatusTable(all)
	if n := len(strings.Join(table.Rows[0], "")); n > 4*maxCell {
		t.Errorf("row 0 has %d bytes", n)
	}
	if want := len(statusColumns) + MaxSweepKeys; len(table.Header) != want || len(table.Rows[1]) != want {
		t.Errorf("%d columns and %d cells, want %d", len(table.Header), len(table.Rows[1]), want)
	}
}
