package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

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
		Say: func(line string) { fmt.Fprintf(p.Stderr, "ddpbatch: %s\n", line) }}
	allocation, inside, err := slurm.AllocationFromEnv(p.lookup)
	if err != nil {
		return err
	}
	if inside && c.Ranks == 0 {
		o.Allocation = &allocation
	}
	if err := c.open(p, &o); err != nil {
		return err
	}
	o.Processes = c.Ranks
	if o.Processes == 0 {
		o.Processes = o.Job.Ranks()
	}
	if o.Processes < 0 {
		return usage("-n must be at least 1")
	}
	unlock, err := o.Dir.Lock()
	if err != nil {
		return err
	}
	defer unlock()
	if o.Binary, err = os.Executable(); err != nil {
		return err
	}
	d, err := digestsOf(o.Dir.Spec())
	if err != nil {
		return err
	}
	o.Program, o.Spec = d.program, d.spec

	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGINT)
	defer signal.Stop(signals)
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

// open loads the job and prepares its run directory.
func (c *launchCmd) open(p *program, o *launch.Options) error {
	var err error
	if c.Job == "" {
		if c.RunDir == "" {
			return usage("name a job file, or the run directory of a submitted job with --run-dir")
		}
		if o.Dir, err = rundir.Open(p.abs(c.RunDir)); err != nil {
			return err
		}
		record, err := o.Dir.ReadRecord()
		if err != nil {
			return err
		}
		if o.Job, err = jobs.Load(o.Dir.Spec()); err != nil {
			return err
		}
		o.Job.ResolvePaths(record.Base)
		return o.Job.CheckFiles(record.Base)
	}
	path := p.abs(c.Job)
	if o.Job, err = jobs.Load(path); err != nil {
		return err
	}
	base := filepath.Dir(path)
	if err := o.Job.CheckFiles(base); err != nil {
		return err
	}
	spec, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if o.Dir, err = rundir.Create(p.runDir(c.RunDir, o.Job).Path); err != nil {
		return err
	}
	if _, err := o.Dir.Prepare(string(o.Job.Name), base, version(), spec); err != nil {
		return err
	}
	o.Job.ResolvePaths(base)
	return nil
}
