// Package rankoutput selects the output of a user's program in a run directory: of ranks, of the
// ranks on a node, of the rank that failed, and of components.
//
//   - [Read] lists the output of an attempt. The methods of [Attempt] select a part of it.
//   - [Symptoms] searches the output of the rank that failed for known failures.
//
// If the selected output does not exist, the error names the output that exists. The run may belong
// to another user, so the errors have a limited length.
//
// Package output defines and reads the files, and package rundir opens them. This package does not
// read the ranks' own logs in JSON lines.
package rankoutput

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/ddpbatch/ddpbatch/internal/exitcode"
	"github.com/ddpbatch/ddpbatch/internal/format"
	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/jobs/doctor/symptoms"
	"github.com/ddpbatch/ddpbatch/jobs/launch"
	"github.com/ddpbatch/ddpbatch/jobs/launch/output"
	"github.com/ddpbatch/ddpbatch/jobs/outcome"
	"github.com/ddpbatch/ddpbatch/jobs/rundir"
	"github.com/ddpbatch/ddpbatch/jobs/runs"
	"github.com/ddpbatch/ddpbatch/slurm"
	"github.com/ddpbatch/ddpbatch/trainer/rendezvous"
)

// An Output is the output of one rank, of a node whose ranks share an output, or of one start of a
// component.
type Output struct {
	open      output.Open
	base      string // of its file names
	number    int    // rank or node
	isRank    bool
	component string // name; empty for a rank or a node
	restart   int    // of the component
}

// Label returns the text that begins the lines if several outputs are printed.
func (o Output) Label() string {
	if o.isRank {
		return fmt.Sprintf("[rank %d] ", o.number)
	}
	return fmt.Sprintf("[node %d] ", o.number)
}

// Open opens the first file of the output. If the output exceeds its limit, the end is in other files.
func (o Output) Open() (*os.File, error) { return o.open(output.Parts(o.base)[0]) }

// Copy writes the whole output to w; see [output.Copy].
func (o Output) Copy(w io.Writer) error { return output.Copy(w, o.open, o.base) }

// An Attempt is the output of the ranks and the components of one attempt.
type Attempt struct {
	run    runs.Run
	number int
	ranks  []Output
	nodes  []Output
	parts  []Output             // of components, in the order of nodes and restarts
	hosts  []string             // in the order of the nodes; nil if unknown
	tasks  string               // number of ranks on each of hosts, such as "4,2(x3)"; empty if it is equal
	world  int                  // number of processes that the launcher started
	isLast bool                 // no later attempt has begun
	end    *rundir.AttemptEvent // nil if the end of the attempt is not recorded
}

// Read lists the output of an attempt, or of the newest attempt if number is 0. It returns nil if the
// run has no output of ranks.
func Read(run runs.Run, number int) (*Attempt, error) {
	attempts, err := run.Dir.OutputAttempts()
	if err != nil || len(attempts) == 0 {
		return nil, err
	}
	if number == 0 {
		number = attempts[len(attempts)-1]
	}
	if !slices.Contains(attempts, number) {
		return nil, exitcode.Usagef("", "there is no output of attempt %d: the run directory has the output of %s", number, format.Numbered("attempt", attempts))
	}
	names, err := run.Dir.ListRankOutput(number)
	if err != nil {
		return nil, err
	}
	a := &Attempt{run: run, number: number}
	open := func(name string) (*os.File, error) { return run.Dir.OpenRankOutput(number, name) }
	for _, name := range names {
		number, isRank, ok := output.ParseBase(name)
		component, node, restart, isComponent := output.ParseComponentBase(name)
		switch {
		case isComponent:
			a.parts = append(a.parts, Output{open: open, base: output.ComponentBase(component, node, restart), number: node, component: component, restart: restart})
		case !ok:
		case isRank:
			a.ranks = append(a.ranks, Output{open: open, base: output.RankBase(number), number: number, isRank: true})
		default:
			a.nodes = append(a.nodes, Output{open: open, base: output.NodeBase(number), number: number})
		}
	}
	slices.SortFunc(a.parts, func(x, y Output) int { return cmp.Or(x.number-y.number, x.restart-y.restart) })
	a.readEvents()
	return a, nil
}

