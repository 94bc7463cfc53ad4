// Package launch starts, supervises, and stops the ranks of a job. [Run] is the launcher: one
// per allocation or, without Slurm, one per machine. Each rank that it starts calls [Join]
// first.
//
// The code runs in two kinds of processes:
//
//   - In the launcher: an attempt (attempt.go) starts ranks with srun (step.go, container.go) or as
//     children (local.go). publish.go, exits.go, program_progress.go, and program_watch.go observe
//     the ranks. launch.go, nodes.go, progress.go, and requeue.go decide what follows an attempt.
//   - In a rank, methods of [Rank]: rank.go joins and connects, and rankinfo.go finds the rank. The
//     ranks select the network (network.go, connectivity.go), the GPUs (devices.go), and the master
//     port (master.go, portguard.go). program.go runs the user's program, environ.go and context.go
//     set its variables, stop*.go, processes.go, and workers.go stop it, and component*.go run
//     components.
//
// If the ranks have to agree, each sends a payload in a round of the rendezvous, and a function
// such as decideHosts decides for all of them. It runs in the launcher or, without a launcher, in
// rank 0 (rendezvous.go).
//
// The package guarantees:
//
//   - Only the ranks of one attempt find each other. Each attempt has its own secret. Ranks
//     read it from a file that only this user can read or, on one machine, from their
//     environment. The secret is never in an argument list and never crosses the network.
//   - A rank that does not join, is killed, or fails ends the attempt. The error names the
//     rank and its host. Its message and exit code are recorded.
//   - All ranks communicate over one network, which they agree on and which passes a
//     connectivity check. Later changes of this network are reported and recorded.
//   - A stop request reaches every rank.
//   - A program starts when all components are ready. A component is ready only if it has itself
//     met its condition: another user's listener or file does not count.
//   - Ranks, and users' programs with their workers, do not outlive their attempt or the
//     launcher.
//   - The launcher gives up after a limited number of attempts without progress. It excludes
//     nodes that were found to be bad, if the job has spare nodes or can run on fewer nodes.
//   - A job that must leave its nodes before it is complete is requeued once. Otherwise the
//     launcher reports why it is not requeued.
//
// The package does not submit jobs and does not train. It does not stop workers that leave the
// process group of their program. Under Slurm the step daemon stops them. Without Slurm
// nothing stops them.
package launch

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/ddpbatch/ddpbatch/internal/exitcode"
	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/jobs/outcome"
	"github.com/ddpbatch/ddpbatch/jobs/rundir"
	"github.com/ddpbatch/ddpbatch/slurm"
	"github.com/ddpbatch/ddpbatch/templates/sites"
	"github.com/ddpbatch/ddpbatch/trainer/rendezvous"
)

// Exit codes of an attempt whose end is not the exit code of a rank.
const (
	exitFailed   = exitcode.Failed
	exitStopped  = exitcode.Stopped
	exitLost     = exitcode.Lost
	exitCanceled = exitcode.Canceled
)

// killGrace is how long ranks may take to exit after an attempt has failed or was canceled,
// before the launcher kills them.
const killGrace = 4 * time.Second

// Options describe what to launch, and where.
type Options struct {
	Job     *jobs.Job // with resolved paths and the site's defaults
	Site    *sites.Profile
	Dir     rundir.Dir
	Binary  string   // absolute path of this program
	Program string   // digest of this program
	Spec    string   // digest of the job file
	Environ []string // environment of this process
	// Code is the state of the user's program; nil if a submission has already recorded it.
	Code *rundir.Code

	// Slurm is the client for queries about the job of this process.
	Slurm slurm.Client
	// Allocation holds the nodes of the ranks. Without Slurm it is nil, and the ranks start on
	// this machine.
	Allocation *slurm.Allocation
	// Partial reports that the job has more nodes than Allocation. The step then names its nodes.
	Partial bool
	// Processes is the number of ranks to start without Slurm.
	Processes int

	Stdout, Stderr *os.File
	// Signals requests a stop. A second interrupt, at least 500 ms after the request, ends the attempt.
	// The launcher kills ranks that do not exit within 4 s.
	Signals <-chan os.Signal
	// Say receives messages for the user, one line at a time.
	Say func(line string)
	// Notify receives the start and the restarts of the run; nil for none. It must not block.
	Notify func(event jobs.NotifyEvent, attempt int, cause string)
}

// notifyBegin reports the start of an attempt. cause is the failure of the previous one.
func (o Options) notifyBegin(attempt int, cause string) {
	event := jobs.NotifyStarted
	if requeued := o.Allocation != nil && o.Allocation.RestartCount > 0; attempt > 1 || requeued {
		event = jobs.NotifyRestarted
	}
	if o.Notify != nil {
		o.Notify(event, attempt, cause)
	}
}

