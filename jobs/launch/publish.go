package launch

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/ddpbatch/ddpbatch/jobs/rundir"
	"github.com/ddpbatch/ddpbatch/slurm"
	"github.com/ddpbatch/ddpbatch/trainer/rendezvous"
)

const (
	// silentTimeout is the time after the last heartbeat until a rank is shown as silent. It
	// covers many heartbeat intervals, and is much shorter than the heartbeat timeout, after
	// which the rank counts as lost.
	silentTimeout = 10 * time.Second
	// publishInterval is the interval between checks of the ranks. It equals the interval at which
	// ranks report.
	publishInterval = 500 * time.Millisecond
	// maxListedRanks is the maximum number of ranks in one state that live.json lists.
	maxListedRanks = 16
)

// statePriority lists the states of ranks by priority. A node is shown in the first of these
// states that one of its ranks has.
var statePriority = []rundir.RankState{rundir.RankLost, rundir.RankFailed, rundir.RankSilent, rundir.RankJoining, rundir.RankConnecting,
	rundir.RankLoading, rundir.RankSaving, rundir.RankEvaluating, rundir.RankTraining, rundir.RankRunning, rundir.RankEnded, rundir.RankDone}

// finalStates maps the final states of the rendezvous server.
var finalStates = map[rendezvous.State]rundir.RankState{
	rendezvous.Lost: rundir.RankLost, rendezvous.Failed: rundir.RankFailed, rendezvous.Ended: rundir.RankEnded, rendezvous.Done: rundir.RankDone,
}

// startPublishing updates live.json until the returned function is called.
func (a *attempt) startPublishing() (stop func()) {
	done, ended := make(chan struct{}), make(chan struct{})
	a.publish("", "")
	go func() {
		defer close(ended)
		tick := time.NewTicker(publishInterval)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				a.publish("", "")
			case <-done:
				return
			}
		}
	}()
	return func() {
		close(done)
		<-ended
		a.publish(rundir.PhaseOver, "")
	}
}

// publishedState is the part of the last published state that publish compares with the new state.
type publishedState struct {
	at    time.Time
	phase rundir.LivePhase
	nodes []rundir.NodeGroup
	moved bool // the run directory was not at its path
}

// publish replaces live.json if an update is due or the state has changed. An empty phase means
// that publish determines the current phase. It ignores write errors, because live.json only shows
// the state. Writes of results report an unusable file system.
func (a *attempt) publish(phase rundir.LivePhase, detail string) {
	l := rundir.Live{Time: time.Now().UTC(), JobID: a.jobID(), Attempt: a.number, Began: a.began, Phase: phase, Detail: detail, Ranks: a.world}
	ranks := a.server.Outcome().Ranks
	l.Nodes = groupNodes(ranks, a.o.Job.Train != nil, time.Now())
	var hosts []string
	for _, r := range ranks {
		if r.State != rendezvous.Missing {
			l.Joined++
		}
		if len(hosts) == 0 || hosts[len(hosts)-1] != r.Host {
			hosts = append(hosts, r.Host)
		}
	}
	l.Hosts, l.PerNode = slurm.FoldHosts(hosts), a.world/max(1, len(hosts))
	if a.tasks != nil && !isUniform(a.tasks) {
		l.PerNode, l.TasksPerNode = slices.Max(a.tasks), a.layout
	}
	if a.o.Allocation != nil {
		for _, c := range a.o.Allocation.Components {
			l.Groups = append(l.Groups, slurm.FoldHosts(c.Nodes))
		}
	}
	a.mu.Lock()
	stop, hang := a.stopReason, a.hang
	a.mu.Unlock()
	switch {
	case phase != "":
	case stop != "":
		l.Phase, l.Detail = rundir.PhaseStopping, stop
	case l.Joined < l.Ranks:
		l.Phase = rundir.PhaseJoining
	default:
		l.Phase, l.Detail = rundir.PhaseRunning, hang
	}
	same := l.Phase == a.published.phase && slices.EqualFunc(l.Nodes, a.published.nodes, func(x, y rundir.NodeGroup) bool {
		return x.State == y.State && x.Hosts == y.Hosts && x.Count == y.Count
	})
	if same && l.Time.Sub(a.published.at) < rundir.LiveEvery-publishInterval/2 {
		return
	}
	a.published = publishedState{l.Time, l.Phase, l.Nodes, a.checkRunDir()}
	_ = a.o.Dir.WriteLive(l)
}

// checkRunDir reports whether the run directory is no longer at its path. It prints a message
// when this changes.
func (a *attempt) checkRunDir() (moved bool) {
	err := a.o.Dir.CheckPlace()
	var place *rundir.MovedError
	switch {
	case errors.As(err, &place) && place.Deleted && !a.published.moved && a.o.Job.Train != nil:
		a.o.Say(fmt.Sprintf("warning: %v; the run stops at its next checkpoint", err))
	case err != nil && !a.published.moved && a.o.Job.Train != nil:
		a.o.Say(fmt.Sprintf("warning: %v; the run stops at its next checkpoint unless the directory is moved back", err))
	case err != nil && !a.published.moved:
		a.o.Say(fmt.Sprintf("warning: %v; the program continues", err))
	case err == nil && a.published.moved:
		a.o.Say(fmt.Sprintf("run directory %q is back at its path", a.o.Dir.Path))
	}
	return err != nil
}