// readEvents reads the nodes and the end of the attempt from the history of attempts.
func (a *Attempt) readEvents() {
	events, _ := a.run.Dir.ReadAttempts()
	began := 0
	for i, e := range events {
		if e.Event == rundir.AttemptBegan {
			began++
		}
		switch {
		case began != a.number:
		case e.Event == rundir.AttemptBegan:
			a.hosts, _ = slurm.ExpandHosts(e.Hosts)
			a.world = e.Ranks
			a.tasks = e.TasksPerNode
		case e.Event == rundir.AttemptEnded:
			a.end = &events[i]
		}
	}
	a.isLast = began <= a.number
}

// All returns the outputs of all nodes, and then of all ranks.
func (a *Attempt) All() []Output { return slices.Concat(a.nodes, a.ranks) }

// Rank returns the output of a rank. It returns an error if the ranks of a node share an output, or
// if the rank has printed nothing.
func (a *Attempt) Rank(rank int) (Output, error) {
	var numbers []int
	for _, r := range a.ranks {
		if r.number == rank {
			return r, nil
		}
		numbers = append(numbers, r.number)
	}
	switch {
	case len(numbers) > 0:
		return Output{}, exitcode.Usagef("", "rank %d has no output in attempt %d: there is output of %s", rank, a.number, format.Ranks(numbers))
	case len(a.nodes) > 0:
		return Output{}, exitcode.Usagef(`name a node with --node, or set command.output = "labeled" before the next start`,
			"torchrun mixes the output of the ranks of a node in attempt %d, so rank %d has no output of its own", a.number, rank)
	}
	return Output{}, exitcode.Usagef("", "no rank has printed anything in attempt %d", a.number)
}

// Node returns the outputs of the ranks on a node.
func (a *Attempt) Node(name string) (found []Output, err error) {
	if len(a.hosts) == 0 {
		return nil, exitcode.Usagef("select a rank with --rank", "the nodes of attempt %d are not recorded", a.number)
	}
	at := slices.Index(a.hosts, name)
	if at < 0 {
		return nil, exitcode.Usagef("", "attempt %d did not run on %q: it ran on %s", a.number, name, slurm.FoldHosts(a.hosts))
	}
	for _, n := range a.nodes {
		if n.number == at {
			found = append(found, n)
		}
	}
	perNode := a.perNode()
	for _, r := range a.ranks {
		node := r.number / perNode
		if a.tasks != "" {
			node = slurm.NodeOfTask(a.tasks, r.number)
		}
		if node == at {
			found = append(found, r)
		}
	}
	if len(found) == 0 {
		return nil, exitcode.Usagef("", "the ranks on %s have printed nothing in attempt %d", name, a.number)
	}
	return found, nil
}

// perNode returns the number of ranks on each node, if it is the same on all nodes.
func (a *Attempt) perNode() int {
	world := a.world
	for _, r := range a.ranks {
		world = max(world, r.number+1)
	}
	var job *jobs.Job
	text, err := a.run.Dir.ReadSpec()
	if err == nil {
		job, err = jobs.Parse(a.run.Dir.Spec(), text)
	}
	if err == nil && job.Command != nil && job.Command.Launcher == jobs.LauncherTorchrun {
		world = max(world, job.TasksPerNode()*len(a.hosts)) // the last workers may have printed nothing
	}
	return max(1, (world+len(a.hosts)-1)/len(a.hosts))
}

// maxComponentNames is the maximum number of components that an error names. The files of another user
// can have any names.
const maxComponentNames = 20

