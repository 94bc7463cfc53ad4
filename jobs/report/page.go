package report

import (
	"bytes"
	"cmp"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/ddpbatch/ddpbatch/internal/format"
	"github.com/ddpbatch/ddpbatch/internal/printable"
	"github.com/ddpbatch/ddpbatch/jobs/doctor/symptoms"
	"github.com/ddpbatch/ddpbatch/jobs/outcome"
	"github.com/ddpbatch/ddpbatch/jobs/rundir"
	"github.com/ddpbatch/ddpbatch/jobs/watch"
)

//go:embed page.html.tmpl
var pageSource string

//go:embed page.css
var styleSource string

var pageTemplate = sync.OnceValue(parsePage)

func parsePage() *template.Template {
	return template.Must(template.New("page").Parse(pageSource))
}

// page is the data of the template: texts and prepared charts.
type page struct {
	Run   *Run
	Title string
	Style template.CSS // embedded in this program
	State state
	Made  string

	Facts         []fact
	Charts        []*chart
	Communication string
	Bars          *rankChart
	Ranks         []rankTimes
	RanksCut      int
	RanksSay      string
	Network       *rundir.Network
	Hosts         []rundir.NetworkHost
	HostsCut      int
	Checkpoints   []checkpointRow
	Attempts      []attemptRow
	Causes        []failureSection
	Known         []symptoms.Found
	Origin        []fact
	Submissions   []rundir.Submission
}

type fact struct{ Name, Value string }

type checkpointRow struct{ Step, Epoch, Ranks, Size, Time, Note string }

type attemptRow struct {
	Number, Job, Began, Took, Where, Exit, Cause string
	Bad                                          bool
}

// A failureSection describes in detail why an attempt failed.
type failureSection struct {
	Title, Reason, Hint string
	LastLines           string     // that the program of the first rank printed
	Ranks               [][]string // rank, host, state, exit, step, phase, and message
	Cut                 int
}

// maxTable is the maximum number of rows in the tables of hosts, ranks, and checkpoints.
const maxTable = 64

// madeFormat is the format of the creation time of a report.
const madeFormat = "2006-01-02 15:04 MST"

// knownFailures returns the known failures in the log of the run. It returns none for a run that
// is complete without restarts, because such texts then do not indicate a failure.
func (r *Run) knownFailures() []symptoms.Found {
	if r.Status.Phase == watch.Done && r.Status.Restarts == 0 {
		return nil
	}
	return r.Known
}

// HTML writes the report. The output contains no control characters, so it is safe to print it
// on a terminal.
func (r Run) HTML(w io.Writer) error {
	p := page{Run: &r, Style: template.CSS(styleSource), State: r.describeState(), Made: r.Made.Format(madeFormat), Known: r.knownFailures()}
	p.Title = cmp.Or(r.Name, "run") + ": " + p.State.Word
	p.addFacts()
	p.addCharts()
	p.addRanks()
	if p.Network = r.Network; p.Network != nil {
		p.Hosts, p.HostsCut = truncate(p.Network.Hosts)
	}
	p.addCheckpoints()
	p.addAttempts()
	p.addCauses()
	p.addOrigin()
	var out bytes.Buffer // writes to w only after the whole page is ready
	if err := pageTemplate().Execute(&out, p); err != nil {
		return fmt.Errorf("render report: %w", err)
	}
	_, err := io.WriteString(w, printable.Mark(out.String()))
	return err
}

func truncate[T any](all []T) (some []T, more int) {
	n := min(len(all), maxTable)
	return all[:n], len(all) - n
}

