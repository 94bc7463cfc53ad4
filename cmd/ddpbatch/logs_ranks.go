package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"sync/atomic"

	"github.com/ddpbatch/ddpbatch/internal/format"
	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/jobs/launch"
	"github.com/ddpbatch/ddpbatch/jobs/launch/output"
	"github.com/ddpbatch/ddpbatch/jobs/outcome"
	"github.com/ddpbatch/ddpbatch/jobs/rundir"
	"github.com/ddpbatch/ddpbatch/jobs/runs"
	"github.com/ddpbatch/ddpbatch/slurm"
)

// A rankOutput is the output of one rank, of a node whose ranks share an output, or of one start of a
// component.
type rankOutput struct {
	base      string // of its file names
	number    int    // rank or node
	isRank    bool
	component string // name; empty for a rank or a node
	restart   int    // of the component
}

// label returns the text that begins the lines if several outputs are printed.
func (r rankOutput) label() string {
	if r.isRank {
		return fmt.Sprintf("[rank %d] ", r.number)
	}
	return fmt.Sprintf("[node %d] ", r.number)
}

// attemptOutput is the output of the ranks of one attempt of a user's program.
type attemptOutput struct {
	dir     rundir.Dir
	attempt int
	ranks   []rankOutput
	nodes   []rankOutput
	parts   []rankOutput // of components, in the order of nodes and restarts
	hosts   []string     // in the order of the nodes; nil if unknown
	tasks   string       // number of ranks on each of hosts, such as "4,2(x3)"; empty if it is equal
	world   int          // number of processes that the launcher started
}

// selectsRanks reports whether the flags select the output of ranks.
func (c *logsCmd) selectsRanks() bool {
	return (c.Rank != nil || c.Node != "" || c.Failed || c.Component != "" || c.Attempt > 0 || c.all) && !c.Events
}

// readOutput returns the output of an attempt, or of the newest attempt if it is 0. The result is
// nil if the run has no output of ranks.
func readOutput(run runs.Run, attempt int) (*attemptOutput, error) {
	attempts, err := run.Dir.OutputAttempts()
	if err != nil || len(attempts) == 0 {
		return nil, err
	}
	if attempt == 0 {
		attempt = attempts[len(attempts)-1]
	}
	if !slices.Contains(attempts, attempt) {
		return nil, exitError{exitUsage, fmt.Errorf("there is no output of attempt %d: the run directory has the output of %s", attempt, format.Numbered("attempt", attempts))}
	}
	names, err := run.Dir.ListRankOutput(attempt)
	if err != nil {
		return nil, err
	}
	o := &attemptOutput{dir: run.Dir, attempt: attempt}
	for _, name := range names {
		number, isRank, ok := output.ParseBase(name)
		component, node, restart, isComponent := output.ParseComponentBase(name)
		switch {
		case isComponent:
			o.parts = append(o.parts, rankOutput{base: output.ComponentBase(component, node, restart), number: node, component: component, restart: restart})
		case !ok:
		case isRank:
			o.ranks = append(o.ranks, rankOutput{base: output.RankBase(number), number: number, isRank: true})
		default:
			o.nodes = append(o.nodes, rankOutput{base: output.NodeBase(number), number: number})
		}
	}
	slices.SortFunc(o.parts, func(a, b rankOutput) int { return cmp.Or(a.number-b.number, a.restart-b.restart) })
	o.readHosts()
	return o, nil
}

// readHosts reads the nodes of the attempt from the history of attempts.
func (o *attemptOutput) readHosts() {
	events, _ := o.dir.ReadAttempts()
	began := 0
	for _, e := range events {
		if e.Event != rundir.AttemptBegan {
			continue
		}
		if began++; began == o.attempt {
			o.hosts, _ = slurm.ExpandHosts(e.Hosts)
			o.world = e.Ranks
			o.tasks = e.TasksPerNode
		}
	}
}

// perNode returns the number of ranks on each node, if it is the same on all nodes.
func (o *attemptOutput) perNode() int {
	world := o.world
	for _, r := range o.ranks {
		world = max(world, r.number+1)
	}
	if len(o.hosts) == 0 {
		return max(1, world)
	}
	return max(1, (world+len(o.hosts)-1)/len(o.hosts))
}

func (o *attemptOutput) open(name string) (*os.File, error) {
	return o.dir.OpenRankOutput(o.attempt, name)
}

// all returns the outputs of all nodes, and then of all ranks.
func (o *attemptOutput) all() []rankOutput { return slices.Concat(o.nodes, o.ranks) }