// Component returns the outputs of a component, in the order of nodes and restarts.
func (a *Attempt) Component(name string) (found []Output, err error) {
	others := map[string]bool{}
	for _, p := range a.parts {
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
		return nil, exitcode.Usagef("", "no component has printed anything in attempt %d", a.number)
	}
	list, more := strings.Join(names[:min(len(names), maxComponentNames)], ", "), ""
	if n := len(names) - maxComponentNames; n > 0 {
		more = fmt.Sprintf(", and %d more", n)
	}
	return nil, exitcode.Usagef("", "component %q has no output in attempt %d: there is output of %s%s", name, a.number, list, more)
}

// followedRestarts is the number of restarts that [WithRestarts] adds.
const followedRestarts = 20

// WithRestarts adds the outputs of later restarts of components, which do not exist yet, to the
// result of [Attempt.Component]. It adds nothing to other outputs.
func WithRestarts(found []Output) []Output {
	all := slices.Clone(found)
	for i, o := range found {
		if o.component == "" || i+1 < len(found) && found[i+1].number == o.number {
			continue
		}
		for range followedRestarts {
			o.restart++
			o.base = output.ComponentBase(o.component, o.number, o.restart)
			all = append(all, o)
		}
	}
	return all
}

// Failed returns the output of the rank that caused the failure of the attempt. If the ranks of a node
// share an output, it returns the output of the node.
func (a *Attempt) Failed() (Output, error) {
	f, err := a.failure()
	if err != nil {
		return Output{}, err
	}
	if len(a.ranks) == 0 {
		for _, n := range a.nodes { // the number of a torchrun is the number of its node
			if n.number == f.Rank {
				return n, nil
			}
		}
	}
	return a.Rank(launch.RankOfFailure(f))
}

// failure returns the failure of the attempt. It returns an error if no rank caused it.
func (a *Attempt) failure() (*rendezvous.Failure, error) {
	switch {
	case a.isLast: // with all fields
		return readFailure(a.run)
	case a.end == nil || a.end.Rank == nil:
		return nil, exitcode.Usagef("`ddpbatch status` shows how the attempts ended", "no failure of a rank is recorded for attempt %d", a.number)
	}
	return &rendezvous.Failure{Rank: *a.end.Rank, Reason: a.end.Cause}, nil
}

// FailedRank returns the rank that caused the failure of the last attempt.
func FailedRank(run runs.Run) (int, error) {
	f, err := readFailure(run)
	if err != nil {
		return 0, err
	}
	return launch.RankOfFailure(f), nil
}

// readFailure returns the failure of the last attempt. It returns an error if no rank caused it.
func readFailure(run runs.Run) (*rendezvous.Failure, error) {
	f, err := outcome.ReadFailure(run.Dir)
	switch {
	case err != nil:
		return nil, err
	case f == nil || f.First == nil:
		return nil, exitcode.Usagef("`ddpbatch status` shows how the run ended", "no failure of run %q is recorded", run.Record.Name)
	case f.First.Rank < 0:
		return nil, exitcode.Usagef("", "no rank caused the failure: %s", f.First.Reason)
	}
	return f.First, nil
}

// Symptoms returns the known failures in the output of the rank that caused the failure of the run.
// The log of the run lacks this output if command.output is "per-rank" or "rank0". Symptoms returns nil
// if there is no such output, and for the run of another user, whose output could use much memory.
func Symptoms(run runs.Run) []symptoms.Found {
	if !runs.IsOwn(run.Dir.Path) {
		return nil
	}
	rank, err := FailedRank(run)
	if err != nil {
		return nil
	}
	a, err := Read(run, 0)
	if err != nil || a == nil || !a.isLast { // the last attempt failed before a rank could print
		return nil
	}
	o, err := a.Rank(rank)
	if err != nil {
		return nil
	}
	text, w := io.Pipe()
	go func() { w.CloseWithError(o.Copy(w)) }()
	found, _, _ := symptoms.Scan(text)
	text.Close()
	for i := range found {
		found[i].Rank = &rank
	}
	return found
}
