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

// A Phase is the current activity of a run, or how it ended.
type Phase string

// Phases of a run.
const (
	NotSubmitted Phase = "not submitted"
	CutShort     Phase = "cut short"  // the submission was interrupted: it is unknown whether Slurm has a job
	Queued       Phase = "queued"     // for the first time
	Held         Phase = "held"       // queued, but cannot start without user action
	Requeued     Phase = "requeued"   // queued again
	Starting     Phase = "starting"   // has nodes, but no launcher yet
	Joining      Phase = "joining"    // ranks join
	Loading      Phase = "loading"    // reading data and checkpoint
	Training     Phase = "training"   // the built-in trainer
	Evaluating   Phase = "evaluating" // the built-in trainer
	Saving       Phase = "saving"     // the built-in trainer
	Running      Phase = "running"    // a user's program, or details are unknown
	Stopping     Phase = "stopping"   // was asked to save and stop
	Restarting   Phase = "restarting" // after a failure
	Suspended    Phase = "suspended"  // by Slurm
	Ending       Phase = "ending"     // the launcher has ended, but Slurm has not ended the job
	Stopped      Phase = "stopped"    // as requested
	Preempted    Phase = "preempted"  // by Slurm
	TimeLimit    Phase = "time limit" // the job reached its time limit
	Canceled     Phase = "cancelled"  // the job was canceled, or a launcher was interrupted twice
	Failed       Phase = "failed"     // with a cause
	Killed       Phase = "killed"     // the launcher was killed, without a record of its end
	Done         Phase = "done"       // complete
	Unknown      Phase = "unknown"    // neither Slurm nor the run directory shows the phase
)

// Phases lists all phases, roughly in the order of a run.
var Phases = []Phase{NotSubmitted, CutShort, Queued, Held, Requeued, Starting, Joining, Loading, Training, Evaluating, Saving, Running,
	Stopping, Restarting, Suspended, Ending, Stopped, Preempted, TimeLimit, Canceled, Failed, Killed, Done, Unknown}

// maxLiveAge is the maximum age of the launcher's last report until it counts as outdated. It
// allows for clocks that differ between nodes.
const maxLiveAge = 30 * time.Second

// maxRemoteAge is the maximum age of the last report of a launcher without Slurm on a different host: NFS
// can show an old version of a file for a minute.
const maxRemoteAge = 2 * time.Minute

// IsOver reports whether the run has ended, so that nothing is running or queued.
func (p Phase) IsOver() bool {
	switch p {
	case Stopped, Preempted, TimeLimit, Canceled, Failed, Killed, Done:
		return true
	}
	return false
}

// IsIdle reports whether no launcher and no rank of the run is active: the run is queued, has
// ended, or was never started. The phase of a sweep is empty, which is idle.
func (p Phase) IsIdle() bool {
	switch p {
	case "", NotSubmitted, CutShort, Queued, Held, Requeued:
		return true
	}
	return p.IsOver()
}

// isRunning reports whether ranks are running or about to run.
func (p Phase) isRunning() bool {
	switch p {
	case Joining, Loading, Training, Evaluating, Saving, Running, Stopping, Restarting, Suspended:
		return true
	}
	return false
}

// SetPhase determines the phase, whether the run has finished, and how often it was restarted.
// Call it after [Read] and [Status.AddJob].
func (s *Status) SetPhase(now time.Time) {
	s.Failure = ""
	if f := s.record.Failure; f != nil {
		s.Failure = f.Reason
	}
	s.Finished = s.record.Finished(slurm.JobState{ID: s.Job, State: s.State})
	s.Restarts = s.record.Restarts(s.Requeues)
	s.rescale()
	s.Phase, s.Detail, s.Advice = s.phase(now)
	// A later job may have been submitted after the run was complete.
	if s.Finished && (s.Phase.IsOver() || s.Phase == Unknown || s.Phase == NotSubmitted) {
		s.Phase, s.Detail, s.Advice = Done, "", ""
	}
	if open := s.openChain(); len(open) > 0 && s.Phase.IsOver() && s.Phase != Done && s.Phase != Failed {
		s.Advice = fmt.Sprintf("job %s of the chain continues it", open[0])
	}
	s.LastLines, s.Finding = nil, nil
	if s.Phase == Failed {
		s.LastLines, s.Finding = s.record.LastLines, s.record.Finding
		s.LastLines = s.LastLines[max(0, len(s.LastLines)-maxLastLines):]
	}
}

