package watch

import (
	"fmt"
	"strings"
	"time"

	"github.com/ddpbatch/ddpbatch/jobs/rundir"
	"github.com/ddpbatch/ddpbatch/slurm"
)

// Phase is what a run is at, or how it ended.
type Phase string

// The phases.
const (
	NotSubmitted Phase = "not submitted"
	CutShort     Phase = "cut short"  // its submission: whether there is a job is not known
	Queued       Phase = "queued"     // for the first time
	Held         Phase = "held"       // queued, and will not start by itself
	Requeued     Phase = "requeued"   // queued once more
	Starting     Phase = "starting"   // has nodes, and no launcher yet
	Joining      Phase = "joining"    // ranks come
	Loading      Phase = "loading"    // data and checkpoint
	Training     Phase = "training"   //
	Evaluating   Phase = "evaluating" //
	Saving       Phase = "saving"     //
	Running      Phase = "running"    // a user's program, or what is not told
	Stopping     Phase = "stopping"   // was asked to save and stop
	Restarting   Phase = "restarting" // after a failure
	Suspended    Phase = "suspended"  //
	Ending       Phase = "ending"     // Slurm takes the nodes back
	Stopped      Phase = "stopped"    // can go on from its checkpoint
	Preempted    Phase = "preempted"  // likewise
	TimeLimit    Phase = "time limit" // likewise
	Cancelled    Phase = "cancelled"  //
	Failed       Phase = "failed"     //
	Killed       Phase = "killed"     // its launcher, without a word
	Done         Phase = "done"       //
	Unknown      Phase = "unknown"    // Slurm does not tell, and nothing here does
)

// fresh is how old the launcher's word may be and still be true; clocks of nodes differ.
const fresh = 30 * time.Second

// exit codes of launchers that are more than a failure.
const (
	exitDone      = 0
	exitStopped   = 3
	exitCancelled = 130
)

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

// Settle finds the phase from all that is known. Failure is how the last attempt failed,
// empty if it did not, and now the present time.
func (s *Status) Settle(failure string, now time.Time) {
	s.Failure = failure
	s.Phase, s.Detail, s.Advice = s.phase(now)
	// A finished run may have been submitted again, with more to do.
	if s.Finished && (s.Phase.Over() || s.Phase == Unknown || s.Phase == NotSubmitted) {
		s.Phase, s.Detail, s.Advice = Done, "", ""
	}
}

func (s *Status) phase(now time.Time) (p Phase, detail, advice string) {
	switch {
	case s.Pending:
		return CutShort, "its submission was cut short", "submit it again to find its job"
	case s.Job == "" && s.Live == nil && s.end == nil:
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
		return Done, "", ""
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
	if strings.HasPrefix(s.ExitCode, fmt.Sprintf("%d:", exitStopped)) && s.stopped() {
		return s.goesOn(Stopped)
	}
	return s.failed("")
}

// stopped says whether the launcher ended because ranks that were asked to stop did. Its
// exit code alone does not tell: a user's program that fails may have the same one, and
// so may a line of the batch script before the launcher.
func (s *Status) stopped() bool {
	return s.end != nil && s.end.Exit == exitStopped && s.Failure == ""
}

// waits is the phase of a job in the queue.
func (s *Status) waits() (p Phase, detail, advice string) {
	p = Queued
	if s.Requeues > 0 || s.requeued {
		p = Requeued
	}
	w, known := slurm.ExplainPending(s.Reason)
	if !known {
		return p, s.Reason, ""
	}
	if w.Stuck {
		p = Held
	}
	return p, w.Why, strings.NewReplacer(" ID`", " "+s.Job+"`", "=ID`", "="+s.Job+"`").Replace(w.Advice)
}

// runs is the phase of a job that has its nodes.
func (s *Status) runs(now time.Time) (p Phase, detail, advice string) {
	l := s.Live
	switch {
	case l == nil || l.JobID != s.Job:
		if s.Train != nil && l == nil { // no launcher
			return Running, "", ""
		}
		return Starting, "no rank was started yet", ""
	case now.Sub(l.Time) > fresh:
		return Running, fmt.Sprintf("nothing was heard of its launcher for %s", Span(now.Sub(l.Time))),
			"its node may hang; `ddpbatch logs` shows what was printed last"
	case l.Phase == rundir.PhaseOver:
		return Ending, "", ""
	}
	return livePhase(l)
}

// livePhase is what a launcher says that its ranks are at.
func livePhase(l *rundir.Live) (p Phase, detail, advice string) {
	switch l.Phase {
	case rundir.PhaseJoining:
		return Joining, fmt.Sprintf("%d of %d ranks have joined", l.Joined, l.Ranks), ""
	case rundir.PhaseStopping:
		return Stopping, clean(l.Detail), ""
	case rundir.PhaseRestarting:
		return Restarting, clean(l.Detail), ""
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

// byItself is the phase of a run of which Slurm knows nothing: it may run without.
func (s *Status) byItself(now time.Time) (p Phase, detail, advice string) {
	if l := s.Live; l != nil && l.JobID == s.Job && l.Phase != rundir.PhaseOver && now.Sub(l.Time) <= fresh {
		return livePhase(l)
	}
	switch e := s.end; {
	case e == nil && s.Job != "":
		return Unknown, s.Reason, ""
	case e == nil:
		return Killed, "its launcher was killed, and left no word", ""
	case e.Exit == exitDone:
		return Done, "", ""
	case s.stopped():
		return s.goesOn(Stopped)
	case e.Exit == exitCancelled:
		return s.goesOn(Cancelled)
	}
	return s.failed("")
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
	case s.Saved.Damaged != "":
		return p, "", fmt.Sprintf("%s it again to go on from the newest checkpoint that verifies: that of step %d does not", again, s.Saved.Step)
	}
	return p, "", fmt.Sprintf("%s it again to go on after step %d", again, s.Saved.Step)
}

// failed is the phase of a run that failed, with the best cause that is known.
func (s *Status) failed(cause string) (p Phase, detail, advice string) {
	switch {
	case s.Failure != "":
		cause = s.Failure
	case cause != "":
	case s.ExitCode != "" && s.ExitCode != "0:0":
		cause = "exit code " + s.ExitCode
		if why, what := s.before.explain(s.ExitCode); why != "" {
			cause, advice = cause+", "+why, what
		}
	case s.end != nil:
		cause = fmt.Sprintf("exit code %d", s.end.Exit)
	}
	return Failed, clean(cause), advice
}
