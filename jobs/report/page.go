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
	"github.com/ddpbatch/ddpbatch/jobs/usage"
	"github.com/ddpbatch/ddpbatch/jobs/watch"
	"github.com/ddpbatch/ddpbatch/trainer/checkpoint"
	"github.com/ddpbatch/ddpbatch/trainer/rendezvous"
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

	Command        string // of a user's program
	When           string // time and place of the run
	Facts          []fact
	Charts         []*chart
	Communication  string
	Bars           *rankChart
	Ranks          []rankTimes
	RanksCut       int
	RanksSay       string
	Network        *rundir.Network
	Hosts          []rundir.NetworkHost
	HostsCut       int
	Checkpoints    []checkpointRow
	CheckpointsCut int
	HasJobs        bool // any attempt belongs to a job
	Attempts       []attemptRow
	Causes         []failureSection
	Known          []symptoms.Found
	KnownFirst     bool // known failures belong to the failure at the top
	Usage          *usageSection
	Origin         []fact
	Submissions    []rundir.Submission
}

type fact struct{ Name, Value string }

// maxFacts is the number of facts from which addFacts omits further components.
const maxFacts = 24

type checkpointRow struct{ Step, Epoch, Ranks, Size, Time, Note string }

type attemptRow struct {
	Number, Job, Began, Took, Where, Exit, Cause string
	Bad                                          bool
}

