package watch

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ddpbatch/ddpbatch/internal/format"
	"github.com/ddpbatch/ddpbatch/internal/printable"
	"github.com/ddpbatch/ddpbatch/jobs/rundir"
	"github.com/ddpbatch/ddpbatch/jobs/watch/screen"
	"github.com/ddpbatch/ddpbatch/trainer/metrics"
)

// A column is a column of a table of runs.
type column struct {
	header string
	drop   int // order of removal in a narrow terminal, from 1; 0 is never removed
	text   func(s *Status) string
}

var statusColumns = []column{
	{"RUN", 0, (*Status).Label},
	{"JOB", 0, func(s *Status) string { return s.Job }},
	{"PHASE", 0, func(s *Status) string { return string(s.Phase) }},
	{"STEP", 0, func(s *Status) string { return optional(s.Step) }},
	{"EPOCH", 0, (*Status).epoch},
	{"LOSS", 0, func(s *Status) string { return digits(s.Loss) }},
	{"ACCURACY", 0, func(s *Status) string { return digits(s.Accuracy) }},
	{"SAVED", 0, func(s *Status) string { return optional(s.Checkpoint) }},
	{"NOTE", 0, (*Status).fullNote},
}

var topColumns = []column{
	{"RUN", 0, (*Status).Label},
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
		if left, ok := s.left(); ok && s.Phase.isRunning() {
			return format.Duration(left)
		}
		return ""
	}},
	{"LOSS", 0, func(s *Status) string { return digits(s.Loss) }},
	{"SPEED", 4, func(s *Status) string {
		if s.Train == nil || !s.Phase.isRunning() {
			return ""
		}
		return rate(s.Train)
	}},
	{"WAITS", 2, func(s *Status) string { // fraction of the step time that waits for communication
		share, ok := communicationShare(s.Train)
		if !ok || !s.Phase.isRunning() {
			return ""
		}
		return format.Percent(share)
	}},
	{"SAVED", 3, func(s *Status) string { return optional(s.Checkpoint) }},
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

// epoch returns the current epoch, counted from 1 as in the other views, or the number of
// finished epochs after an evaluation.
func (s *Status) epoch() string {
	if s.Epoch == nil || s.Epochs == 0 || s.Train == nil || s.Train.Step != *s.Step || s.Train.Epoch != *s.Epoch {
		return optional(s.Epoch)
	}
	return strconv.Itoa(min(*s.Epoch+1, s.Epochs))
}

// optional formats a number. It returns an empty string for nil.
func optional(n *int) string {
	if n == nil {
		return ""
	}
	return strconv.Itoa(*n)
}

// digits formats a metric with four digits, or returns an empty string for nil.
func digits(n *metrics.Number) string {
	if n == nil {
		return ""
	}
	return fmt.Sprintf("%.4g", float64(*n))
}

// fullNote returns the cause of the phase, or the advice if there is no cause. For some phases, it
// returns both.
func (s *Status) fullNote() string {
	note := s.Detail
	switch {
	case s.Elements != nil:
		note = s.Reason
	case s.Phase == Held:
		note = "it does not start without a change: " + note + "; " + s.Advice
	case s.Detail != "" && s.Phase == CutShort || s.Detail == "":
		note = strings.TrimPrefix(note+": "+s.Advice, ": ")
		note = strings.TrimSuffix(note, ": ")
	}
	return note
}

// note returns the most important information that no other column shows.
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
	if s.Live != nil && s.Phase.isRunning() {
		for _, g := range s.Live.Nodes {
			if g.State.IsTrouble() {
				parts = append(parts, g.Hosts+" "+string(g.State))
			}
		}
	}
	if rank := s.straggler(); rank != "" && s.Phase.isRunning() {
		parts = append(parts, rank+" is slowest")
	}
	return printable.Line(strings.Join(parts, "; "))
}

// MaxSweepKeys is the maximum number of keys for which the table of a sweep has a column. The product
// of keys and trials determines its size, and another user may own the record of the sweep.
const MaxSweepKeys = 64

// StatusTable returns a table with one row per run, in the given order. For the trials of a
// sweep, it adds a column for each key that the sweep varies, up to [MaxSweepKeys].
func StatusTable(all []Status) screen.Table {
	rows := make([]*Status, len(all))
	for i := range all {
		rows[i] = &all[i]
	}
	t := newTable(statusColumns, rows)
	if len(all) == 0 {
		return t
	}
	keys := slices.Sorted(maps.Keys(all[0].Values))
	for _, key := range keys[:min(len(keys), MaxSweepKeys)] {
		at := len(t.Header) - 1
		// Use the last part of the key, to keep the table narrow. Another user may own the record.
		t.Header = slices.Insert(t.Header, at, strings.ToUpper(printable.Shorten(printable.Line(key[strings.LastIndexByte(key, '.')+1:]), maxCell)))
		for i := range t.Rows {
			t.Rows[i] = slices.Insert(t.Rows[i], at, printable.Shorten(printable.Line(all[i].Values[key]), maxCell))
		}
	}
	return t
}

// TopTable returns a table with one row per run, in the order of [Sort].
func TopTable(all []Status) screen.Table { return newTable(topColumns, Sort(all)) }

// maxCell is the maximum length of a cell, in bytes. Otherwise, a text of a run of another user could
// fill the screen. The details of a single run contain the whole text.
const maxCell = 2000

func newTable(columns []column, all []*Status) screen.Table {
	var t screen.Table
	for _, c := range columns {
		t.Header, t.Drop = append(t.Header, c.header), append(t.Drop, c.drop)
	}
	for _, s := range all {
		var row []string
		for _, c := range columns {
			row = append(row, printable.Shorten(printable.Line(c.text(s)), maxCell))
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// Sort returns the runs in the order of the live table: runs that have ended come last.
func Sort(all []Status) []*Status {
	sorted := make([]*Status, len(all))
	for i := range all {
		sorted[i] = &all[i]
	}
	slices.SortStableFunc(sorted, func(a, b *Status) int {
		ended := func(s *Status) int {
			if s.Phase.IsOver() || s.Finished {
				return 1
			}
			return 0
		}
		return ended(a) - ended(b)
	})
	return sorted
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
	for _, phase := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%d %s", counts[phase], phase))
	}
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