// A Result describes how the last attempt ended.
type Result struct {
	Exit    int // exit code of this process
	Failure *rendezvous.Failure
	Ranks   []rendezvous.RankStatus
	// Stopped reports that the ranks were asked to stop and ended with one of the exit codes
	// of stopped ranks. Their work is then incomplete, even if a user's program ends with 0.
	Stopped bool
	// NearEnd reports that the ranks were asked to stop because the time limit is near or the
	// job is preempted.
	NearEnd bool
	// Preempted reports that Slurm takes the nodes for another job, and that this job still
	// has them.
	Preempted bool
	// SlurmRequeues reports that the job is preempted and that Slurm requeues it when the
	// batch script ends. Otherwise the launcher must request the requeue.
	SlurmRequeues bool
	// NodesLost reports that too few working nodes are left.
	NodesLost bool
	// StopUnhandled reports that the job's program was asked to stop, and that no process of
	// it on any node handled the signal. The program cannot have saved a checkpoint because of
	// the signal.
	StopUnhandled bool
	// ReportedSave reports that the job's program was asked to stop, and ended with exit code 3 or
	// with one of command.stop_codes, which mean that it has saved.
	ReportedSave bool
	// NotStarted reports that the ranks were asked to stop while components started, so no program
	// has started.
	NotStarted bool
	// Progress reports that a newer checkpoint exists than when the launcher started, or that
	// the program reported a later step than under all earlier launchers. It is determined only if
	// restart.requeue or restart.on_failure depends on it.
	Progress bool
	// StopRequested reports that the ranks were asked to stop, even if they failed then.
	StopRequested bool

	// portRestart reports that another attempt follows because a port was in use.
	portRestart bool
}

// CheckSingleLauncher returns an error if srun started several launchers in an allocation.
func CheckSingleLauncher(a slurm.Allocation) error {
	if a.StepTasks > 1 {
		return exitcode.Usagef("run `ddpbatch launch` without srun: it calls srun to start the ranks",
			"srun started the launcher %d times; it must run once per allocation", a.StepTasks)
	}
	return nil
}

