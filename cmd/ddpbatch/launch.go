package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ddpbatch/ddpbatch/internal/format"
	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/jobs/jobfile"
	"github.com/ddpbatch/ddpbatch/jobs/launch"
	"github.com/ddpbatch/ddpbatch/jobs/rundir"
	"github.com/ddpbatch/ddpbatch/jobs/runs"
	"github.com/ddpbatch/ddpbatch/jobs/submit"
	"github.com/ddpbatch/ddpbatch/slurm"
	"github.com/ddpbatch/ddpbatch/templates/sites"
)

// launchCmd starts all ranks of a job and waits for them.
type launchCmd struct {
	Job          string   `arg:"" optional:"" name:"job.toml" help:"Job file. Optional with the --run-dir of a submitted job."`
	RunDir       string   `help:"Run directory (default: runs/NAME in the current directory)." placeholder:"DIR"`
	Ranks        *int     `short:"n" help:"Number of ranks to start on this machine, without Slurm (default: the ranks of the job)." placeholder:"N"`
	Set          []string `sep:"none" placeholder:"KEY=VALUE" help:"Override a key of the job file, such as train.batch=64. Repeatable."`
	Plain        bool     `help:"Disable the live view on a terminal."`
	Over         bool     `name:"oversubscribe" help:"Allow more than 16 ranks and more than four ranks per CPU, without Slurm."`
	Element      *int     `placeholder:"N" help:"Trial of the sweep to run (default inside a job array: the trial of the array task)."`
	Name         string   `placeholder:"NAME" help:"Name of the run of a command after -- (default: the name of the Slurm job, or of the program)."`
	Nodes        int      `placeholder:"N" help:"Nodes of the allocation for a command after -- (default: all)."`
	Total        int      `name:"ntasks" placeholder:"N" help:"Ranks on all nodes for a command after -- (default: the tasks of the Slurm job, or one per node)."`
	TasksPerNode int      `placeholder:"N" help:"Ranks per node for a command after --."`
	CPUsPerTask  int      `name:"cpus-per-task" placeholder:"N" help:"Cores per rank for a command after -- (default: the value of the Slurm job, or all cores)."`
	Launcher     string   `placeholder:"NAME" help:"Way to start a command after --: rank, torchrun (once per node), accelerate, deepspeed, or lightning (default: rank)."`
	Site         string   `placeholder:"NAME" help:"Site profile for a command after -- (default: generic)."`
	Image        string   `name:"container-image" placeholder:"IMAGE" help:"Container image for a command after --."`
	Mounts       string   `name:"container-mounts" placeholder:"LIST" help:"Directories to mount in the container, such as /data,/scratch:/work."`
	SrunOptions  []string `name:"srun-option" sep:"none" placeholder:"OPTION" help:"Additional option of srun for a command after --, such as --srun-option=--unbuffered. Repeatable."`
	Digest       string   `placeholder:"SHA256" help:"Run the job in --run-dir only if it is the job with this digest. Batch scripts pass the digest of the submitted job."`
}

func (c *launchCmd) Help() string {
	return `Inside an allocation, it starts the ranks with srun, with the nodes and the layout of
the job file. Without Slurm, it starts them on this machine, for example to try a job
before you submit it.

A command after -- needs no job file. In your own batch script, it replaces srun:

    ddpbatch launch -- python3 train.py --lr 0.1
    ddpbatch launch -n 1 -- ./run.sh           # one process, as without srun
    ddpbatch launch job.toml -- train.py "$@"  # replaces command.argv

In a job, the run directory of such a command is runs/NAME-JOBID.

Control-C requests that all ranks save and stop. A second Control-C stops
them immediately.

On a terminal, a live view below the output shows the status of a run of the built-in
trainer. --plain disables it.`
}

