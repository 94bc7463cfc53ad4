package watch

import (
	"fmt"
	"strings"
	"time"

	"github.com/ddpbatch/ddpbatch/internal/format"
	"github.com/ddpbatch/ddpbatch/internal/printable"
	"github.com/ddpbatch/ddpbatch/jobs/rundir"
	"github.com/ddpbatch/ddpbatch/jobs/watch/screen"
)

// A View formats the status of a run in a few lines.
type View struct {
	Color   bool
	Unicode bool // draw the bar with box-drawing characters instead of ASCII
}

const (
	longestBar  = 40
	shortestBar = 8
)

// Lines returns the current status of a run in at most three lines: progress, metrics, and
// nodes. Each line is at most width columns wide. If the width is not sufficient, the least
// important parts are omitted.
func (v View) Lines(s *Status, width int, now time.Time) []string {
	if s.Step == nil || s.Steps == 0 || !s.Phase.isRunning() {
		head := string(s.Phase)
		if s.Detail != "" {
			head += ": " + s.Detail
		}
		if s.Phase == Queued && s.Start != "" {
			head += "; expected to start at " + s.Start
		}
		lines := []string{screen.Clip(printable.Line(s.Name)+"  "+printable.Line(head), width)}
		if s.Live != nil && len(s.Live.Nodes) > 0 && s.Phase.isRunning() {
			var nodes []string
			for _, text := range s.nodes() {
				nodes = append(nodes, printable.Line(text))
			}
			lines = append(lines, joinFitting(width, nodes...))
		}
		return lines
	}
	lines := []string{v.head(s, width)}
	var parts []string
	if t := s.Train; t != nil {
		if t.Loss != nil {
			parts = append(parts, "loss "+lossText(*t.Loss))
		}
		if r := rate(t); r != "" {
			parts = append(parts, r)
		}
		if share, ok := communicationShare(t); ok {
			parts = append(parts, fmt.Sprintf("communication %s of a step, %s of it hidden", format.Percent(share), format.Percent(float64(*t.CommHidden))))
		}
	}
	if e := s.Eval; e != nil && e.Accuracy != nil {
		parts = append(parts, fmt.Sprintf("accuracy %.4f", float64(*e.Accuracy)))
	}
	if c := s.Saved; c != nil {
		parts = append(parts, fmt.Sprintf("saved step %d", c.Step))
	}
	if len(parts) > 0 {
		lines = append(lines, joinFitting(width, parts...))
	}
	parts = nil
	if s.Live != nil {
		for _, g := range s.Live.Nodes {
			text := printable.Line(g.Hosts + " " + string(g.State))
			if g.State.IsTrouble() || g.State == rundir.RankJoining {
				text = v.paint(red, text+" ("+ranksOf(g.Ranks, g.Count)+")")
			}
			parts = append(parts, text)
		}
	}
	if rank := s.straggler(); rank != "" {
		parts = append(parts, fmt.Sprintf("slowest: %s (%.2fx)", rank, float64(*s.Train.SlowestRatio)))
	}
	if len(parts) > 0 {
		lines = append(lines, joinFitting(width, parts...))
	}
	return lines
}

// head returns the line with the progress bar.
func (v View) head(s *Status, width int) string {
	share := min(1, max(0, float64(*s.Step)/float64(s.Steps)))
	name := printable.Line(s.Name)
	if s.Phase != Training {
		name += " " + string(s.Phase)
	}
	// In display order. The parts with the lowest value of last are removed first.
	parts := []struct {
		text string
		last int
	}{
		{name, 2}, {format.Percent(share), 5}, {fmt.Sprintf("step %d/%d", *s.Step, s.Steps), 3}, {"", 1}, {"", 4},
	}
	if t := s.Train; t != nil && t.Epochs > 0 {
		parts[3].text = fmt.Sprintf("epoch %d/%d", min(t.Epoch+1, t.Epochs), t.Epochs)
	}
	if left, ok := s.left(); ok {
		parts[4].text = format.Duration(left) + " left"
	}
	used := func() int {
		n := 0
		for _, p := range parts {
			if p.text != "" {
				n += screen.Width(p.text) + 2
			}
		}
		return n - 2
	}
	for drop := 1; used() > width && drop < 5; drop++ {
		for i := range parts {
			if parts[i].last == drop {
				parts[i].text = ""
			}
		}
	}
	bar := min(longestBar, width-used()-2)
	var out []string
	for i, p := range parts {
		if i == 1 && bar >= shortestBar {
			out = append(out, v.bar(share, bar))
		}
		if p.text != "" {
			out = append(out, screen.Clip(p.text, width))
		}
	}
	return strings.Join(out, "  ")
}

const (
	green = "32"
	red   = "31"
	grey  = "90"
)

func (v View) paint(color, text string) string {
	if !v.Color || text == "" {
		return text
	}
	return "\x1b[" + color + "m" + text + "\x1b[0m"
}

func (v View) bar(share float64, width int) string {
	full := int(share * float64(width))
	if v.Unicode {
		return v.paint(green, strings.Repeat("━", full)) + v.paint(grey, strings.Repeat("─", width-full))
	}
	return v.paint(green, strings.Repeat("#", full)) + v.paint(grey, strings.Repeat(".", width-full))
}

// joinFitting joins as many parts as fit into width. It always includes the first part, truncated if
// necessary.
func joinFitting(width int, parts ...string) string {
	line := ""
	for i, p := range parts {
		next := line + "  " + p
		if i == 0 {
			next = p
		}
		if screen.Width(next) > width {
			if i == 0 {
				return screen.Clip(screen.StripColors(p), width)
			}
			break
		}
		line = next
	}
	return line
}
