// Package launch brings a job's ranks up and down: [Run] is the supervisor, one
// per allocation or, without Slurm, one per machine; [Join] is what each rank
// that it starts does first.
//
// It promises: the ranks of an attempt and only those find each other (a secret
// of that attempt goes to them in a file that only this user can read or, on one
// machine, in their environment; never in an argument list or over the network); a rank that does not come, is killed or fails ends the attempt, is
// named with its host, and its message and exit code are kept; all ranks talk
// over one network that they agreed on and that was proven to work, and what
// happens to it later is told and kept; a request to stop reaches every rank;
// ranks, and users' programs with their workers, outlive neither their attempt
// nor the supervisor; an attempt is repeated only while there is progress, and not
// on nodes that were found bad; a job that must leave its nodes and has more to do
// is back in the queue once, or it is said why not.
//
// It does not submit jobs and does not train. Workers that leave their program's
// process group are the step daemon's to end; without Slurm they are nobody's.
package launch

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/jobs/rundir"
	"github.com/ddpbatch/ddpbatch/slurm"
	"github.com/ddpbatch/ddpbatch/templates/sites"
	"github.com/ddpbatch/ddpbatch/trainer/rendezvous"
)

// Exit codes of an attempt that ended by something else than a rank's own code.
const (
	exitFailed    = 1
	exitStopped   = 3
	exitLost      = 4
	exitCancelled = 130
)

// killGrace is how long ranks have to end by themselves once an attempt has
// failed or was cancelled.
const killGrace = 4 * time.Second

// Options describe what to launch, where.
type Options struct {
	Job     *jobs.Job // with resolved paths, and what its site fills in
	Site    *sites.Profile
	Dir     rundir.Dir
	Binary  string // absolute path of this program
	Program string // digest of this program
	Spec    string // digest of the job file
	Environ []string
	// Code is the state of the user's program, where no submission has recorded it.
	Code *rundir.Code

	// Slurm is asked about the job around this process.
	Slurm slurm.Client
	// Allocation is where to start the ranks; nil is here, without Slurm.
	Allocation *slurm.Allocation
	// Processes is the number of ranks to start here, without Slurm.
	Processes int

	Stdout, Stderr *os.File
	// Signals asks for a stop; a second interrupt ends the ranks at once.
	Signals <-chan os.Signal
	// Say is given what a person should know, a line at a time.
	Say func(line string)
}

// Result is how the last attempt ended.
type Result struct {
	Exit    int // for the process
	Failure *rendezvous.Failure
	Ranks   []rendezvous.RankStatus
	// Stopped reports that the ranks were asked to stop and ended as such ranks do. What
	// they had to do is not finished then, even if a user's program ends with 0.
	Stopped bool
	// NearEnd says that the ranks were asked to stop since the time limit is near.
	NearEnd bool
	// Preempted reports that Slurm takes the nodes for another job, and that this job
	// still has them.
	Preempted bool
	// SlurmRequeues reports that the job is preempted and that Slurm requeues it when the
	// batch script ends. Otherwise the launcher has to ask for the requeue.
	SlurmRequeues bool
	// NodesLost says that too few nodes are left that work.
	NodesLost bool
	// StopUnhandled reports that the job's program was asked to stop, and that no process of
	// it on any node handled the signal: it cannot have saved because of it.
	StopUnhandled bool
	// Progress says that there is a newer checkpoint than at the beginning; it is
	// found out only where restart.requeue depends on it.
	Progress bool
}

// Once refuses to launch in an allocation where srun has started this process
// several times.
func Once(a slurm.Allocation) error {
	if a.StepTasks > 1 {
		return tooManyLaunchers(a.StepTasks)
	}
	return nil
}