// rescale relates the progress to the epochs that the job file requests now. The metrics
// contain the epochs that were requested when they were written.
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
		s.Steps = max(s.Steps, *s.Step) // the last epoch may still need its evaluation
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
		return s.pendingPhase()
	case slurm.StateConfiguring:
		return Starting, "its nodes are made ready", ""
	case slurm.StateRunning:
		return s.runningPhase(now)
	case slurm.StateSuspended:
		return Suspended, "Slurm has stopped its processes for now", ""
	case slurm.StateCompleting:
		return Ending, "Slurm takes its nodes back", ""
	case slurm.StateCompleted:
		return s.endedPhase(outcome.Finished)
	case slurm.StateCancelled:
		return s.resumablePhase(Canceled)
	case slurm.StateTimeout, slurm.StateDeadline:
		return s.resumablePhase(TimeLimit)
	case slurm.StatePreempted:
		return s.resumablePhase(Preempted)
	case slurm.StateUnknown, "":
		return s.phaseWithoutSlurm(now)
	case slurm.StateNodeFail, slurm.StateBootFail:
		return s.failedPhase("Slurm lost a node of it")
	case slurm.StateOutOfMemory:
		return s.failedPhase("it ran out of memory")
	}
	// The exit code of the job is the exit code of the launcher, unless the batch script
	// failed before or after the launcher.
	if end := s.record.Ended(); end == outcome.Stopped && strings.HasPrefix(s.ExitCode, fmt.Sprintf("%d:", s.record.End.Exit)) {
		return s.endedPhase(end)
	}
	return s.failedPhase("")
}

// endedPhase returns the phase of a run whose last launcher ended.
func (s *Status) endedPhase(by outcome.End) (p Phase, detail, advice string) {
	switch {
	case s.Finished:
		return Done, "", ""
	case by == outcome.Failed:
		return s.failedPhase("")
	case by == outcome.Canceled:
		return s.resumablePhase(Canceled)
	}
	// The run was asked to stop. Or it had finished, and now the job file requests more epochs
	// or the last checkpoint is corrupt.
	return s.resumablePhase(Stopped)
}

func (s *Status) pendingPhase() (p Phase, detail, advice string) {
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

// runningPhase returns the phase of a job that has its nodes.
func (s *Status) runningPhase(now time.Time) (p Phase, detail, advice string) {
	l := s.Live
	switch {
	case l == nil || l.JobID != s.Job:
		if s.Train != nil && l == nil { // not started by a launcher
			return Running, "", ""
		}
		return Starting, "no rank was started yet", ""
	case l.Phase == rundir.PhaseOver && s.Requeues > s.record.Requeues():
		return Starting, "no rank was started yet", "" // since the requeue
	case l.Phase == rundir.PhaseOver:
		return Ending, s.beforeSlurm(), ""
	case now.Sub(l.Time) > maxLiveAge:
		return Running, fmt.Sprintf("its launcher has not reported for %s", format.Duration(now.Sub(l.Time))),
			"its node may hang; `ddpbatch logs` shows what was printed last"
	}
	return livePhase(l)
}

// beforeSlurm describes the end of a launcher whose job has not ended in Slurm yet.
func (s *Status) beforeSlurm() string {
	const unaware = "; Slurm has not reported the end of its job yet"
	switch end := s.record.Ended(); {
	case s.record.End == nil:
		return ""
	case s.Finished:
		return "it has finished" + unaware
	case end == outcome.Failed:
		return cmp.Or(printable.Line(s.Failure), fmt.Sprintf("it failed with exit code %d", s.record.End.Exit)) + unaware
	}
	return "it has stopped" + unaware
}

// livePhase returns the phase that the launcher reports for its ranks.
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
		case rundir.RankLoading:
			return Loading, "", ""
		case rundir.RankTraining:
			return Training, "", ""
		case rundir.RankEvaluating:
			return Evaluating, "", ""
		case rundir.RankSaving:
			return Saving, "", ""
		case rundir.RankConnecting:
			return Joining, "ranks agree on a network", ""
		}
	}
	return Running, printable.Line(l.Detail), ""
}

