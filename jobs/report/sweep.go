package report

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/ddpbatch/ddpbatch/internal/format"
	"github.com/ddpbatch/ddpbatch/internal/printable"
	"github.com/ddpbatch/ddpbatch/jobs/doctor/symptoms"
	"github.com/ddpbatch/ddpbatch/jobs/outcome"
	"github.com/ddpbatch/ddpbatch/jobs/rundir"
	"github.com/ddpbatch/ddpbatch/jobs/watch"
	"github.com/ddpbatch/ddpbatch/slurm"
)

// Sweep is the data of a report about a sweep.
type Sweep struct {
	Dir     rundir.Dir
	Record  rundir.Record
	Made    time.Time // time of the call of SetStatus
	Version string    // version of the program that creates the report

	trials []trial
}

// A trial holds the data of one trial. Its run does not contain metrics, because the metrics of
// thousands of trials would need too much memory.
type trial struct {
	run    Run
	values map[string]string
	loss   string // last training loss
	best   [len(trialMetrics)]float64
	charts []*chart
}

// trialMetric is a metric that compares the trials of a sweep.
type trialMetric struct {
	name           string
	higherIsBetter bool
	points         func(f *Metrics) []point
}

// trialMetrics lists the metrics by priority. The first metric that any trial has is used.
var trialMetrics = [...]trialMetric{
	{"best accuracy", true, func(f *Metrics) []point { return series(f.Eval, accuracyOf) }},
	{"lowest held-out loss", false, func(f *Metrics) []point { return series(f.Eval, lossOf) }},
	{"lowest training loss", false, func(f *Metrics) []point { return series(f.Train, lossOf) }},
}

// isBetter reports whether a is better than b. Both may be NaN.
func (m trialMetric) isBetter(a, b float64) bool {
	return finite(a) && (math.IsNaN(b) || m.higherIsBetter && a > b || !m.higherIsBetter && a < b)
}

// CollectSweep reads the run directories of a sweep's trials. It includes trials that were
// never submitted or cannot be read.
func CollectSweep(dir rundir.Dir, record rundir.Record) Sweep {
	s := Sweep{Dir: dir, Record: record}
	for i, recorded := range record.Sweep.Elements {
		e := trial{run: collect(dir.Element(i)), values: recorded.Values}
		f := &e.run.Metrics
		e.best = bestOf(f)
		if n := len(f.Train); n > 0 && f.Train[n-1].Loss != nil {
			e.loss = formatValue(float64(*f.Train[n-1].Loss))
		}
		if i < maxTable {
			e.run.scanLog(maxTrialLog)
			p := page{Run: &e.run}
			p.addCharts()
			for _, c := range p.Charts {
				c.ID = fmt.Sprintf("trial-%d-%s", i, c.ID)
			}
			e.charts = p.Charts
		} else {
			e.run.shrink()
		}
		// The report of a sweep does not contain these. Another user may own the trials.
		e.run.Metrics, e.run.Usage, e.run.Status.Usage, e.run.Status.Components = Metrics{}, nil, nil, nil
		s.trials = append(s.trials, e)
	}
	return s
}

// shrink removes what only the section of a trial shows. The job files and scripts of thousands of
// trials can have gigabytes.
func (r *Run) shrink() {
	r.Spec, r.Script, r.Checkpoints = "", "", nil
	if r.Failure != nil {
		failure := *r.Failure
		failure.Ranks = nil
		r.Failure = &failure
	}
}

// bestOf returns the best value of each metric in a run, or NaN if the run does not have the
// metric.
func bestOf(f *Metrics) (best [len(trialMetrics)]float64) {
	for k, m := range trialMetrics {
		best[k] = math.NaN()
		for _, p := range m.points(f) {
			if m.isBetter(p.y, best[k]) {
				best[k] = p.y
			}
		}
	}
	return best
}