// Run opens the run directory, starts the ranks, waits for them, and records how the run ended.
func (c *launchCmd) Run(ctx context.Context, p *program) error {
	o := launch.Options{Environ: p.Env, Slurm: p.slurm(), Stdout: os.Stdout, Stderr: os.Stderr,
		Say: func(line string) { p.note("%s", line) }}
	if err := c.checkAllocation(p, &o); err != nil {
		return err
	}
	leave, err := c.open(ctx, p, &o)
	if err != nil {
		return err
	}
	defer leave()
	id := jobID(o.Allocation)
	if done, err := c.prepare(ctx, p, &o, id); done || err != nil {
		return err
	}
	signals, quit := notifyStop()
	defer quit()
	o.Signals = signals
	hide, err := c.show(p, &o, id, p.copyOutput(&o, id))
	if err != nil {
		return err
	}
	messages := p.notifier(&o, id)
	defer messages.Close()
	diagnosis := newDiagnosis(&o)
	result, err := launch.Run(ctx, o)
	hide()
	err = p.recordResult(&o, id, result, err, diagnosis)
	messages.end(err, result)
	if o.Allocation != nil && !result.SlurmRequeues {
		messages.Close() // a requeue ends this process
	}
	launch.Requeue(ctx, o, result)
	return err
}

// checkAllocation checks the flags and sets the allocation that surrounds the launcher, if any.
func (c *launchCmd) checkAllocation(p *program, o *launch.Options) error {
	allocation, inside, err := slurm.AllocationFromEnv(p.lookup)
	if err != nil {
		return err
	}
	if c.Ranks != nil && *c.Ranks < 1 {
		return usage("-n must be at least 1")
	}
	if err := c.checkCommand(p); err != nil {
		return err
	}
	if p.Command != nil {
		startsScript := c.Job != "" || c.Launcher != "" && c.Launcher != string(jobs.LauncherRank)
		if err := p.checkFallbackDir(false, append(commandFiles(p.Command, startsScript), c.Image)...); err != nil {
			return err
		}
		var required []string
		if c.Job == "" && c.Image == "" && (strings.Contains(p.Command[0], "/") || startsScript && strings.HasSuffix(p.Command[0], ".py")) {
			required = append(required, p.Command[0])
		}
		if sites.IsPath(c.Site) {
			required = append(required, c.Site)
		}
		if err := p.checkFallbackDir(true, required...); err != nil {
			return err
		}
	}
	if !inside || c.Ranks != nil {
		return nil
	}
	o.Allocation = &allocation
	// Check this first: srun can start several launchers by mistake, and they would interfere with
	// each other.
	return launch.CheckSingleLauncher(allocation)
}

// prepare completes the options after [launchCmd.open], and checks that the job may start. It returns
// done if the run has already finished.
func (c *launchCmd) prepare(ctx context.Context, p *program, o *launch.Options, id string) (done bool, err error) {
	if c.Job != "" || p.Command != nil || o.Allocation == nil {
		o.Environ, _ = o.Job.Setup.ApplySteps(o.Environ)
		p.warnIgnoredSetup(o.Job, o.Site, o.Allocation != nil)
	}
	o.Processes = o.Job.Ranks()
	if c.Ranks != nil {
		o.Processes = *c.Ranks
	}
	if o.Binary, o.Program, err = findProgram(); err != nil {
		return false, err
	}
	if c.Digest != "" {
		previous, done, err := submit.StartChained(ctx, o.Dir, p.abs(c.RunDir), id)
		switch {
		case err != nil:
			return false, err
		case done:
			p.note("nothing to do: job %s has finished the run", previous)
			return true, nil
		case previous != "":
			p.note("continuing the run after job %s", previous)
		}
	}
	if err := p.checkSubmission(ctx, c, o, id); err != nil {
		return false, err
	}
	if o.Allocation == nil {
		o.Code = submit.DescribeCode(ctx, o.Job, o.Dir, p.Env, o.Say)
	}
	if err := o.Dir.ClearEnd(); err != nil {
		return false, err
	}
	if id != "" {
		if err := o.Dir.ProtectLog(id); err != nil {
			p.note("warning: %v", err)
		}
	}
	return false, nil
}