// jobID returns the ID of the launcher's job, or an empty string without Slurm.
func (a *attempt) jobID() string {
	if a.o.Allocation == nil {
		return ""
	}
	return a.o.Allocation.ID()
}

// groupNodes groups nodes by state, in the order of statePriority.
func groupNodes(ranks []rendezvous.RankStatus, trains bool, now time.Time) []rundir.NodeGroup {
	byState := map[rundir.RankState]*rundir.NodeGroup{}
	hosts := map[rundir.RankState][]string{}
	for first := 0; first < len(ranks); {
		end := first + 1
		for end < len(ranks) && ranks[end].Host == ranks[first].Host {
			end++
		}
		node := ranks[first:end]
		first = end
		worst := slices.MinFunc(node, func(a, b rendezvous.RankStatus) int {
			return slices.Index(statePriority, stateOf(a, trains, now)) - slices.Index(statePriority, stateOf(b, trains, now))
		})
		state := stateOf(worst, trains, now)
		g := byState[state]
		if g == nil {
			g = &rundir.NodeGroup{State: state, Least: worst.Step}
			byState[state] = g
		}
		hosts[state] = append(hosts[state], worst.Host)
		for _, r := range node {
			if stateOf(r, trains, now) != state {
				continue
			}
			if g.Count++; len(g.Ranks) < maxListedRanks {
				g.Ranks = append(g.Ranks, r.Rank)
			}
			g.Least, g.Most = min(g.Least, r.Step), max(g.Most, r.Step)
		}
	}
	var all []rundir.NodeGroup
	for state, g := range byState {
		g.Hosts = slurm.FoldHosts(hosts[state])
		all = append(all, *g)
	}
	slices.SortFunc(all, func(a, b rundir.NodeGroup) int {
		return slices.Index(statePriority, a.State) - slices.Index(statePriority, b.State)
	})
	return all
}

// stateOf returns the state of a rank for live.json.
func stateOf(r rendezvous.RankStatus, trains bool, now time.Time) rundir.RankState {
	switch {
	case r.State == rendezvous.Missing:
		return rundir.RankJoining
	case r.State != rendezvous.Joined:
		return finalStates[r.State]
	case !r.Seen.IsZero() && now.Sub(r.Seen) > silentTimeout:
		return rundir.RankSilent
	case r.Phase != "":
		return rundir.RankState(r.Phase)
	case trains:
		return rundir.RankConnecting
	}
	return rundir.RankRunning
}

// event returns a new event of this attempt for attempts.jsonl.
func (a *attempt) event(what string) rundir.AttemptEvent {
	e := rundir.AttemptEvent{Event: what, Time: time.Now().UTC(), JobID: a.jobID(), Attempt: a.number, Ranks: a.world}
	hosts := a.nodes
	if a.o.Allocation != nil {
		e.Requeues = a.o.Allocation.RestartCount
	} else if host, err := os.Hostname(); err == nil {
		hosts = []string{host}
	}
	e.Hosts, e.TasksPerNode = slurm.FoldHosts(hosts), a.layout
	return e
}

func (o Options) recordBegin(a *attempt) {
	e := a.event(rundir.AttemptBegan)
	e.Code = o.Code
	o.recordEvent(e)
}

func (o Options) recordEnd(a *attempt, r Result, again bool) {
	e := a.event(rundir.AttemptEnded)
	e.Exit, e.Stopped, e.Again, e.PortTaken = r.Exit, r.Stopped, again, r.portRestart
	e.NoProgress, e.ReportedSave, e.NotStarted = r.StopUnhandled, r.ReportedSave, r.NotStarted
	for _, rank := range r.Ranks {
		e.Step = max(e.Step, rank.Step)
	}
	e.Step = max(e.Step, a.programStep)
	switch f := r.Failure; {
	case f != nil:
		e.Cause = f.Reason
		if f.Rank >= 0 {
			e.Rank, e.Host = &f.Rank, f.Host
		}
	case r.Exit != 0 || r.Stopped:
		a.mu.Lock()
		e.Cause = a.stopReason
		a.mu.Unlock()
	}
	o.recordEvent(e)
}

// recordEvent appends an event to attempts.jsonl. It does not warn about a deleted run directory,
// because the launch reports that once.
func (o Options) recordEvent(e rundir.AttemptEvent) {
	if err := o.Dir.AppendAttempt(e); err != nil && !o.Dir.IsDeleted() {
		o.Say(fmt.Sprintf("warning: %v", err))
	}
}
