package watch

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/ddpbatch/ddpbatch/internal/format"
	"github.com/ddpbatch/ddpbatch/internal/printable"
	"github.com/ddpbatch/ddpbatch/jobs/outcome"
	"github.com/ddpbatch/ddpbatch/jobs/rundir"
	"github.com/ddpbatch/ddpbatch/slurm"
)

// Phase is what a run is at, or how it ended.
type Phase string

// The phases.
const (
	NotSubmitted Phase = "not submitted"
	CutShort     Phase = "cut short"  // the submission was interrupted: whether it made a job is unknown
	Queued       Phase = "queued"     // for the first time
	Held         Phase = "held"       // queued, and does not start without action
	Requeued     Phase = "requeued"   // queued again
	Starting     Phase = "starting"   // has nodes, and no launcher yet
	Joining      Phase = "joining"    // ranks join
	Loading      Phase = "loading"    // data and checkpoint
	Training     Phase = "training"   // the built-in trainer
	Evaluating   Phase = "evaluating" // the built-in trainer
	Saving       Phase = "saving"     // the built-in trainer
	Running      Phase = "running"    // a user's program, or no details are available
	Stopping     Phase = "stopping"   // was asked to save and stop
	Restarting   Phase = "restarting" // after a failure
	Suspended    Phase = "suspended"  // by Slurm
	Ending       Phase = "ending"     // the launcher has ended, the job has not
	Stopped      Phase = "stopped"    // as it was asked to
	Preempted    Phase = "preempted"  // by Slurm
	TimeLimit    Phase = "time limit" // the job reached its time limit
	Cancelled    Phase = "cancelled"  // the job, or a launcher that was interrupted twice
	Failed       Phase = "failed"     // with a cause
	Killed       Phase = "killed"     // the launcher, without a record of its end
	Done         Phase = "done"       // finished
	Unknown      Phase = "unknown"    // neither Slurm nor the run directory tells
)

// Phases are all phases, in the order in which a run may pass through them.
var Phases = []Phase{NotSubmitted, CutShort, Queued, Held, Requeued, Starting, Joining, Loading, Training, Evaluating, Saving, Running,
	Stopping, Restarting, Suspended, Ending, Stopped, Preempted, TimeLimit, Cancelled, Failed, Killed, Done, Unknown}

// fresh is how old the launcher's word may be and still be true; clocks of nodes differ.
const fresh = 30 * time.Second

// Over says whether nothing runs or waits to run any more.
func (p Phase) Over() bool {
	switch p {
	case Stopped, Preempted, TimeLimit, Cancelled, Failed, Killed, Done:
		return true
	}
	return false
}

// active says whether ranks are at work, or about to be.
func (p Phase) active() bool {
	switch p {
	case Joining, Loading, Training, Evaluating, Saving, Running, Stopping, Restarting, Suspended:
		return true
	}
	return false
}

// Settle determines the phase, whether the run has finished, and how often it was
// restarted. Failure is the cause of the last attempt's failure, empty if it did not fail.
func (s *Status) Settle(failure string, now time.Time) {
	s.Failure = failure
	s.Finished = s.record.Finished(slurm.JobState{ID: s.Job, State: s.State})
	s.Restarts = s.record.Restarts(s.Requeues)
	s.rescale()
	s.Phase, s.Detail, s.Advice = s.phase(now)
	// A later job may have been submitted with nothing left to do.
	if s.Finished && (s.Phase.Over() || s.Phase == Unknown || s.Phase == NotSubmitted) {
		s.Phase, s.Detail, s.Advice = Done, "", ""
	}
}

// rescale relates the progress to the epochs that the job file requests now. The metrics
// name those that were requested when they were written.
func (s *Status) rescale() {
	goal := s.record.Goal.Epochs
	switch {
	case s.Step == nil || goal == 0:
		return
	case s.Finished:
		s.Steps = *s.Step
	case s.Epochs > 0:
		s.Steps = int(int64(s.Steps) * int64(goal) / int64(s.Epochs))
	}
	if s.Steps > 0 {
		s.Steps = max(s.Steps, *s.Step) // the last epoch may have to be evaluated yet
	}
	s.Epochs = goal
}

func (s *Status) phase(now time.Time) (p Phase, detail, advice string) {
	switch {
	case s.Pending:
		return CutShort, "its submission was cut short", "submit it again to find its job"
	case s.Job == "" && s.Live == nil && s.record.End == nil:
		return NotSubmitted, "", ""
	}
	switch s.State {
	case slurm.StatePending, slurm.StateRequeued, slurm.StateRequeueHold:
		return s.waits()
	case slurm.StateConfiguring:
		return Starting, "its nodes are made ready", ""
	case slurm.StateRunning:
		return s.runs(now)
	case slurm.StateSuspended:
		return Suspended, "Slurm has stopped its processes for now", ""
	case slurm.StateCompleting:
		return Ending, "Slurm takes its nodes back", ""
	case slurm.StateCompleted:
		return s.ended(outcome.Finished)
	case slurm.StateCancelled:
		return s.goesOn(Cancelled)
	case slurm.StateTimeout, slurm.StateDeadline:
		return s.goesOn(TimeLimit)
	case slurm.StatePreempted:
		return s.goesOn(Preempted)
	case slurm.StateUnknown, "":
		return s.byItself(now)
	case slurm.StateNodeFail, slurm.StateBootFail:
		return s.failed("Slurm lost a node of it")
	case slurm.StateOutOfMemory:
		return s.failed("it ran out of memory")
	}
	// The exit code of the job is that of the launcher, unless the batch script failed
	// before or after it.
	if end := s.record.Ended(s.Failure != ""); end == outcome.Stopped && strings.HasPrefix(s.ExitCode, fmt.Sprintf("%d:", s.record.End.Exit)) {
		return s.ended(end)
	}
	return s.failed("")
}