// Run launches the job and returns when it is over. After a failure it starts the ranks again,
// as often as the job's [restart] table allows.
func Run(ctx context.Context, o Options) (Result, error) {
	if o.Allocation == nil && startsMPI(o.Job) {
		return Result{}, exitcode.Usagef("submit the job, start it with `mpirun -n N ddpbatch run job.toml`, or remove train.backend: ranks on one machine use shared memory",
			"an MPI program, or train.backend = \"mpi\", needs srun, which requires Slurm")
	}
	if o.Allocation == nil && o.Job.RunsOnce() && o.Processes != 1 {
		return Result{}, exitcode.Usagef("remove -n", "command.run = \"once\" is one process, not %d", o.Processes)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	nodes, err := newNodes(o)
	if err != nil {
		return Result{}, err
	}
	s := &supervisor{Options: o, nodes: nodes, saved: watchProgress(ctx, o)}
	if err := o.Dir.RemoveSecrets(); err != nil {
		o.Say(fmt.Sprintf("warning: remove the secrets of earlier attempts: %v", err))
	}
	limitNear := o.watchTimeLimit(ctx)
	var pendingStop os.Signal
	previous := "" // failure of the previous attempt
	for number := 1; ; number++ {
		if err := o.Dir.ClearFailure(); err != nil {
			return Result{}, err
		}
		a, err := newAttempt(ctx, o, number, nodes.chosen)
		if err != nil {
			return Result{}, err
		}
		a.limitNear, a.pendingStop = limitNear, pendingStop
		o.recordBegin(a)
		o.notifyBegin(number, previous)
		result, err := a.run(ctx)
		if err != nil {
			o.recordEnd(a, Result{Exit: exitFailed, Failure: &rendezvous.Failure{Rank: -1, Reason: err.Error()}}, false)
			return Result{}, err
		}
		result, pause, again := s.decideRestart(ctx, a, result)
		result.Stopped = a.stoppedOnRequest(result)
		o.recordEnd(a, result, again)
		if !again {
			o.printStop(result)
			return result, nil
		}
		previous = result.Failure.Error()
		a.publish(rundir.PhaseRestarting, result.Failure.Reason)
		pendingStop = o.waitBeforeRestart(ctx, pause, limitNear)
	}
}

// A supervisor decides after each attempt whether to start another one.
type supervisor struct {
	Options
	nodes    *nodes
	saved    *progress
	restarts int // restarts since the last progress
	// portRestarts counts the latest consecutive starts after a port was in use.
	portRestarts int
}

// decideRestart decides whether to start another attempt, and after which delay. If again is
// false, the returned result is the result of the launch.
func (s *supervisor) decideRestart(ctx context.Context, a *attempt, r Result) (result Result, pause time.Duration, again bool) {
	r.StopRequested = a.stopped
	earlierStep := s.saved.programStep
	s.saved.programStep = max(earlierStep, a.programStep)
	if r.Failure == nil {
		return s.finalizeResult(ctx, r, s.saved), 0, false
	}
	if err := writeFailure(s.Dir, a, r); err != nil && !s.Dir.IsDeleted() {
		s.Say(fmt.Sprintf("warning: %v", err))
	}
	a.keepTraces()
	s.printRankEnds(r.Ranks, a.killed)
	if s.Dir.CheckPlace() != nil {
		// Ranks of another attempt would not find their run directory.
		return s.finalizeResult(ctx, r, s.saved), 0, false
	}
	if !r.Failure.PortTaken {
		s.portRestarts = 0
	} else if !a.stopped && r.Exit != exitCanceled && s.portRestarts < maxPortRestarts {
		if r = s.finalizeResult(ctx, r, s.saved); r.Preempted {
			return r, 0, false
		}
		s.portRestarts++
		r.portRestart = true
		s.Say(portRestartLine(r.Failure, s.portRestarts))
		return r, 0, true
	}
	limit := s.Job.Restart.MaxWithoutProgress
	if a.stopped || a.final || limit == 0 || r.Exit == exitCanceled {
		return s.finalizeResult(ctx, r, s.saved), 0, false
	}
	if s.saved.advanced() || a.programStep > earlierStep {
		s.restarts = 0
	}
	if s.restarts >= limit {
		s.Say(fmt.Sprintf("giving up: no progress in %d restarts", limit))
		return s.finalizeResult(ctx, r, s.saved), 0, false
	}
	if r = s.finalizeResult(ctx, r, s.saved); r.Preempted {
		return r, 0, false
	}
	var err error
	if r.NodesLost, err = s.nodes.excludeBadNodes(ctx, r); err != nil {
		s.Say(fmt.Sprintf("giving up: %v", err))
		return r, 0, false
	}
	s.restarts++
	pause = restartDelay(s.restarts)
	s.Say(fmt.Sprintf("%v; starting again%s (%d of %d without progress)", r.Failure, formatDelay(pause), s.restarts, limit))
	return r, pause, true
}

func writeFailure(d rundir.Dir, a *attempt, r Result) error {
	text, err := json.MarshalIndent(outcome.Failure{JobID: a.jobID(), Time: time.Now().UTC(), Attempt: a.number, Exit: r.Exit, First: r.Failure, Ranks: r.Ranks,
		LastLines: a.lastLines(r.Failure)}, "", "  ")
	if err != nil {
		return err
	}
	return d.WriteFailure(append(text, '\n'))
}

// RecordFinding adds the known failure in the log of the last attempt to failure.json.
func RecordFinding(d rundir.Dir, found outcome.Finding) error {
	f, err := outcome.ReadFailure(d)
	if err != nil || f == nil {
		return err
	}
	f.Finding = &found
	text, err := json.MarshalIndent(f, "", "  ")
	if err != nil {
		return err
	}
	return d.WriteFailure(append(text, '\n'))
}

// ranks are the processes of one attempt, with or without Slurm.
type ranks interface {
	// wait returns when all processes have ended. The error describes a failed start, not a
	// failure of the ranks.
	wait() error
	// processEnds returns how the processes of the ranks ended, as far as known. It is valid after
	// wait has returned.
	processEnds() map[int]processEnd
	// kill kills the processes that are still running.
	kill(ctx context.Context)
}

// A stopReason is the reason that ranks receive with a stop request.
type stopReason string

const (
	// reasonTimeLimit means that the job's time limit is near.
	reasonTimeLimit stopReason = "the time limit is near"
	// reasonSignal means that the launcher received SIGUSR1, which the batch script requests.
	// Slurm can be configured to send it also to jobs that it preempts.
	reasonSignal stopReason = "the time limit is near, or the job is preempted"
	// reasonTerminated means that the launcher received SIGTERM or SIGINT.
	reasonTerminated stopReason = "the launcher received a stop signal"
)

func stopReasonOf(s os.Signal) stopReason {
	if s == syscall.SIGUSR1 {
		return reasonSignal
	}
	return reasonTerminated
}