// A failureSection describes in detail why an attempt failed.
type failureSection struct {
	Title, Reason, Hint string
	Where               string           // rank and host, for the last lines
	LastLines           string           // that the program of the first rank printed
	Finding             *outcome.Finding // of the launcher, if the log of the run does not have it
	Head                []string         // of Ranks
	Ranks               [][]string       // a table with the columns of Head
	Message             int              // column of the messages
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

// ownFinding returns the launcher's finding about the last failure if the log of the run does not have
// its message. With command.output = "per-rank" or "rank0", the message is in the output of the rank.
func (r *Run) ownFinding() *outcome.Finding {
	if r.Failure == nil || r.Failure.Finding == nil || slices.ContainsFunc(r.Known, func(k symptoms.Found) bool { return k.Name == r.Failure.Finding.Name }) {
		return nil
	}
	return r.Failure.Finding
}

// HTML writes the report. The output contains no control characters, so it is safe to print it
// on a terminal.
func (r Run) HTML(w io.Writer) error {
	p := page{Run: &r, Style: template.CSS(styleSource), State: r.describeState(), Made: r.Made.Format(madeFormat), Known: r.knownFailures()}
	p.Title = cmp.Or(r.Name, "run") + ": " + p.State.Phase
	p.addSummary()
	p.addFacts()
	p.addCharts()
	p.addUsage()
	p.addRanks()
	if p.Network = r.Network; p.Network != nil {
		p.Hosts, p.HostsCut = truncate(p.Network.Hosts)
	}
	p.addCheckpoints()
	p.addAttempts()
	p.addCauses()
	p.KnownFirst = len(p.Known) > 0 && (len(p.Causes) > 0 || p.State.Tone == "bad")
	p.addOrigin()
	return render(w, pageTemplate(), p)
}

// render writes to w only after the whole page is ready.
func render(w io.Writer, t *template.Template, page any) error {
	var out bytes.Buffer
	if err := t.Execute(&out, page); err != nil {
		return fmt.Errorf("render report: %w", err)
	}
	_, err := io.WriteString(w, printable.Mark(out.String()))
	return err
}

func truncate[T any](all []T) (some []T, more int) {
	n := min(len(all), maxTable)
	return all[:n], len(all) - n
}

// addSummary adds the command line of a user's program, and when and where the run took place.
func (p *page) addSummary() {
	var words []string
	for _, w := range p.Run.Argv {
		if w == "" || strings.ContainsFunc(w, unicode.IsSpace) {
			w = strconv.Quote(w)
		}
		words = append(words, w)
	}
	p.Command = strings.Join(words, " ")
	all := p.Run.Status.Attempts
	if len(all) == 0 {
		return
	}
	first, last := all[0].Began.UTC(), all[len(all)-1].Ended.UTC()
	p.When = first.Format("2 January 2006, 15:04")
	switch {
	case last.IsZero():
	case last.Format(time.DateOnly) == first.Format(time.DateOnly):
		p.When += last.Format(" to 15:04")
	default:
		p.When += last.Format(" to 2 January 2006, 15:04")
	}
	p.When += " UTC"
	if hosts := all[len(all)-1].Hosts; hosts != "" {
		p.When += ", on " + hosts
	}
}

func (p *page) addFacts() {
	r := p.Run
	add := func(name, value string) { p.Facts = append(p.Facts, fact{name, value}) }
	f := &r.Metrics
	if n := len(f.Train); n > 0 {
		last := f.Train[n-1]
		step := strconv.Itoa(last.Step)
		if last.Steps > last.Step {
			step += " of " + strconv.Itoa(last.Steps)
		}
		add("step", step)
		if last.Loss != nil {
			add("training loss", formatValue(float64(*last.Loss)))
		}
		if rates := sortedValues(f.Train, rateOf); len(rates) > 0 {
			add(rateUnit(f)+" (median)", formatValue(median(rates)))
		} else if times := sortedValues(f.Train, stepTimeOf); len(times) > 0 {
			add("ms per step (median)", formatValue(median(times)))
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
	for _, c := range r.Status.Components {
		value := string(c.Phase) + " on " + c.Host
		if c.Restarts > 0 {
			value += ", " + format.Count(c.Restarts, "restart")
		}
		if len(p.Facts) < maxFacts {
			add(printable.Line("component "+c.Name), printable.Line(value))
		}
	}
	if mean, ok := usage.BusyMean(r.Usage); ok {
		add("GPUs busy", format.Percent(mean))
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
	var entries []checkpoint.Entry
	entries, p.CheckpointsCut = truncate(p.Run.Checkpoints)
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
		p.Attempts, p.HasJobs = append(p.Attempts, row), p.HasJobs || row.Job != ""
	}
}

func (p *page) addCauses() {
	f := p.Run.Failure
	if f == nil {
		return
	}
	// Attempt numbers in failure.json count within one launcher, and the table counts all
	// attempts. So the title does not contain the number.
	c := failureSection{Title: fmt.Sprintf("The last failure: %s (UTC), exit code %d", formatTime(f.Time), f.Exit), Where: "the rank that failed first"}
	if f.First != nil {
		c.Reason, c.Hint = sentence(f.First.Error()), f.First.Advice
		if f.First.Rank >= 0 {
			c.Where = fmt.Sprintf("rank %d%s, which failed first", f.First.Rank, onHost(f.First.Host))
		}
	}
	if strings.Contains(p.State.Text, c.Reason) {
		c.Reason = "" // it is at the top of the page
	}
	c.LastLines = printable.Text(strings.Join(f.LastLines, "\n"))
	c.Finding = p.Run.ownFinding()
	ranks, more := truncate(f.Ranks)
	c.Cut = more
	// A user's program reports neither steps nor phases to its launcher.
	steps := slices.ContainsFunc(ranks, func(r rendezvous.RankStatus) bool { return r.Step > 0 || r.Phase != "" })
	c.Head = []string{"rank", "host", "state", "exit"}
	if steps {
		c.Head = append(c.Head, "step", "at")
	}
	c.Message, c.Head = len(c.Head), append(c.Head, "message")
	for _, r := range ranks {
		exit := strconv.Itoa(r.Exit)
		if r.Signal != "" {
			exit += " (" + r.Signal + ")"
		}
		row := []string{strconv.Itoa(r.Rank), r.Host, string(r.State), exit}
		if steps {
			row = append(row, strconv.Itoa(r.Step), r.Phase)
		}
		c.Ranks = append(c.Ranks, append(row, r.Error))
	}
	p.Causes = append(p.Causes, c)
}

// state is the status of a run as a phase and as sentences.
type state struct {
	Phase, Text string
	Tone        string // color: good, wait, or bad
}

// describeState returns the phase of the run, as `ddpbatch status` shows it.
func (r *Run) describeState() state {
	s := r.Status
	st := state{Phase: string(s.Phase), Tone: "wait"}
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
	// A job that was submitted after training was complete, and then canceled, does not
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
