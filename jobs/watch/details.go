package watch

import (
	"cmp"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/ddpbatch/ddpbatch/internal/format"
	"github.com/ddpbatch/ddpbatch/internal/printable"
	"github.com/ddpbatch/ddpbatch/jobs/outcome"
	"github.com/ddpbatch/ddpbatch/jobs/rundir"
	"github.com/ddpbatch/ddpbatch/jobs/usage"
	"github.com/ddpbatch/ddpbatch/slurm"
	"github.com/ddpbatch/ddpbatch/trainer/metrics"
)

// A Line is one labeled line of the details of a run.
type Line struct {
	Label, Text string
	Verbatim    bool // the spaces of the text matter
}

// fewAttempts is the maximum number of attempts to list. Older attempts are only counted.
const fewAttempts = 6

// maxLastLines is the maximum number of last lines of the rank that failed first.
const maxLastLines = 10

// Details returns the details of the run as lines for the user.
func (s *Status) Details(now time.Time) []Line {
	var lines []Line
	add := func(label, format string, args ...any) {
		lines = append(lines, Line{Label: label, Text: printable.Line(fmt.Sprintf(format, args...))})
	}
	addAll := func(label string, texts []string) {
		for _, text := range texts {
			add(label, "%s", text)
			label = ""
		}
	}
	phase := string(s.Phase)
	if s.Detail != "" {
		phase += ": " + s.Detail
	}
	add("run", "%s in %s", s.Name, s.Dir)
	add("phase", "%s", phase)
	if s.Advice != "" {
		add("", "%s", s.Advice)
	}
	if s.Job == "" && s.Finding == nil && (s.Phase == Failed || s.Phase == Killed) {
		add("", "`ddpbatch logs` shows its output, and `ddpbatch doctor --log` finds known failures in it")
	}
	if s.Job != "" {
		add("job", "%s", s.job())
	}
	if text := s.chain(); text != "" {
		add("chain", "%s", text)
	}
	if s.Step != nil {
		add("progress", "%s", s.progress())
	}
	if t := s.Train; t != nil {
		loss := metricsText(t)
		if !s.Phase.isRunning() || now.Sub(t.Time) > maxLiveAge {
			loss += fmt.Sprintf(" (%s ago)", format.Duration(now.Sub(t.Time)))
		}
		add("training", "%s", loss)
		if text := communication(t); text != "" {
			add("exchange", "%s", text)
		}
		if rank := s.straggler(); rank != "" {
			add("slowest", "%s computes %.2f times as long as the median rank", rank, float64(*t.SlowestRatio))
		}
	}
	if e := s.Eval; e != nil && e.Loss != nil {
		text := "loss " + lossText(*e.Loss)
		if e.Accuracy != nil {
			text += fmt.Sprintf(", accuracy %.4f", float64(*e.Accuracy))
		}
		add("held-out", "%s, after step %d", text, e.Step)
	}
	if text := usage.Summary(s.Usage); text != "" {
		add("usage", "%s", text)
	}
	if s.Live != nil && s.Phase.isRunning() {
		addAll("nodes", s.nodes())
	}
	addAll("components", s.components())
	if c := s.Saved; c != nil {
		add("checkpoint", "%s", c.text(now))
	} else if s.Phase.IsOver() && (s.record.Goal.Trains || !s.record.Goal.Known) { // a program saves where it likes
		add("checkpoint", "none")
	}
	switch s.NoProgress {
	case 0:
	case 1:
		add("warning", "1 requeue without progress: the program does not handle the stop signal")
	default:
		add("warning", "%d requeues without progress: the program does not handle the stop signal", s.NoProgress)
	}
	if ended := s.endedAttempts(); len(ended) > 0 && s.Restarts > 0 {
		add("restarts", "%d", s.Restarts)
		addAll("", ended)
	} else {
		addAll("ended", ended)
	}
	label := "last lines"
	for _, text := range s.LastLines {
		lines = append(lines, Line{label, printable.Verbatim(text), true})
		label = ""
	}
	if f := s.Finding; f != nil {
		name := f.Name
		if f.Consequence {
			name += " (a consequence of another failure)"
		}
		add("diagnosis", "%s: %s", name, f.Cause)
		add("", "%s", f.Hint)
	}
	return lines
}

// fewHosts is the maximum number of hosts on which the lines about a component name each address.
const fewHosts = 2

