package main

import (
	"cmp"
	"fmt"
	"os/exec"
	"runtime"

	"github.com/ddpbatch/ddpbatch/internal/format"
	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/jobs/jobfile"
	"github.com/ddpbatch/ddpbatch/slurm"
	"github.com/ddpbatch/ddpbatch/templates/sites"
)

// Without --oversubscribe, launch starts at most maxLocalRanks ranks or maxRanksPerCPU ranks
// per CPU, whichever is larger.
const (
	maxLocalRanks  = 16
	maxRanksPerCPU = 4
)

// trialJob returns the job whose ranks launch starts. For a sweep with --element, it is the
// job of that trial.
func (c *launchCmd) trialJob(f *jobfile.File) *jobs.Job {
	if f.Job.Sweep != nil && c.Element != nil && *c.Element >= 0 && *c.Element < len(f.Job.Sweep.Trials) {
		return f.Job.Sweep.Trials[*c.Element].Job
	}
	return f.Job
}

// checkRanks rejects more local ranks than this machine can run, or than the site allows on a
// login node. It accepts any number inside an allocation, because Slurm enforces the limits
// there.
func (c *launchCmd) checkRanks(p *program, a *slurm.Allocation, job *jobs.Job, site *sites.Profile) error {
	if a != nil {
		return nil
	}
	ranks := job.Ranks()
	if c.Ranks != nil {
		ranks = *c.Ranks
	}
	_, err := exec.LookPath("sbatch")
	_, inJob := p.lookup("SLURM_JOB_ID")
	host := hostName()
	if allowed, limited := site.LoginLimit(host, err == nil, inJob); limited && ranks > allowed {
		what := fmt.Sprintf("allows %d", allowed)
		if allowed == 0 {
			what = "does not allow this"
		}
		hint := cmp.Or(string(site.Login.Hint), "submit the job, or run `ddpbatch launch` inside an allocation")
		return exitError{exitUsage, hints.Add(fmt.Errorf("start %s on login node %q: the profile of %s %s", format.Count(ranks, "rank"), host, site.Name(), what), hint)}
	}
	cpus := runtime.NumCPU()
	if ranks > max(maxLocalRanks, maxRanksPerCPU*cpus) && !c.Over {
		return exitError{exitUsage, hints.Add(fmt.Errorf("start %d ranks on this machine: it has %s", ranks, format.Count(cpus, "CPU")),
			"start fewer with -n, such as -n 2, or start all with --oversubscribe")}
	}
	return nil
}