// ended returns the phase of a run whose last launcher ended.
func (s *Status) ended(by outcome.End) (p Phase, detail, advice string) {
	switch {
	case s.Finished:
		return Done, "", ""
	case by == outcome.Failed:
		return s.failed("")
	case by == outcome.Canceled:
		return s.goesOn(Cancelled)
	}
	// It was asked to stop; or it had finished, and now more epochs are requested or its
	// last checkpoint is corrupt.
	return s.goesOn(Stopped)
}

// waits is the phase of a job in the queue.
func (s *Status) waits() (p Phase, detail, advice string) {
	p = Queued
	if s.Requeues > 0 || s.record.Requeued() {
		p = Requeued
	}
	reason, ok := slurm.ExplainPending(s.Job, s.Reason)
	if !ok {
		return p, s.Reason, ""
	}
	if reason.Stuck {
		p = Held
	}
	return p, reason.Text, reason.Hint
}

// runs returns the phase of a job that has its nodes.
func (s *Status) runs(now time.Time) (p Phase, detail, advice string) {
	l := s.Live
	switch {
	case l == nil || l.JobID != s.Job:
		if s.Train != nil && l == nil { // no launcher
			return Running, "", ""
		}
		return Starting, "no rank was started yet", ""
	case l.Phase == rundir.PhaseOver && s.Requeues > s.record.Requeues():
		return Starting, "no rank was started yet", "" // since the job was requeued
	case l.Phase == rundir.PhaseOver:
		return Ending, s.beforeSlurm(), ""
	case now.Sub(l.Time) > fresh:
		return Running, fmt.Sprintf("nothing was heard of its launcher for %s", format.Duration(now.Sub(l.Time))),
			"its node may hang; `ddpbatch logs` shows what was printed last"
	}
	return livePhase(l)
}

// beforeSlurm describes the end of a launcher that Slurm has not reported yet.
func (s *Status) beforeSlurm() string {
	const unaware = "; Slurm has not reported the end of its job yet"
	switch end := s.record.Ended(s.Failure != ""); {
	case s.record.End == nil:
		return ""
	case s.Finished:
		return "it has finished" + unaware
	case end == outcome.Failed:
		return cmp.Or(printable.Line(s.Failure), fmt.Sprintf("it failed with exit code %d", s.record.End.Exit)) + unaware
	}
	return "it has stopped" + unaware
}

// livePhase is what a launcher says that its ranks are at.
func livePhase(l *rundir.Live) (p Phase, detail, advice string) {
	switch l.Phase {
	case rundir.PhaseJoining:
		return Joining, fmt.Sprintf("%d of %d ranks have joined", l.Joined, l.Ranks), ""
	case rundir.PhaseStopping:
		return Stopping, printable.Line(l.Detail), ""
	case rundir.PhaseRestarting:
		return Restarting, printable.Line(l.Detail), ""
	}
	for _, g := range l.Nodes {
		switch g.State {
		case "saving", "evaluating", "loading", "training":
			return Phase(g.State), "", ""
		case "connecting":
			return Joining, "ranks agree on a network", ""
		}
	}
	return Running, "", ""
}

// byItself returns the phase of a run about which Slurm knows nothing: it may run without
// Slurm.
func (s *Status) byItself(now time.Time) (p Phase, detail, advice string) {
	if l := s.Live; !s.dead && l != nil && l.JobID == s.Job && l.Phase != rundir.PhaseOver && now.Sub(l.Time) <= fresh {
		return livePhase(l)
	}
	end := s.record.Ended(s.Failure != "")
	switch {
	case end == outcome.Open && s.Job != "":
		return Unknown, s.Reason, ""
	case end == outcome.Open:
		p, detail, advice = s.goesOn(Killed)
		return p, cmp.Or(detail, "its launcher was killed, and left no word"), advice
	}
	return s.ended(end)
}

// goesOn is a phase of a run that has more to do.
func (s *Status) goesOn(p Phase) (Phase, string, string) {
	again := "submit"
	if s.Job == "" {
		again = "launch"
	}
	switch {
	case s.Saved == nil:
		return p, "", ""
	case s.Saved.Newer != "":
		return p, "", fmt.Sprintf("%s it with the newer ddpbatch that saved step %d, or use a different run directory (--run-dir)", again, s.Saved.Step)
	case s.Saved.Damaged != "":
		return p, "", fmt.Sprintf("%s it again to go on from the newest checkpoint that verifies: that of step %d does not", again, s.Saved.Step)
	}
	return p, "", fmt.Sprintf("%s it again to go on after step %d", again, s.Saved.Step)
}

// failed returns the phase of a run that failed, with the best cause that is available.
func (s *Status) failed(cause string) (p Phase, detail, advice string) {
	switch {
	case s.Failure != "":
		cause = s.Failure
	case cause != "":
	case s.ExitCode != "" && s.ExitCode != "0:0":
		cause = slurm.FormatExitCode(s.ExitCode)
		if why, what := s.before.explain(s.ExitCode); why != "" {
			cause, advice = cause+", "+why, what
		}
	case s.record.End != nil:
		cause = fmt.Sprintf("exit code %d", s.record.End.Exit)
	}
	return Failed, printable.Line(cause), advice
}
