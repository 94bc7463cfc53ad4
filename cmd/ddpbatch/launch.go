package main

import (
	"context"
	"errors"
	"os"
	"os/exec"

	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/jobs/launch"
	"github.com/ddpbatch/ddpbatch/jobs/rundir"
	"github.com/ddpbatch/ddpbatch/slurm"
)

// launchCmd starts all ranks of a job and stays until they are done.
type launchCmd struct {
	Job    string `arg:"" optional:"" name:"job.toml" help:"Job file; may be left out with --run-dir of a submitted job."`
	RunDir string `help:"Run directory; default runs/NAME." placeholder:"DIR"`
	Ranks  int    `short:"n" help:"Without Slurm: ranks to start on this machine; default as many as the job has." placeholder:"N"`
}

func (c *launchCmd) Help() string {
	return `Inside an allocation the ranks are started by srun, on the nodes and in the layout
that the job file asks for. Without Slurm they are started on this machine: the
way to try a job before it queues.

Control-C asks all ranks to save and stop; a second one ends them at once.`
}

func (c *launchCmd) Run(ctx context.Context, p *program) error {
	o := launch.Options{Environ: p.Env, Stdout: os.Stdout, Stderr: os.Stderr,
		Say: func(line string) { p.note("%s", line) }}
	allocation, inside, err := slurm.AllocationFromEnv(p.lookup)
	if err != nil {
		return err
	}
	if inside && c.Ranks == 0 {
		o.Allocation = &allocation
	}
	unlock, err := c.open(ctx, p, &o)
	if err != nil {
		return err
	}
	defer unlock()
	o.Processes = c.Ranks
	if o.Processes == 0 {
		o.Processes = o.Job.Ranks()
	}
	if o.Processes < 0 {
		return usage("-n must be at least 1")
	}
	if o.Binary, err = os.Executable(); err != nil {
		return err
	}
	d, err := digestsOf(o.Dir.Spec())
	if err != nil {
		return err
	}
	o.Program, o.Spec = d.program, d.spec

	signals, quit := requests()
	defer quit()
	o.Signals = signals
	result, err := launch.Run(ctx, o)
	if err != nil {
		return err
	}
	if result.Failure != nil {
		return exitError{result.Exit, result.Failure}
	}
	if result.Exit != exitDone {
		return exitError{result.Exit, nil}
	}
	return nil
}

// open loads the job, locks its run directory against a second launcher, and
// only then touches what stands there.
func (c *launchCmd) open(ctx context.Context, p *program, o *launch.Options) (unlock func(), err error) {
	if c.Job == "" {
		return c.openSubmitted(p, o)
	}
	f, err := p.load(c.Job)
	if err != nil {
		return nil, err
	}
	if o.Dir, err = rundir.Create(p.runDir(c.RunDir, f.job).Path); err != nil {
		return nil, err
	}
	if unlock, err = o.Dir.Lock(); err != nil {
		return nil, err
	}
	// In the allocation of that very job it is this one.
	if o.Allocation == nil {
		err := p.refuseSecond(ctx, o.Dir)
		if errors.Is(err, exec.ErrNotFound) {
			p.note("WARNING: %s was submitted from elsewhere; there is no Slurm here to ask whether that job is over", f.job.Name)
		} else if err != nil {
			unlock()
			return nil, err
		}
	}
	if _, err := o.Dir.Prepare(string(f.job.Name), f.base, version(), f.spec); err != nil {
		unlock()
		return nil, err
	}
	o.Job = f.job
	o.Job.ResolvePaths(f.base)
	return unlock, nil
}

// openSubmitted takes the job file that submit has put into the run directory.
func (c *launchCmd) openSubmitted(p *program, o *launch.Options) (unlock func(), err error) {
	if c.RunDir == "" {
		return nil, usage("name a job file, or the run directory of a submitted job with --run-dir")
	}
	if o.Dir, err = rundir.Open(p.abs(c.RunDir)); err != nil {
		return nil, err
	}
	record, err := o.Dir.ReadRecord()
	if err != nil {
		return nil, err
	}
	if o.Job, err = jobs.Load(o.Dir.Spec()); err != nil {
		return nil, err
	}
	if err := o.Job.CheckFiles(record.Base); err != nil {
		return nil, err
	}
	o.Job.ResolvePaths(record.Base)
	return o.Dir.Lock()
}