// components returns a line about each component and state. After the end of the run, only the
// components that have failed are of interest.
func (s *Status) components() (lines []string) {
	type group struct {
		name  string
		phase rundir.ComponentPhase
	}
	groups := map[group][]rundir.ComponentState{}
	var order []group
	for _, c := range s.Components {
		if !s.Phase.isRunning() && c.Phase != rundir.ComponentFailed {
			continue
		}
		g := group{c.Name, c.Phase}
		if groups[g] == nil {
			order = append(order, g)
		}
		groups[g] = append(groups[g], c)
	}
	for _, g := range order {
		all := groups[g]
		var hosts, where []string
		restarts, reason := 0, ""
		for _, c := range all {
			hosts, where = append(hosts, c.Host), append(where, c.Host+" at "+c.Address)
			restarts += c.Restarts
			reason = cmp.Or(reason, c.Reason)
		}
		text := fmt.Sprintf("%s: %s on %s", g.name, g.phase, slurm.FoldHosts(hosts))
		if len(all) <= fewHosts {
			text = fmt.Sprintf("%s: %s on %s", g.name, g.phase, strings.Join(where, " and "))
		}
		if restarts > 0 {
			text += ", " + format.Count(restarts, "restart")
		}
		if reason != "" && g.phase != rundir.ComponentReady {
			text += ": " + reason
		}
		lines = append(lines, text)
	}
	return lines
}

// openChain returns the jobs of the chain that have not ended.
func (s *Status) openChain() (open []string) {
	for _, c := range s.Chain {
		if !c.State.Done() && c.State != slurm.StateUnknown {
			open = append(open, c.Job)
		}
	}
	return open
}

// chain describes the jobs of the chain that have not ended; empty without such jobs.
func (s *Status) chain() string {
	open := s.openChain()
	if len(open) == 0 {
		return ""
	}
	return format.Count(len(open), "job") + " to continue the run: " + format.List(open, 8)
}

func (s *Status) job() string {
	text := s.Job + ", " + strings.ToLower(string(s.State))
	switch {
	case s.State == slurm.StatePending:
		if s.Reason != "" {
			text += " (" + s.Reason + ")"
		}
		if s.Start != "" {
			text += ", expected to start at " + s.Start
		} else {
			text += ", no start is foreseen yet"
		}
	case s.State == slurm.StateUnknown && s.Reason == "":
		text = s.Job + ", Slurm did not answer"
	case s.State == slurm.StateUnknown:
		text += ": " + s.Reason
	default:
		if s.Nodes != "" {
			text += " on " + s.Nodes
		}
		if s.Elapsed != "" && s.Elapsed != "0:00" {
			text += ", ran " + s.Elapsed
		}
		if s.State.Done() && s.ExitCode != "" {
			text += ", " + slurm.FormatExitCode(s.ExitCode)
		}
	}
	if s.Requeues > 0 {
		text += ", requeued " + times(s.Requeues)
	}
	return text
}

func times(n int) string {
	switch n {
	case 1:
		return "once"
	case 2:
		return "twice"
	}
	return fmt.Sprintf("%d times", n)
}

// progress returns the step, the epoch, and the remaining time of training.
func (s *Status) progress() string {
	text := fmt.Sprintf("step %d", *s.Step)
	if s.Steps > 0 {
		text += fmt.Sprintf(" of %d (%s)", s.Steps, format.Percent(float64(*s.Step)/float64(s.Steps)))
	}
	epoch := 0
	if s.Train != nil {
		epoch = s.Train.Epoch + 1
	}
	switch {
	case s.Epochs == 0 || s.Train == nil:
	case s.Finished && epoch > s.Epochs:
		text += fmt.Sprintf(", epoch %d, the job file requests %d", epoch, s.Epochs)
	default:
		text += fmt.Sprintf(", epoch %d of %d", min(epoch, s.Epochs), s.Epochs)
	}
	if left, ok := s.left(); ok && s.Phase.isRunning() {
		text += fmt.Sprintf(", %s left", format.Duration(left))
	}
	return text
}

// left returns the remaining time of training, as last reported. It returns false if
// unknown.
func (s *Status) left() (time.Duration, bool) {
	if s.Train == nil || s.Train.LeftSeconds == nil || math.IsNaN(float64(*s.Train.LeftSeconds)) {
		return 0, false
	}
	return time.Duration(min(float64(*s.Train.LeftSeconds), 1e9) * float64(time.Second)), true
}

// metricsText formats the loss, the throughput, and the step time.
func metricsText(t *metrics.Record) string {
	var parts []string
	if t.Loss != nil {
		parts = append(parts, "loss "+lossText(*t.Loss))
	}
	if r := rate(t); r != "" {
		parts = append(parts, r)
	}
	if t.StepMillis != nil {
		parts = append(parts, stepText(float64(*t.StepMillis)))
	}
	return strings.Join(parts, ", ")
}

// stepText formats the duration of a step. It prints no exponents for durations of less than a day,
// such as 1e+03 for 999.6.
func stepText(millis float64) string {
	unit, value := "ms", millis
	if value >= 999.5 {
		unit, value = "s", value/1000
	}
	if value >= 999.5 && value < 86_400 {
		return format.Number(value) + " " + unit + " per step"
	}
	return fmt.Sprintf("%.3g %s per step", value, unit)
}

