package watch

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/ddpbatch/ddpbatch/internal/format"
	"github.com/ddpbatch/ddpbatch/internal/printable"
	"github.com/ddpbatch/ddpbatch/jobs/rundir"
	"github.com/ddpbatch/ddpbatch/jobs/watch/screen"
)

// A column is a column of the table.
type column struct {
	head string
	last int // order of removal in a narrow terminal, from 1; 0 is never removed
	text func(s *Status) string
}

var columns = []column{
	{"RUN", 0, func(s *Status) string { return printable.Line(s.Label()) }},
	{"JOB", 1, func(s *Status) string { return s.Job }},
	{"PHASE", 0, func(s *Status) string { return string(s.Phase) }},
	{"STEP", 6, func(s *Status) string {
		switch {
		case s.Step == nil:
			return ""
		case s.Steps == 0:
			return fmt.Sprint(*s.Step)
		}
		return fmt.Sprintf("%d/%d", *s.Step, s.Steps)
	}},
	{"DONE", 0, func(s *Status) string {
		if s.Step == nil || s.Steps == 0 {
			return ""
		}
		return format.Percent(min(1, float64(*s.Step)/float64(s.Steps)))
	}},
	{"LEFT", 5, func(s *Status) string {
		if left, ok := s.left(); ok && s.Phase.active() {
			return format.Duration(left)
		}
		return ""
	}},
	{"LOSS", 0, func(s *Status) string {
		if s.Loss == nil {
			return ""
		}
		return fmt.Sprintf("%.4g", float64(*s.Loss))
	}},
	{"SPEED", 4, func(s *Status) string {
		if s.Train == nil || !s.Phase.active() {
			return ""
		}
		return rate(s.Train)
	}},
	{"WAITS", 2, func(s *Status) string { // fraction of the step time that waits for communication
		share, ok := Communication(s.Train)
		if !ok || !s.Phase.active() {
			return ""
		}
		return format.Percent(share)
	}},
	{"SAVED", 3, func(s *Status) string {
		if s.Saved == nil {
			return ""
		}
		return fmt.Sprint(s.Saved.Step)
	}},
	{"NOTE", 0, (*Status).note},
}

// Label returns the name of the run. It adds the name of the run directory if that differs,
// which distinguishes two runs of one job file.
func (s *Status) Label() string {
	folder := filepath.Base(s.Dir)
	if s.Dir == "" || folder == s.Name || (rundir.Dir{Path: s.Dir}).IsElement() {
		return s.Name
	}
	return s.Name + " (" + folder + ")"
}

// leastName is the minimum width of a name in a narrow table, in columns.
const leastName = 24

// note returns the most important information that has no column of its own.
func (s *Status) note() string {
	var parts []string
	switch {
	case s.Elements != nil:
		return s.Reason
	case s.Detail != "":
		parts = append(parts, s.Detail)
	}
	if s.Phase == Queued && s.Start != "" {
		parts = append(parts, "expected to start at "+s.Start)
	}
	if s.Live != nil && s.Phase.active() {
		for _, g := range s.Live.Nodes {
			if g.State.IsTrouble() {
				parts = append(parts, g.Hosts+" "+string(g.State))
			}
		}
	}
	if rank := s.straggler(); rank != "" && s.Phase.active() {
		parts = append(parts, rank+" is slowest")
	}
	return printable.Line(strings.Join(parts, "; "))
}

// gap is the number of spaces between columns.
const gap = 2

// Table returns a table with one line per run. Runs that are over come last. Lines are at most
// width columns wide. With width 0 their width is not limited. In a narrow table, the least
// important columns are removed.
func Table(all []Status, width int) []string {
	sorted := make([]*Status, len(all))
	for i := range all {
		sorted[i] = &all[i]
	}
	slices.SortStableFunc(sorted, func(a, b *Status) int {
		over := func(s *Status) int {
			if s.Phase.Over() || s.Finished {
				return 1
			}
			return 0
		}
		return over(a) - over(b)
	})
	cells := make([][]string, len(columns))
	widths := make([]int, len(columns))
	for i, c := range columns {
		cells[i] = []string{c.head}
		for _, s := range sorted {
			text := c.text(s)
			if text == "" {
				text = "-"
			}
			cells[i] = append(cells[i], text)
		}
		for _, text := range cells[i] {
			widths[i] = max(widths[i], utf8.RuneCountInString(text))
		}
	}
	note := len(columns) - 1
	needed := func() int {
		n := min(widths[note], 20) // cells of the note column may be truncated
		for _, w := range widths[:note] {
			if w > 0 {
				n += w + gap
			}
		}
		return n
	}
	if width > 0 && needed() > width {
		widths[0] = min(widths[0], max(leastName, width/3))
		for i, name := range cells[0] {
			cells[0][i] = screen.Shorten(name, widths[0])
		}
	}
	for drop := 1; width > 0 && needed() > width && drop <= 6; drop++ {
		for i, c := range columns {
			if c.last == drop {
				widths[i] = 0
			}
		}
	}
	lines := make([]string, len(sorted)+1)
	for row := range lines {
		var line strings.Builder
		for i := range columns {
			if widths[i] > 0 {
				fmt.Fprintf(&line, "%-*s", widths[i]+gap, cells[i][row])
			}
		}
		lines[row] = strings.TrimRight(line.String(), " ")
		if width > 0 {
			lines[row] = screen.Cut(lines[row], width)
		}
	}
	return lines
}

// Heading returns the time and the number of runs in each phase.
func Heading(all []Status, now time.Time) string {
	counts := map[Phase]int{}
	for _, s := range all {
		if s.Elements == nil {
			counts[s.Phase]++
		}
		for _, e := range s.Elements {
			counts[e.Phase]++
		}
	}
	return now.Format("15:04:05") + "  " + tally(counts)
}

// tally formats the number of runs per phase, ordered by the name of the phase.
func tally(counts map[Phase]int) string {
	var parts []string
	for phase, n := range counts {
		parts = append(parts, fmt.Sprintf("%d %s", n, phase))
	}
	slices.SortFunc(parts, func(a, b string) int {
		_, x, _ := strings.Cut(a, " ")
		_, y, _ := strings.Cut(b, " ")
		return strings.Compare(x, y)
	})
	return strings.Join(parts, ", ")
}

// SumUp sets Reason and Finished of a sweep from the phases of its trials.
func (s *Status) SumUp() {
	counts := map[Phase]int{}
	for _, e := range s.Elements {
		counts[e.Phase]++
	}
	s.Finished = counts[Done] == len(s.Elements)
	s.Reason = tally(counts)
}