// rank returns the output of a rank. It returns an error if the ranks of a node share an output, or
// if the rank has printed nothing.
func (o *attemptOutput) rank(rank int) (rankOutput, error) {
	for _, r := range o.ranks {
		if r.number == rank {
			return r, nil
		}
	}
	if len(o.ranks) == 0 && len(o.nodes) > 0 {
		return rankOutput{}, exitError{exitUsage, hints.Errorf(`name a node with --node, or set command.output = "labeled" before the next start`,
			"torchrun mixes the output of the ranks of a node in attempt %d, so rank %d has no output of its own", o.attempt, rank)}
	}
	var numbers []int
	for _, r := range o.ranks {
		numbers = append(numbers, r.number)
	}
	if len(numbers) == 0 {
		return rankOutput{}, exitError{exitUsage, fmt.Errorf("no rank has printed anything in attempt %d", o.attempt)}
	}
	return rankOutput{}, exitError{exitUsage, fmt.Errorf("rank %d has no output in attempt %d: there is output of %s", rank, o.attempt, format.Ranks(numbers))}
}

// node returns the outputs of the ranks on a node.
func (o *attemptOutput) node(name string) (found []rankOutput, err error) {
	if len(o.hosts) == 0 {
		return nil, exitError{exitUsage, hints.Errorf("select a rank with --rank", "the nodes of attempt %d are not recorded", o.attempt)}
	}
	at := slices.Index(o.hosts, name)
	if at < 0 {
		return nil, exitError{exitUsage, fmt.Errorf("attempt %d did not run on %q: it ran on %s", o.attempt, name, slurm.FoldHosts(o.hosts))}
	}
	for _, n := range o.nodes {
		if n.number == at {
			found = append(found, n)
		}
	}
	perNode := o.perNode()
	for _, r := range o.ranks {
		node := r.number / perNode
		if o.tasks != "" {
			node = slurm.NodeOfTask(o.tasks, r.number)
		}
		if node == at {
			found = append(found, r)
		}
	}
	if len(found) == 0 {
		return nil, exitError{exitUsage, fmt.Errorf("the ranks on %s have printed nothing in attempt %d", name, o.attempt)}
	}
	return found, nil
}

// maxComponentNames is the maximum number of components that an error names. The files of another user
// can have any names.
const maxComponentNames = 20

// component returns the outputs of a component.
func (o *attemptOutput) component(name string) (found []rankOutput, err error) {
	others := map[string]bool{}
	for _, p := range o.parts {
		if p.component == name {
			found = append(found, p)
		} else {
			others[p.component] = true
		}
	}
	names := slices.Sorted(maps.Keys(others))
	switch {
	case len(found) > 0:
		return found, nil
	case len(names) == 0:
		return nil, exitError{exitUsage, fmt.Errorf("no component has printed anything in attempt %d", o.attempt)}
	}
	list, more := listed(names[:min(len(names), maxComponentNames)]), ""
	if n := len(names) - maxComponentNames; n > 0 {
		more = fmt.Sprintf(", and %d more", n)
	}
	return nil, exitError{exitUsage, fmt.Errorf("component %q has no output in attempt %d: there is output of %s%s", name, o.attempt, list, more)}
}

// followedRestarts is the number of later restarts of a component whose output -f prints.
const followedRestarts = 20

// withRestarts adds the outputs of later restarts of components, which do not exist yet.
func withRestarts(found []rankOutput) []rankOutput {
	all := slices.Clone(found)
	for i, r := range found {
		if r.component == "" || i+1 < len(found) && found[i+1].number == r.number {
			continue
		}
		for range followedRestarts {
			r.restart++
			r.base = output.ComponentBase(r.component, r.number, r.restart)
			all = append(all, r)
		}
	}
	return all
}

// failedRank returns the rank that caused the failure of the last attempt.
func failedRank(run runs.Run) (rank int, err error) {
	f, err := outcome.ReadFailure(run.Dir)
	switch {
	case err != nil:
		return 0, err
	case f == nil || f.First == nil:
		return 0, exitError{exitUsage, hints.Add(fmt.Errorf("no failure of run %q is recorded", run.Record.Name), "`ddpbatch status` shows how the run ended")}
	case f.First.Rank < 0:
		return 0, exitError{exitUsage, fmt.Errorf("no rank caused the failure: %s", f.First.Reason)}
	}
	return launch.RankOfFailure(f.First), nil
}