// recordResult prints and records how the run ended. It returns the error with the exit code of the
// launcher, or nil. err is the error of [launch.Run].
func (p *program) recordResult(o *launch.Options, id string, result launch.Result, err error, d diagnosis) error {
	failed := err != nil
	switch {
	case failed:
	case result.Failure != nil:
		err = exitError{result.Exit, result.Failure}
	case result.Exit != exitDone:
		err = exitError{result.Exit, nil}
	}
	if moved := o.Dir.CheckPlace(); moved != nil && (failed || result.Failure == nil || o.Job.Command != nil) {
		p.warnOfMove(moved, !failed && result.Failure == nil && result.Exit == exitDone && !result.Stopped)
	}
	diagnosed := !failed && result.Failure != nil && result.Exit != exitCanceled
	if o.Allocation == nil || diagnosed {
		// Print before WriteEnd, so that users who follow the log receive all of it.
		report(p.Stderr, err, "")
		err = markPrinted(err)
	}
	if diagnosed {
		d.print(p, result)
	}
	if err := o.Dir.WriteEnd(rundir.End{JobID: id, Exit: exitCode(err), Stopped: result.Stopped, Time: time.Now().UTC()}); err != nil && !o.Dir.IsDeleted() {
		p.note("warning: %v", err)
	}
	return err
}

// warnOfMove warns that the run directory is no longer at its path. The hint is omitted if the
// run has finished and the directory is deleted, because nothing can be resumed.
func (p *program) warnOfMove(err error, finished bool) {
	p.note("warning: %v", err)
	var moved *rundir.MovedError
	if errors.As(err, &moved) {
		moved.Finished = finished
		if finished && moved.Deleted {
			return
		}
	}
	p.note("hint: %s", hints.Of(err))
}

// open loads the job, holds its run directory, and locks it against a second launcher before
// it changes any file in it. The caller calls leave at the end.
func (c *launchCmd) open(ctx context.Context, p *program, o *launch.Options) (leave func(), err error) {
	var held closers
	defer func() {
		if err != nil {
			held.close()
		}
	}()
	if c.Job != "" && c.Digest != "" {
		return nil, usage("--digest is not valid with a job file, only for a submitted job")
	}
	if c.Job == "" && p.Command == nil {
		if err = held.add(c.openSubmitted(p, o)); err == nil {
			err = held.add(o.Dir.Lock(p.launcherClaim(ctx, o)))
		}
		return held.close, err
	}
	f, err := c.loadJob(p, o.Allocation)
	if err != nil {
		return nil, err
	}
	if err := c.checkRanks(p, o.Allocation, c.trialJob(f), f.Site); err != nil {
		return nil, err
	}
	if p.Command == nil { // a shell has expanded the command
		p.printWarnings(f, o.Allocation == nil)
	}
	if c.Job == "" && c.RunDir == "" {
		if c.RunDir, err = p.commandDir(string(f.Job.Name), jobID(o.Allocation)); err != nil {
			return nil, err
		}
	}
	dir, release, err := c.chooseDir(p, f)
	if err := held.add(release, err); err != nil {
		return nil, err
	}
	o.Dir = dir
	if err := held.add(o.Dir.Lock(p.launcherClaim(ctx, o))); err != nil {
		return nil, err
	}
	// In an allocation, the job in question is this one.
	if o.Allocation == nil {
		err := submit.CheckNotInUse(ctx, p.slurm(), o.Dir)
		if errors.Is(err, exec.ErrNotFound) {
			p.note("warning: %s was submitted on a different machine; cannot check whether that job has ended, because Slurm is not installed on this machine", f.Job.Name)
		} else if err != nil {
			return nil, err
		}
	}
	if err := submit.PrepareLaunch(o.Dir, launchRequest(f, o.Dir.Path), jobID(o.Allocation)); err != nil {
		return nil, err
	}
	o.Job, o.Site, o.Spec = f.Job, f.Site, rundir.Digest(f.Spec)
	o.Job.ResolvePaths(f.Base)
	if a := o.Allocation; c.Job == "" && a != nil && len(a.Components) == 0 && o.Job.Slurm.Nodes < len(a.Nodes) {
		o.Allocation = &slurm.Allocation{}
		*o.Allocation = *a
		o.Allocation.Nodes, o.Partial = a.Nodes[:o.Job.Slurm.Nodes], true
	}
	return held.close, nil
}