// phaseWithoutSlurm returns the phase of a run whose job Slurm does not list. The run may be running
// without Slurm.
func (s *Status) phaseWithoutSlurm(now time.Time) (p Phase, detail, advice string) {
	if l := s.Live; !s.dead && l != nil && l.JobID == s.Job && l.Phase != rundir.PhaseOver && now.Sub(l.Time) <= maxLiveAge {
		return livePhase(l)
	}
	end := s.record.Ended()
	switch {
	case end == outcome.Open && s.Job != "":
		return Unknown, s.Reason, ""
	case end == outcome.Open && s.Live != nil && s.mayBeLaunched(now):
		return launcherPhase(s.Live, s.launched, now)
	case end == outcome.Open:
		p, detail, advice = s.resumablePhase(Killed)
		return p, cmp.Or(detail, "its launcher was killed before it could report"), advice
	}
	return s.endedPhase(end)
}

// mayBeLaunched reports whether the launcher of a launch without Slurm may be running. s.Live must not be
// nil.
func (s *Status) mayBeLaunched(now time.Time) bool {
	last := s.launched
	if s.Live.Time.After(last) {
		last = s.Live.Time
	}
	return !s.launched.IsZero() && (!s.remote || now.Sub(last) <= maxRemoteAge)
}

// launcherPhase returns the phase of a launch without Slurm whose launcher has started at the given time
// and is running, but has not reported the state of its ranks recently.
func launcherPhase(l *rundir.Live, since, now time.Time) (p Phase, detail, advice string) {
	switch {
	case l.Time.Before(since):
		return Joining, "no rank was started yet", ""
	case l.Phase == rundir.PhaseOver:
		return Running, "its ranks have ended", ""
	}
	p, _, _ = livePhase(l)
	return p, fmt.Sprintf("its launcher has not reported for %s", format.Duration(now.Sub(l.Time))),
		"it may be suspended, or its file system may hang; `ddpbatch logs` shows what was printed last"
}

// TimeLimitAdvice is the fix for a job that reached its time limit without a checkpoint of ddpbatch.
// The program may have saved its own checkpoints.
const TimeLimitAdvice = "raise slurm.time; if a save takes longer than slurm.signal_before_end, or the program saves only after a signal, raise or set that, too; then submit it again"

// resumablePhase returns phase p with advice on how to resume from the newest checkpoint.
func (s *Status) resumablePhase(p Phase) (Phase, string, string) {
	again := "submit"
	if s.Job == "" {
		again = "launch"
	}
	switch {
	case s.Saved == nil && s.State == slurm.StateTimeout:
		return p, "", TimeLimitAdvice
	case s.Saved == nil:
		return p, "", s.record.ProgramAdvice(again)
	case s.Saved.Newer != "":
		return p, "", fmt.Sprintf("%s it with the newer ddpbatch that saved step %d, or use a different run directory (--run-dir)", again, s.Saved.Step)
	case s.Saved.Damaged != "":
		return p, "", fmt.Sprintf("%s it again to resume from the newest valid checkpoint: step %d is corrupt", again, s.Saved.Step)
	}
	return p, "", fmt.Sprintf("%s it again to resume after step %d", again, s.Saved.Step)
}

// failedPhase returns the phase of a failed run, with the best known cause.
func (s *Status) failedPhase(cause string) (p Phase, detail, advice string) {
	switch {
	case s.Failure != "":
		cause = s.Failure
	case cause != "":
	case s.ExitCode != "" && s.ExitCode != "0:0":
		cause = slurm.FormatExitCode(s.ExitCode)
		if why, what := s.launchFailure.explain(s.ExitCode); why != "" {
			cause, advice = cause+", "+why, what
		}
	case s.record.End != nil:
		cause = fmt.Sprintf("exit code %d", s.record.End.Exit)
	}
	return Failed, printable.Line(cause), advice
}