// Run launches the job and stays until it is over, starting it again after a
// failure as often as the job's [restart] allows.
func Run(ctx context.Context, o Options) (Result, error) {
	if o.Allocation == nil && startsMPI(o.Job) {
		return Result{}, noMPIHere{}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	nodes, err := newNodes(o)
	if err != nil {
		return Result{}, err
	}
	s := &supervisor{Options: o, nodes: nodes, saved: watchProgress(ctx, o)}
	if err := o.Dir.RemoveSecrets(); err != nil {
		o.Say(fmt.Sprintf("WARNING: remove the secrets of earlier attempts: %v", err))
	}
	near := o.nearEnd(ctx)
	var asked os.Signal
	for number := 1; ; number++ {
		if err := o.Dir.ClearFailure(); err != nil {
			return Result{}, err
		}
		a, err := newAttempt(ctx, o, number, nodes.chosen)
		if err != nil {
			return Result{}, err
		}
		a.near, a.asked = near, asked
		o.keepBegin(a)
		result, err := a.run(ctx)
		if err != nil {
			o.keepEnd(a, Result{Exit: exitFailed, Failure: &rendezvous.Failure{Rank: -1, Reason: err.Error()}}, false)
			return Result{}, err
		}
		result, pause, again := s.review(ctx, a, result)
		result.Stopped = a.endedAsAsked(result)
		o.keepEnd(a, result, again)
		if !again {
			return result, nil
		}
		a.tell(rundir.PhaseRestarting, result.Failure.Reason)
		asked = o.rest(ctx, pause, near)
	}
}

// supervisor decides what follows an attempt.
type supervisor struct {
	Options
	nodes   *nodes
	saved   *progress
	without int // restarts since there was a newer checkpoint
}

// review says whether, and after which pause, there is to be another attempt. If not,
// the result is that of the launch.
func (s *supervisor) review(ctx context.Context, a *attempt, r Result) (result Result, pause time.Duration, again bool) {
	if r.Failure == nil {
		return s.conclude(ctx, r, s.saved), 0, false
	}
	if err := writeFailure(s.Dir, a, r); err != nil && !s.Dir.IsDeleted() {
		s.Say(fmt.Sprintf("WARNING: %v", err))
	}
	s.tellRanks(r.Ranks, a.killed)
	if s.Dir.CheckPlace() != nil {
		// Ranks of another attempt would not find their run directory.
		return s.conclude(ctx, r, s.saved), 0, false
	}
	limit := int(s.Job.Restart.MaxWithoutProgress)
	if a.stopped || limit == 0 || r.Exit == exitCancelled {
		return s.conclude(ctx, r, s.saved), 0, false
	}
	if s.saved.further() {
		s.without = 0
	}
	if s.without >= limit {
		s.Say(fmt.Sprintf("giving up: no progress in %d restarts", limit))
		return s.conclude(ctx, r, s.saved), 0, false
	}
	if r = s.conclude(ctx, r, s.saved); r.Preempted {
		return r, 0, false
	}
	var err error
	if r.NodesLost, err = s.nodes.review(ctx, r); err != nil {
		s.Say(fmt.Sprintf("giving up: %v", err))
		return r, 0, false
	}
	s.without++
	pause = backOff(s.without)
	s.Say(fmt.Sprintf("%v; starting again%s (%d of %d without progress)", r.Failure, in(pause), s.without, limit))
	return r, pause, true
}

// failureFile is failure.json: what a program or a person reads after a failure.
type failureFile struct {
	JobID   string                  `json:"job_id,omitempty"`
	Time    time.Time               `json:"time"`
	Attempt int                     `json:"attempt"`
	Exit    int                     `json:"exit"`
	First   *rendezvous.Failure     `json:"first"`
	Ranks   []rendezvous.RankStatus `json:"ranks"`
}

func writeFailure(d rundir.Dir, a *attempt, r Result) error {
	text, err := json.MarshalIndent(failureFile{a.jobID(), time.Now().UTC(), a.number, r.Exit, r.Failure, r.Ranks}, "", "  ")
	if err != nil {
		return err
	}
	return d.WriteFailure(append(text, '\n'))
}

// tooManyLaunchers is srun having started the launcher once per task.
type tooManyLaunchers int

func (n tooManyLaunchers) Error() string {
	return fmt.Sprintf("srun started the launcher %d times; it must run once per allocation", int(n))
}

// Hint says what to do about it.
func (tooManyLaunchers) Hint() string {
	return "leave srun out: ddpbatch launch starts the ranks by srun itself"
}

// ExitCode is that of wrong usage.
func (tooManyLaunchers) ExitCode() int { return 2 }

// ranks are the processes of one attempt, however they were started.
type ranks interface {
	// wait returns when all of them have ended; the error is that of starting
	// them, not of their work.
	wait() error
	// ended is how the processes of ranks have ended, as far as that is known, once
	// wait has returned.
	ended() map[int]processEnd
	// kill ends those that are left, by force.
	kill(ctx context.Context)
}

// stopReason is what the ranks are told when asked to stop.
type stopReason string

const (
	// StopTimeLimit is the approach of the time limit.
	StopTimeLimit stopReason = "the time limit is near"
	// StopSignal is SIGUSR1 to the launcher, for which the batch script has asked.
	// Slurm also sends it to a job that it preempts, where it is set up to do so.
	StopSignal stopReason = "the time limit is near, or the job is preempted"
	// StopTerminated is SIGTERM or SIGINT to the launcher.
	StopTerminated stopReason = "the launcher was asked to end"
)

func reasonOf(s os.Signal) stopReason {
	if s == syscall.SIGUSR1 {
		return StopSignal
	}
	return StopTerminated
}
