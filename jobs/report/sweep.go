package report

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/ddpbatch/ddpbatch/internal/format"
	"github.com/ddpbatch/ddpbatch/internal/printable"
	"github.com/ddpbatch/ddpbatch/jobs/doctor/symptoms"
	"github.com/ddpbatch/ddpbatch/jobs/rundir"
	"github.com/ddpbatch/ddpbatch/jobs/watch"
	"github.com/ddpbatch/ddpbatch/slurm"
)

// Sweep is what the directory of a sweep tells of its elements.
type Sweep struct {
	Dir     rundir.Dir
	Record  rundir.Record
	Made    time.Time // when Settle was called
	Version string    // of the program that makes the page

	elements []element
}

// element is one of a sweep. Its run is without figures, of which thousands of elements
// would have too many to be kept at once.
type element struct {
	run    Run
	values map[string]string
	loss   string // the last one of the training
	best   [len(merits)]float64
	charts []*chart
}

// merit is a figure by which elements are compared.
type merit struct {
	name string
	most bool // the highest is the best
	of   func(f *Figures) []point
}

// merits in order: the first that any element has counts.
var merits = [...]merit{
	{"best accuracy", true, func(f *Figures) []point { return series(f.Eval, accuracyOf) }},
	{"lowest held-out loss", false, func(f *Figures) []point { return series(f.Eval, lossOf) }},
	{"lowest training loss", false, func(f *Figures) []point { return series(f.Train, lossOf) }},
}

// beats says whether a is better than b, which may be NaN.
func (m merit) beats(a, b float64) bool {
	return finite(a) && (math.IsNaN(b) || m.most && a > b || !m.most && a < b)
}

// CollectSweep reads the directories of a sweep's elements. One that was never submitted, or
// cannot be read, is an element all the same.
func CollectSweep(dir rundir.Dir, record rundir.Record) Sweep {
	s := Sweep{Dir: dir, Record: record}
	for i, of := range record.Sweep.Elements {
		e := element{run: collect(dir.Element(i)), values: of.Values}
		f := &e.run.Figures
		e.best = bestOf(f)
		if n := len(f.Train); n > 0 && f.Train[n-1].Loss != nil {
			e.loss = short(float64(*f.Train[n-1].Loss))
		}
		if i < maxTable {
			e.run.look()
			p := page{Run: &e.run}
			p.charts()
			for _, c := range p.Charts {
				c.ID = fmt.Sprintf("element-%d-%s", i, c.ID)
			}
			e.charts = p.Charts
		}
		e.run.Figures = Figures{}
		s.elements = append(s.elements, e)
	}
	return s
}

// bestOf is the best of each merit in a run, NaN where it has none.
func bestOf(f *Figures) (best [len(merits)]float64) {
	for k, m := range merits {
		best[k] = math.NaN()
		for _, p := range m.of(f) {
			if m.beats(p.y, best[k]) {
				best[k] = p.y
			}
		}
	}
	return best
}

// Settle finds out how the elements stand, by what was collected and by what Slurm says of
// their last jobs, by id.
func (s *Sweep) Settle(jobs map[string]slurm.JobState, now time.Time) {
	for i := range s.elements {
		r := &s.elements[i].run
		var job *slurm.JobState
		if state, ok := jobs[r.Record.LastJob()]; ok {
			job = &state
		}
		r.Settle(job, now)
	}
	s.Made = now
}

//go:embed sweep.html.tmpl
var sweepSource string

// sweepTemplate has the parts of a run's page.
var sweepTemplate = template.Must(template.Must(pageTemplate.Clone()).New("sweep").Parse(sweepSource))

// sweepPage is what the template shows.
type sweepPage struct {
	Sweep *Sweep
	Title string
	Style template.CSS // our own
	Made  string
	Tally string   // how many elements there are, and in which phase
	Merit string   // what elements are compared by; empty if none has figures
	Best  string   // which one is the best
	Keys  []string // of the job file, that elements differ in
	Rows  []sweepRow
	More  int // rows that have no part of their own
}

type sweepRow struct {
	Number     int
	State      state
	Values     []string // of the keys
	Loss, Best string
	Winner     bool
	Charts     []*chart
	Advice     string
	Known      []symptoms.Found
	Part       bool // below the table
}

// HTML writes the page, as [Run.HTML] does.
func (s Sweep) HTML(w io.Writer) error {
	p := sweepPage{Sweep: &s, Style: template.CSS(styleSource), Made: s.Made.Format(madeForm), More: max(0, len(s.elements)-maxTable)}
	by, winner := s.compare()
	if winner >= 0 {
		p.Merit = merits[by].name
	}
	var all watch.Status
	keys := map[string]bool{}
	for _, e := range s.elements {
		all.Elements = append(all.Elements, e.run.Status)
		for key := range e.values {
			keys[key] = true
		}
	}
	all.SumUp()
	p.Tally, p.Title = format.Count(len(s.elements), "element")+": "+all.Reason, s.Record.Name+": "+all.Reason
	p.Keys = slices.Sorted(maps.Keys(keys))
	for i := range s.elements {
		e := &s.elements[i]
		row := sweepRow{Number: i, State: e.run.state(), Loss: e.loss, Winner: i == winner, Charts: e.charts, Known: e.run.failures(), Part: i < maxTable}
		if f := e.run.failure(); f != nil {
			row.Advice = f.Advice
		}
		for _, key := range p.Keys {
			row.Values = append(row.Values, e.values[key])
		}
		if winner >= 0 && finite(e.best[by]) {
			row.Best = short(e.best[by])
		}
		if row.Winner {
			p.Best = fmt.Sprintf("Element %d has the %s, %s.", i, p.Merit, row.Best)
		}
		p.Rows = append(p.Rows, row)
	}
	var out bytes.Buffer // where a half page would be left behind
	if err := sweepTemplate.Execute(&out, p); err != nil {
		return fmt.Errorf("make the report: %w", err)
	}
	_, err := io.WriteString(w, printable.Mark(out.String()))
	return err
}

// compare chooses the merit that counts, and the element that has most of it, -1 where none
// has any.
func (s Sweep) compare() (by, winner int) {
	for k, m := range merits {
		winner, best := -1, math.NaN()
		for i := range s.elements {
			if m.beats(s.elements[i].best[k], best) {
				winner, best = i, s.elements[i].best[k]
			}
		}
		if winner >= 0 {
			return k, winner
		}
	}
	return 0, -1
}
