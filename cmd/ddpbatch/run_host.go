package main

import (
	"os"

	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/jobs/launch"
	"github.com/ddpbatch/ddpbatch/jobs/launchers"
	"github.com/ddpbatch/ddpbatch/jobs/rundir"
	"github.com/ddpbatch/ddpbatch/jobs/runs"
)

// runHost starts the ranks of this host, unless this process is a rank itself.
func (c *runCmd) runHost(p *program, info launch.RankInfo) (started bool, err error) {
	job, err := c.job(p)
	if err != nil {
		return false, err
	}
	ranks, err := launch.RanksToStart(info, job)
	if err != nil || ranks == 0 {
		return false, err
	}
	binary, err := os.Executable()
	if err != nil {
		return false, err
	}
	argv := []string{binary, "run", "--launcher", launchers.Torchrun}
	if c.RunDir != "" {
		argv = append(argv, "--run-dir", c.RunDir)
	}
	if c.Job != "" {
		argv = append(argv, "--", c.Job)
	}
	signals, quit := notifyStop()
	defer quit()
	exit, err := launch.RunHost(launch.HostOptions{Info: info, Argv: argv, Environ: p.Env,
		Stdout: os.Stdout, Stderr: os.Stderr, Signals: signals}, ranks)
	if err == nil && exit != exitDone {
		err = exitError{exit, nil} // the ranks have printed the cause
	}
	return true, err
}

// job loads the job before a rank has opened the run directory.
func (c *runCmd) job(p *program) (*jobs.Job, error) {
	if c.Job != "" {
		f, err := p.load(c.Job)
		if err != nil {
			return nil, err
		}
		return f.Job, nil
	}
	if c.RunDir == "" {
		return nil, usage("give a job file, or a run directory with --run-dir")
	}
	dir, release, err := rundir.OpenOwn(p.abs(c.RunDir))
	if err != nil {
		return nil, err
	}
	defer release()
	stored, err := runs.LoadJob(dir)
	if err != nil {
		return nil, err
	}
	return stored.Job, nil
}