// SetStatus determines the status of all trials from the collected data and from Slurm's reports
// about their last jobs, by job ID.
func (s *Sweep) SetStatus(jobs map[string]slurm.JobState, now time.Time) {
	for i := range s.trials {
		r := &s.trials[i].run
		var job *slurm.JobState
		if state, ok := jobs[r.Record.LastJob()]; ok {
			job = &state
		}
		r.SetStatus(job, now)
	}
	s.Made = now
}

//go:embed sweep.html.tmpl
var sweepSource string

// sweepTemplate includes the parts of the template of a run.
var sweepTemplate = sync.OnceValue(func() *template.Template {
	return template.Must(parsePage().New("sweep").Parse(sweepSource))
})

// maxKeyName is the maximum length of a key in a report, in bytes. The section of each trial repeats
// all keys.
const maxKeyName = 200

// sweepPage is the data of the template.
type sweepPage struct {
	Sweep *Sweep
	Title string
	Style template.CSS // embedded in this program
	Made  string
	Tally string   // number of trials, total and per phase
	Merit string   // metric that compares the trials; empty if no trial has metrics
	Best  string   // description of the best trial
	Keys  []string // keys of the job file that differ between trials, at most [watch.MaxSweepKeys]
	Names []string // shortened keys
	// KeysCut is the number of keys that are omitted.
	KeysCut int
	Rows    []sweepRow
	More    int // number of rows without a section
}

type sweepRow struct {
	Number     int
	State      state
	Values     []string // by key
	Loss, Best string
	Winner     bool
	Charts     []*chart
	Advice     string
	Finding    *outcome.Finding
	Known      []symptoms.Found
	Part       bool // the trial has a section below the table
}

// HTML writes the report, as [Run.HTML] does.
func (s Sweep) HTML(w io.Writer) error {
	p := sweepPage{Sweep: &s, Style: template.CSS(styleSource), Made: s.Made.Format(madeFormat), More: max(0, len(s.trials)-maxTable)}
	metric, winner := s.findBest()
	if winner >= 0 {
		p.Merit = trialMetrics[metric].name
	}
	var all watch.Status
	keys := map[string]bool{}
	for _, e := range s.trials {
		all.Elements = append(all.Elements, e.run.Status)
		for key := range e.values {
			keys[key] = true
		}
	}
	all.SumUp()
	p.Tally, p.Title = format.Count(len(s.trials), "trial")+": "+all.Reason, s.Record.Name+": "+all.Reason
	p.Keys = slices.Sorted(maps.Keys(keys))
	if more := len(p.Keys) - watch.MaxSweepKeys; more > 0 {
		p.Keys, p.KeysCut = p.Keys[:watch.MaxSweepKeys], more
	}
	for _, key := range p.Keys {
		p.Names = append(p.Names, printable.Shorten(key, maxKeyName))
	}
	for i := range s.trials {
		e := &s.trials[i]
		row := sweepRow{Number: i, State: e.run.describeState(), Loss: e.loss, Winner: i == winner, Charts: e.charts, Known: e.run.knownFailures(), Part: i < maxTable}
		if f := e.run.firstFailure(); f != nil {
			row.Advice, row.Finding = f.Advice, e.run.ownFinding()
		}
		for _, key := range p.Keys {
			row.Values = append(row.Values, e.values[key])
		}
		if winner >= 0 && finite(e.best[metric]) {
			row.Best = formatValue(e.best[metric])
		}
		if row.Winner {
			p.Best = fmt.Sprintf("Trial %d has the %s, %s.", i, p.Merit, row.Best)
		}
		p.Rows = append(p.Rows, row)
	}
	return render(w, sweepTemplate(), p)
}

// findBest returns the metric that compares the trials, and the best trial. Winner is -1 if no
// trial has any metric.
func (s Sweep) findBest() (by, winner int) {
	for k, m := range trialMetrics {
		winner, best := -1, math.NaN()
		for i := range s.trials {
			if m.isBetter(s.trials[i].best[k], best) {
				winner, best = i, s.trials[i].best[k]
			}
		}
		if winner >= 0 {
			return k, winner
		}
	}
	return 0, -1
}