// lossText formats a loss with four decimal places, or with four digits if it is huge.
func lossText(v metrics.Number) string {
	if math.Abs(float64(v)) >= 1e6 {
		return fmt.Sprintf("%.4g", float64(v))
	}
	return fmt.Sprintf("%.4f", float64(v))
}

func rate(t *metrics.Record) string {
	switch {
	case t.TokensPerSecond != nil:
		return format.Number(float64(*t.TokensPerSecond)) + " tokens/s"
	case t.SamplesPerSecond != nil:
		return format.Number(float64(*t.SamplesPerSecond)) + " samples/s"
	}
	return ""
}

// communication describes the cost of communication between ranks. It returns an empty string
// if the record does not contain this cost.
func communication(t *metrics.Record) string {
	share, ok := communicationShare(t)
	if !ok {
		return ""
	}
	return fmt.Sprintf("%s of a step waits for communication; %s of the communication is hidden", format.Percent(share), format.Percent(float64(*t.CommHidden)))
}

// straggler returns the rank that the trainer has found to be a straggler, with its host if
// known. It returns an empty string if there is no straggler.
func (s *Status) straggler() string {
	t := s.Train
	if t == nil || !t.Straggler || t.SlowestRank == nil || t.SlowestRatio == nil {
		return ""
	}
	text := fmt.Sprintf("rank %d", *t.SlowestRank)
	if host := s.hostOf(*t.SlowestRank); host != "" {
		text += " on " + host
	}
	return text
}

func (s *Status) hostOf(rank int) string {
	if s.Live == nil || s.Live.PerNode < 1 {
		return ""
	}
	at := rank / s.Live.PerNode
	if s.Live.TasksPerNode != "" {
		at = slurm.NodeOfTask(s.Live.TasksPerNode, rank)
	}
	if rank < 0 {
		return ""
	}
	host, _ := slurm.HostAt(s.Live.Hosts, at)
	return printable.Line(host)
}

// nodes describes the nodes, grouped by state. Nodes with problems come first.
func (s *Status) nodes() []string {
	var all []string
	for _, g := range s.Live.Nodes {
		text := g.Hosts + " " + string(g.State)
		if g.State.IsTrouble() || g.State == rundir.RankJoining {
			text += " (" + ranksOf(g.Ranks, g.Count) + ")"
		}
		if g.Most > 0 {
			text += fmt.Sprintf(", step %d", g.Least)
			if g.Most != g.Least {
				text += fmt.Sprintf(" to %d", g.Most)
			}
		}
		all = append(all, text)
	}
	return all
}

// ranksOf lists the given ranks, which are the first ones of n ranks.
func ranksOf(few []int, n int) string {
	parts := make([]string, len(few))
	for i, r := range few {
		parts[i] = fmt.Sprint(r)
	}
	text := "rank " + strings.Join(parts, ", ")
	if n != 1 {
		text = "ranks " + strings.Join(parts, ", ")
	}
	if more := n - len(few); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

func (c *Checkpoint) text(now time.Time) string {
	text := fmt.Sprintf("step %d", c.Step)
	if !c.Time.IsZero() {
		text += fmt.Sprintf(", %s ago, %s", format.Duration(now.Sub(c.Time)), format.Bytes(c.Bytes))
	}
	switch {
	case c.Newer != "":
		text += ", " + c.Newer
	case c.Damaged != "":
		text += ", damaged: " + c.Damaged
	case c.Verified:
		text += ", verified: every byte is as it was written"
	default:
		text += ", not read back (--verify does)"
	}
	return text
}

// endedAttempts returns a line for each attempt that ended before the run was complete. Attempts
// are numbered across all launchers.
func (s *Status) endedAttempts() (lines []string) {
	for i, a := range s.Attempts {
		last := i == len(s.Attempts)-1
		what := a.Cause
		switch {
		case a.Exit == nil && last && !s.Phase.IsOver():
			continue // still running
		case a.Exit == nil:
			what = "it was killed together with its launcher"
		case a.End() == outcome.Finished:
			continue
		case what == "":
			what = fmt.Sprintf("exit code %d", *a.Exit)
		}
		when := a.Ended
		if when.IsZero() {
			when = a.Began
		}
		text := when.Local().Format("Jan 2 15:04") + ", "
		if a.JobID != "" {
			text += "job " + a.JobID + ", "
		}
		text += fmt.Sprintf("attempt %d: %s", i+1, what)
		if a.Step > 0 {
			text += fmt.Sprintf(", at step %d", a.Step)
		}
		if a.Then != "" {
			text += "; " + a.Then
		}
		lines = append(lines, text)
	}
	if more := len(lines) - fewAttempts; more > 0 {
		lines = append([]string{fmt.Sprintf("%d earlier ones are in attempts.jsonl", more)}, lines[more:]...)
	}
	return lines
}