func (p *page) addFacts() {
	r := p.Run
	add := func(name, value string) { p.Facts = append(p.Facts, fact{name, value}) }
	f := &r.Metrics
	if n := len(f.Train); n > 0 {
		last := f.Train[n-1]
		add("step", strconv.Itoa(last.Step))
		if last.Loss != nil {
			add("training loss", formatValue(float64(*last.Loss)))
		}
		var rates []float64
		for _, point := range series(f.Train, rateOf) {
			if finite(point.y) {
				rates = append(rates, point.y)
			}
		}
		if slices.Sort(rates); len(rates) > 0 {
			add(rateUnit(f)+" (median)", formatValue(median(rates)))
		}
	}
	if n := len(f.Eval); n > 0 {
		last := f.Eval[n-1]
		if last.Loss != nil {
			add("held-out loss", formatValue(float64(*last.Loss)))
		}
		if last.Accuracy != nil {
			add("accuracy", formatValue(float64(*last.Accuracy)))
		}
	}
	if all := r.Status.Attempts; len(all) > 0 {
		add("ranks", strconv.Itoa(all[len(all)-1].Ranks))
		var spent time.Duration
		for _, a := range all {
			spent += attemptDuration(a)
		}
		add("run time", format.Duration(spent))
		add("restarts", strconv.Itoa(r.Status.Restarts))
	}
	if f.Skipped > 0 {
		add("skipped steps", strconv.Itoa(f.Skipped))
	}
}

func rateUnit(f *Metrics) string {
	for i := range f.Train {
		if f.Train[i].TokensPerSecond != nil {
			return "tokens/s"
		}
	}
	return "samples/s"
}

func (p *page) addCheckpoints() {
	entries, _ := truncate(p.Run.Checkpoints)
	for _, e := range entries {
		s := checkpointRow{Step: strconv.Itoa(e.Step)}
		switch m := e.Manifest; {
		case e.Err != nil:
			s.Note = "unusable: " + e.Err.Error()
		case m != nil:
			bytes := int64(0)
			for _, f := range m.Files {
				bytes += f.Bytes
			}
			s.Epoch, s.Ranks, s.Size, s.Time = strconv.Itoa(m.Epoch), strconv.Itoa(m.WorldSize), format.Bytes(bytes), formatTime(m.Created)
			if m.Finished {
				s.Note = "finished"
			}
		}
		p.Checkpoints = append(p.Checkpoints, s)
	}
}

func formatTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02 15:04:05")
}

// attemptDuration returns the duration of an attempt, or 0 if its end is unknown.
func attemptDuration(a outcome.Attempt) time.Duration {
	if a.Ended.IsZero() {
		return 0
	}
	return a.Ended.Sub(a.Began)
}

func formatDuration(a outcome.Attempt) string {
	if a.Ended.IsZero() {
		return ""
	}
	return format.Duration(attemptDuration(a))
}

func (p *page) addAttempts() {
	for i, a := range p.Run.Status.Attempts {
		row := attemptRow{Number: strconv.Itoa(i + 1), Job: a.JobID, Began: formatTime(a.Began), Took: formatDuration(a), Where: a.Hosts, Cause: a.Cause}
		if a.Requeues > 0 {
			row.Job += fmt.Sprintf(" (requeued %d times)", a.Requeues)
		}
		if a.Exit == nil {
			row.Cause = "no end recorded: still running, or killed with its launcher"
		} else {
			row.Exit, row.Bad = strconv.Itoa(*a.Exit), a.End() == outcome.Failed
		}
		if a.Then != "" {
			row.Cause = strings.TrimPrefix(row.Cause+"; "+a.Then, "; ")
		}
		p.Attempts = append(p.Attempts, row)
	}
}

func (p *page) addCauses() {
	f := p.Run.Failure
	if f == nil {
		return
	}
	// Attempt numbers in failure.json count within one launcher, and the table counts all
	// attempts. So the title does not contain the number.
	c := failureSection{Title: fmt.Sprintf("The last failure: %s (UTC), exit code %d", formatTime(f.Time), f.Exit)}
	if f.First != nil {
		c.Reason, c.Hint = f.First.Reason, f.First.Advice
	}
	c.LastLines = printable.Text(strings.Join(f.LastLines, "\n"))
	ranks, more := truncate(f.Ranks)
	c.Cut = more
	for _, r := range ranks {
		exit := strconv.Itoa(r.Exit)
		if r.Signal != "" {
			exit += " (" + r.Signal + ")"
		}
		c.Ranks = append(c.Ranks, []string{strconv.Itoa(r.Rank), r.Host, string(r.State), exit, strconv.Itoa(r.Step), r.Phase, r.Error})
	}
	p.Causes = append(p.Causes, c)
}