// chooseDir creates and holds the run directory, and checks that the job in f can resume in it. For
// a sweep, it replaces this job with the job of a trial.
func (c *launchCmd) chooseDir(p *program, f *jobfile.File) (dir rundir.Dir, release func(), err error) {
	if dir, err = p.checkRunDir(c.RunDir, f); err != nil {
		return dir, nil, exitError{exitNoState, err} // ranks exit with the same code
	}
	switch {
	case f.Job.Sweep != nil:
		return c.chooseTrial(f, dir.Path)
	case c.Element != nil:
		return dir, nil, usage("--element requires a sweep, and the job file has no [sweep]")
	}
	if err = submit.CheckResumable(rundir.Dir{Path: dir.Path}, nil); err != nil {
		return dir, nil, err
	}
	if dir, err = rundir.Create(dir.Path); err != nil {
		return dir, nil, err
	}
	return dir.Hold()
}

// closers are functions to call at the end, in reverse order.
type closers []func()

// add appends f if err is nil. It returns err.
func (c *closers) add(f func(), err error) error {
	if err == nil {
		*c = append(*c, f)
	}
	return err
}

func (c *closers) close() {
	for _, f := range slices.Backward(*c) {
		f()
	}
}

// launchRequest describes the job in f, with its run directory at path, for a launch without a
// submission.
func launchRequest(f *jobfile.File, path string) submit.Request {
	return submit.Request{Job: f.Job, Site: f.Site, Base: f.Base, Spec: f.Spec, Dir: path, Version: version(), Host: hostName(), User: userName()}
}

// chooseTrial creates and holds the run directory of the trial that --element selects. It replaces the
// job in f with the job of the trial. Path is the path of the sweep's directory.
func (c *launchCmd) chooseTrial(f *jobfile.File, path string) (trial rundir.Dir, release func(), err error) {
	all := f.Job.Sweep.Trials
	if c.Element == nil {
		return trial, nil, exitError{exitUsage, hints.Add(fmt.Errorf("%s is a sweep of %s", f.Job.Name, format.Count(len(all), "trial")), "select a trial with --element N")}
	}
	if *c.Element < 0 || *c.Element >= len(all) {
		return trial, nil, usage(fmt.Sprintf("no trial %d: the sweep has trials 0 to %d", *c.Element, len(all)-1))
	}
	req := launchRequest(f, path)
	f.Job = all[*c.Element].Job
	if f.Spec, err = f.Job.Source(); err != nil {
		return trial, nil, err
	}
	return submit.CreateTrial(req, *c.Element)
}

// openSubmitted loads the job that submit stored in the run directory. It holds the directory
// until the caller calls release.
func (c *launchCmd) openSubmitted(p *program, o *launch.Options) (release func(), err error) {
	if c.RunDir == "" {
		return nil, usage("give a job file, or the run directory of a submitted job with --run-dir")
	}
	if len(c.Set) > 0 {
		return nil, usage("--set requires a job file; the keys of a submitted job cannot be overridden")
	}
	element := c.Element
	if a := o.Allocation; a != nil && a.ArrayTask != "" {
		task, err := strconv.Atoi(a.ArrayTask)
		if err != nil {
			return nil, err
		}
		element = &task
	}
	if o.Dir, release, err = rundir.OpenRun(p.abs(c.RunDir), element); err != nil {
		return nil, err
	}
	stored, err := runs.LoadJob(o.Dir)
	if err == nil && c.Digest != "" {
		err = stored.CheckDigest(o.Dir, c.Digest)
	}
	if err == nil {
		err = c.checkRanks(p, o.Allocation, stored.Job, stored.Site)
	}
	if err == nil {
		err = stored.Job.CheckFiles(stored.Record.Base)
	}
	if err != nil {
		release()
		return nil, err
	}
	o.Job, o.Site, o.Spec = stored.Job, stored.Site, rundir.Digest(stored.Spec)
	o.Job.ResolvePaths(stored.Record.Base)
	return release, nil
}