// selected returns the outputs that the flags select.
func (c *logsCmd) selected(run runs.Run, o *attemptOutput) ([]rankOutput, error) {
	switch {
	case c.Component != "":
		return o.component(c.Component)
	case c.Node != "":
		return o.node(c.Node)
	case c.Rank != nil:
		r, err := o.rank(*c.Rank)
		return []rankOutput{r}, err
	case c.Failed:
		rank, err := failedRank(run)
		if err != nil {
			return nil, err
		}
		r, err := o.rank(rank)
		if f, _ := outcome.ReadFailure(run.Dir); err != nil && len(o.ranks) == 0 && f != nil && f.First != nil {
			for _, n := range o.nodes { // the number of a torchrun is the number of its node
				if n.number == f.First.Rank {
					return []rankOutput{n}, nil
				}
			}
		}
		return []rankOutput{r}, err
	}
	return o.all(), nil
}

// rankLogs prints the output of the selected ranks. It reports false if the flags do not select the
// output of ranks, or if --grep must search the log because the run has no output of ranks.
func (c *logsCmd) rankLogs(ctx context.Context, p *program, store *runs.Store, run runs.Run) (done bool, err error) {
	if !c.selectsRanks() {
		return false, nil
	}
	o, err := readOutput(run, c.Attempt)
	if err != nil {
		return true, err
	}
	if o == nil && c.all {
		return false, nil
	}
	if o == nil {
		return true, c.withoutOutput(ctx, p, run)
	}
	found, err := c.selected(run, o)
	if err != nil {
		return true, err
	}
	labeled := slices.ContainsFunc(found, func(r rankOutput) bool { return r.label() != found[0].label() })
	if c.Follow {
		var logs []*tail
		for _, r := range withRestarts(found) {
			t := &tail{open: func() (*os.File, error) { return o.open(output.Parts(r.base)[0]) }}
			if labeled {
				t.prefix = r.label()
			}
			logs = append(logs, t)
		}
		ctx, stop := interruptible(ctx)
		defer stop()
		return true, p.explainInterrupt(run, p.follow(ctx, logs, p.waitForEnd(store, new(atomic.Pointer[slurm.JobState]), run)))
	}
	for _, r := range found {
		w := p.Stdout
		if labeled {
			w = &prefixWriter{w: w, prefix: r.label()}
		}
		if err := output.Copy(w, o.open, r.base); err != nil {
			return true, err
		}
		endLine(w)
	}
	return true, nil
}

// withoutOutput handles the flags for a run without output of ranks.
func (c *logsCmd) withoutOutput(ctx context.Context, p *program, run runs.Run) error {
	if c.Rank == nil {
		if !c.Failed {
			return exitError{exitUsage, hints.Errorf("`ddpbatch logs` prints the log of the run, and --rank prints the log of a rank", "run %q has no output of each rank: it uses the built-in trainer, has not started, or was started by an older version of ddpbatch", run.Record.Name)}
		}
		rank, err := failedRank(run)
		if err != nil {
			return err
		}
		c.Rank = &rank
	}
	c.Events = true
	return c.print(ctx, p, p.runStore(), run)
}

// A prefixWriter begins each line with a prefix.
type prefixWriter struct {
	w      io.Writer
	prefix string
	inside bool // the last byte does not end a line
	buffer []byte
}

func (p *prefixWriter) Write(b []byte) (int, error) {
	p.buffer = p.buffer[:0]
	for rest := b; len(rest) > 0; {
		n := bytes.IndexByte(rest, '\n') + 1
		if n == 0 {
			n = len(rest)
		}
		if !p.inside {
			p.buffer = append(p.buffer, p.prefix...)
		}
		p.buffer = append(p.buffer, rest[:n]...)
		p.inside = rest[n-1] != '\n'
		rest = rest[n:]
	}
	_, err := p.w.Write(p.buffer)
	return len(b), err
}

// endLine ends the last line of a prefixWriter.
func endLine(w io.Writer) {
	if p, ok := w.(*prefixWriter); ok && p.inside {
		_, _ = p.Write([]byte("\n")) // p.Stdout records failed writes
	}
}

// A grepWriter writes only the lines that match a pattern. It splits lines longer than
// longestLine.
type grepWriter struct {
	w       io.Writer
	pattern *regexp.Regexp
	line    []byte
}

func (g *grepWriter) Write(b []byte) (int, error) {
	for rest := b; len(rest) > 0; {
		line, after, ended := bytes.Cut(rest, []byte("\n"))
		rest = after
		g.line = append(g.line, line...)
		if ended || len(g.line) > longestLine {
			if err := g.flush(); err != nil {
				return 0, err
			}
		}
	}
	return len(b), nil
}

// flush writes the current line if it matches.
func (g *grepWriter) flush() (err error) {
	if len(g.line) > 0 && g.pattern.Match(g.line) {
		_, err = g.w.Write(append(g.line, '\n'))
	}
	g.line = g.line[:0]
	return err
}