// state is the status of a run as a word and as sentences.
type state struct {
	Word, Text string
	Tone       string // color: good, wait, or bad
}

// describeState returns the phase of the run, as `ddpbatch status` shows it.
func (r *Run) describeState() state {
	s := r.Status
	st := state{Word: string(s.Phase), Tone: "wait"}
	switch s.Phase {
	case watch.Done:
		st.Tone = "good"
		if s.Finished && s.Checkpoint != nil {
			st.Text = fmt.Sprintf("Training finished after %d steps.", *s.Checkpoint)
		}
	case watch.Failed, watch.Killed:
		st.Tone = "bad"
	}
	var words []string
	for _, text := range []string{st.Text, s.Detail, s.Advice} {
		if text != "" {
			words = append(words, sentence(text))
		}
	}
	// A job that was submitted after the training was complete, and then canceled, does not
	// change the result.
	if r.End != nil && s.Phase.IsOver() && (s.Phase != watch.Done || r.End.Exit == 0) {
		words = append(words, fmt.Sprintf("Exit code %d.", r.End.Exit))
	}
	st.Text = strings.Join(words, " ")
	return st
}

// sentence capitalizes the first letter of a message and adds a period at its end.
func sentence(s string) string {
	s = strings.TrimSpace(s)
	if s == "" {
		return ""
	}
	first, size := utf8.DecodeRuneInString(s)
	s = string(unicode.ToUpper(first)) + s[size:]
	if !strings.HasSuffix(s, ".") {
		s += "."
	}
	return s
}

// addOrigin adds the facts that are needed to reproduce the run.
func (p *page) addOrigin() {
	r := p.Run
	add := func(name, value string) {
		if value != "" {
			p.Origin = append(p.Origin, fact{name, value})
		}
	}
	add("run directory", r.Dir.Path)
	add("run", r.Record.Run)
	add("directory of the job file", r.Record.Base)
	add("created (UTC)", formatTime(r.Record.Created))
	add("created by ddpbatch", r.Record.Version)
	if len(r.Checkpoints) > 0 && r.Checkpoints[0].Manifest != nil {
		m := r.Checkpoints[0].Manifest
		add("last checkpoint by ddpbatch", m.Program)
		add("seed", strconv.FormatUint(m.Seed, 10))
		add("digest of the data", m.DataDigest)
		add("digest of the settings", m.SpecDigest)
	}
	if s := r.Record.Last(); s != nil {
		add("Slurm", s.Slurm)
		add("site", s.Site)
		add("submitted by", s.User+" on "+s.Host)
		add("job file (SHA-256)", s.SpecSHA256)
		add("program (SHA-256)", s.ProgramSHA256)
	}
	p.addCode(add)
	p.Submissions = r.Record.Submissions
}

// addCode adds the state of the user's program as submitted. Without a submission, it uses the
// state that the last attempt recorded.
func (p *page) addCode(add func(name, value string)) {
	code := p.Run.Code
	if s := p.Run.Record.Last(); s != nil && s.Code != nil {
		code = s.Code
	}
	if code == nil {
		return
	}
	add("code", code.Folder)
	commit := code.Commit
	switch {
	case commit == "":
		commit = "none: not a git work tree, or git is not installed"
	case code.Dirty:
		commit += ", with uncommitted changes"
	}
	add("git commit", commit)
	add("git branch", code.Branch)
	add("git remote", code.Remote)
	add("snapshot (SHA-256)", code.SHA256)
}
