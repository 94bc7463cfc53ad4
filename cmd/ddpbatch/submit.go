package main

import (
	"context"
	"fmt"
	"os"
	"os/user"
	"strconv"
	"strings"

	"github.com/ddpbatch/ddpbatch/internal/format"
	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/internal/printable"
	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/jobs/jobfile"
	"github.com/ddpbatch/ddpbatch/jobs/outcome"
	"github.com/ddpbatch/ddpbatch/jobs/rundir"
	"github.com/ddpbatch/ddpbatch/jobs/runs"
	"github.com/ddpbatch/ddpbatch/jobs/secrets"
	"github.com/ddpbatch/ddpbatch/jobs/submit"
	"github.com/ddpbatch/ddpbatch/slurm"
)

type submitCmd struct {
	Job          string   `arg:"" name:"job.toml" help:"Job file."`
	RunDir       string   `placeholder:"DIR" help:"Run directory (default: runs/NAME in the current directory). If the run exists, it resumes from its last checkpoint."`
	Set          []string `sep:"none" placeholder:"KEY=VALUE" help:"Override a key of the job file, such as train.batch=64. Repeatable."`
	After        []string `sep:"none" placeholder:"RUN" help:"Start only after this run has succeeded: run name, run directory, or job ID. Repeatable."`
	Nodes        string   `group:"Slurm options" short:"N" placeholder:"N" help:"Override slurm.nodes."`
	Time         string   `group:"Slurm options" short:"t" placeholder:"LIMIT" help:"Override slurm.time."`
	Partition    string   `group:"Slurm options" short:"p" placeholder:"NAME" help:"Override slurm.partition."`
	Account      string   `group:"Slurm options" short:"A" placeholder:"NAME" help:"Override slurm.account."`
	QOS          string   `group:"Slurm options" name:"qos" short:"q" placeholder:"NAME" help:"Override slurm.qos."`
	Reservation  string   `group:"Slurm options" placeholder:"NAME" help:"Override slurm.reservation."`
	Constraint   string   `group:"Slurm options" short:"C" placeholder:"LIST" help:"Override slurm.constraint."`
	Exclude      string   `group:"Slurm options" short:"x" placeholder:"HOSTS" help:"Override slurm.exclude."`
	NodeList     string   `group:"Slurm options" name:"nodelist" short:"w" placeholder:"HOSTS" help:"Override slurm.nodelist."`
	GPUsPerNode  string   `group:"Slurm options" name:"gpus-per-node" placeholder:"N" help:"Override slurm.gpus_per_node."`
	TasksPerNode string   `group:"Slurm options" name:"ntasks-per-node" placeholder:"N" help:"Override slurm.tasks_per_node."`
	CPUsPerTask  string   `group:"Slurm options" name:"cpus-per-task" short:"c" placeholder:"N" help:"Override slurm.cpus_per_task."`
	Mem          string   `group:"Slurm options" placeholder:"SIZE" help:"Override slurm.mem."`
	Comment      string   `group:"Slurm options" placeholder:"TEXT" help:"Override slurm.comment."`
	Begin        string   `group:"Slurm options" short:"b" placeholder:"TIME" help:"Override slurm.begin."`
	Chain        int      `placeholder:"N" help:"Submit N jobs that continue the run one after the other, for training that takes longer than the time limit. Jobs that start after the run has finished end immediately."`
	Failed       bool     `xor:"which" help:"Submit only trials of a sweep that were submitted and did not finish: failed, stopped, or canceled ones."`
	Elements     string   `xor:"which" placeholder:"LIST" help:"Trials of a sweep to submit, such as 0-3,7 (default: all unfinished trials)."`
	DryRun       bool     `xor:"mode" help:"Print the script and the sbatch command. Nothing is written or submitted."`
	TestOnly     bool     `xor:"mode" help:"Let Slurm validate the job and estimate its start time. Nothing is written or submitted."`
	Wait         bool     `xor:"mode" help:"Wait until the job has ended, and exit with its exit code."`
	JSON         bool     `help:"Print the result as JSON."`
}

func (c *submitCmd) Help() string {
	return `A submission creates exactly one job, even if sbatch does not reply or this command is
killed: the next submit first searches for the job of the previous one.`
}

func (c *submitCmd) Run(ctx context.Context, p *program) error {
	c.Set = append(c.Set, c.slurmOverrides()...)
	f, err := p.load(c.Job, c.Set...)
	if err == nil && len(c.After) > 0 {
		f, err = p.loadAfter(c, f.Job.Slurm.Dependency)
	}
	if err != nil {
		return err
	}
	elements, err := c.elements(f.Job)
	if err != nil {
		return err
	}
	if err := c.checkChain(p, f.Job); err != nil {
		return err
	}
	dir, err := p.checkRunDir(c.RunDir, f)
	if err != nil {
		return err
	}
	p.warnDroppedEnv()
	p.printWarnings(f, false)
	if c.DryRun || c.TestOnly {
		text, err := script(f, dir, elements)
		if err != nil {
			return err
		}
		if c.DryRun {
			return p.dryRun(c.JSON, f, dir, text)
		}
		return p.testOnly(ctx, c.JSON, f, text)
	}
	if err := p.checkSecrets(f); err != nil {
		return err
	}
	ctx, stop := interruptible(ctx)
	defer stop()
	if f.Job.Train != nil && f.Job.Sweep == nil {
		state := outcome.Read(dir, "")
		state.Goal = outcome.Goal{Known: true, Trains: true, Epochs: f.Job.Train.Epochs}
		if state.Finished(slurm.JobState{}) {
			p.note("%s has already finished all %d epochs of the job file; this job will do nothing", f.Job.Name, f.Job.Train.Epochs)
		}
	}
	result, err := p.submit(ctx, f, dir.Path, elements, c.Failed, c.Chain)
	if err != nil {
		return err
	}
	if err := p.printSubmitted(c.JSON, f, result); err != nil || result.JobID == "" {
		return err
	}
	if err := p.writeError(); err != nil {
		return hints.Add(fmt.Errorf("job %s is submitted, but its ID could not be printed: %w", result.JobID, err),
			"do not submit it again; run `ddpbatch status "+shellQuote(p.short(result.Dir.Path))+"`")
	}
	if !c.Wait {
		return nil
	}
	run, err := runs.Open(result.Dir.Path)
	if err != nil {
		return err
	}
	done, err := p.wait(ctx, run)
	if err == nil && !c.JSON {
		p.printf("%s completed\n", printable.Line(done))
	}
	return p.explainInterrupt(run, err)
}

// slurmOverrides returns the flags for keys of [slurm] in the form of --set.
func (c *submitCmd) slurmOverrides() (set []string) {
	for _, flag := range []struct{ key, value string }{
		{"nodes", c.Nodes}, {"time", c.Time}, {"partition", c.Partition}, {"account", c.Account}, {"qos", c.QOS},
		{"reservation", c.Reservation}, {"constraint", c.Constraint}, {"exclude", c.Exclude}, {"nodelist", c.NodeList}, {"begin", c.Begin},
		{"gpus_per_node", c.GPUsPerNode}, {"tasks_per_node", c.TasksPerNode}, {"cpus_per_task", c.CPUsPerTask}, {"mem", c.Mem}, {"comment", c.Comment},
	} {
		if flag.value != "" {
			set = append(set, "slurm."+flag.key+"="+flag.value)
		}
	}
	return set
}

// loadAfter loads the job file again. It adds the runs in --after to the dependencies of the
// job file.
func (p *program) loadAfter(c *submitCmd, given []jobs.Dependency) (*jobfile.File, error) {
	words := jobs.Strings(given)
	for _, run := range c.After {
		if run == "" {
			return nil, usage("--after is empty: check the shell variable in it")
		}
		words = append(words, "afterok:"+run)
	}
	return p.load(c.Job, append(c.Set[:len(c.Set):len(c.Set)], "slurm.dependency="+jobs.TOMLList(words))...)
}

// maxChain is the maximum number of jobs of a chain. More are probably a typing error.
const maxChain = 100

// checkChain checks --chain. It warns if the jobs of a chain would lose work at their time limit.
func (c *submitCmd) checkChain(p *program, job *jobs.Job) error {
	switch {
	case c.Chain == 0:
		return nil
	case c.Chain < 1 || c.Chain > maxChain:
		return usage(fmt.Sprintf("--chain must be from 1 to %d", maxChain))
	case job.Slurm.SignalBeforeEnd == 0:
		p.note("warning: the program gets no stop signal before the time limit, so each job of the chain loses what it has not saved: set slurm.signal_before_end, such as \"120s\"")
	}
	return nil
}

// elements parses --elements. The result is nil without the flag.
func (c *submitCmd) elements(job *jobs.Job) ([]int, error) {
	if job.Sweep == nil && (c.Failed || c.Elements != "") {
		return nil, usage("--failed and --elements require a sweep, and the job file has no [sweep]")
	}
	if c.Elements == "" {
		return nil, nil
	}
	trials, err := runs.ParseTrials(c.Elements, len(job.Sweep.Trials))
	if err != nil {
		return nil, usage(err.Error())
	}
	return trials, nil
}

func (p *program) printSubmitted(asJSON bool, f *jobfile.File, r submit.Result) error {
	if asJSON {
		answer := map[string]any{"job_id": r.JobID, "run_dir": r.Dir.Path}
		if len(r.Chain) > 0 {
			answer["chain"] = r.Chain
		}
		if f.Job.Sweep != nil {
			answer["elements"] = append([]int{}, r.Elements...)
		}
		if err := p.printJSON(answer); err != nil && p.writeError() == nil {
			return err
		}
		return nil
	}
	what := string(f.Job.Name)
	switch {
	case r.JobID == "" && f.Job.Sweep != nil:
		p.printf("nothing to submit: all trials of %s are finished, queued, or running\n", what)
		return nil
	case f.Job.Sweep != nil:
		what = fmt.Sprintf("%s of %s", format.Count(len(r.Elements), "trial"), what)
	}
	if r.Found {
		p.printf("%s was already submitted as job %s\n", what, r.JobID)
	} else {
		p.printf("submitted %s as job %s\n", what, r.JobID)
	}
	if len(r.Chain) > 0 {
		p.printf("chain: %s\n", jobList(r.Chain))
	}
	follow := "ddpbatch logs -f "
	if f.Job.Sweep != nil {
		follow = "ddpbatch status "
	}
	p.printf("run directory: %s\nfollow: %s%s\n", r.Dir.Path, follow, shellQuote(p.short(r.Dir.Path)))
	return nil
}

// submit submits the run to Slurm.
func (p *program) submit(ctx context.Context, f *jobfile.File, path string, elements []int, failed bool, chain int) (submit.Result, error) {
	_, digest, err := findProgram()
	if err != nil {
		return submit.Result{}, err
	}
	s := submit.Submitter{Slurm: p.slurm(), Say: func(line string) { p.note("%s", line) }}
	return s.Submit(ctx, submit.Request{Job: f.Job, Site: f.Site, Base: f.Base, Spec: f.Spec, Dir: path, Elements: elements, Failed: failed, Chain: chain,
		Script: func(dir rundir.Dir, elements []int) ([]byte, error) { return script(f, dir, elements) },
		Find:   func(name string) (*rundir.Dir, error) { return p.runStore().FindDependency(f.Base, name) }, Version: version(), Program: digest, Host: hostName(), User: userName(), Environ: p.Env})
}

// warnDroppedEnv warns about environment variables that would change the job. ddpbatch does not
// pass them to Slurm.
func (p *program) warnDroppedEnv() {
	if _, dropped := slurm.Scrub(p.Env); len(dropped) > 0 {
		p.note("environment variables not passed to the job: %s", listed(dropped))
	}
}

func (p *program) dryRun(asJSON bool, f *jobfile.File, dir rundir.Dir, script []byte) error {
	argv := []string{"sbatch", "--parsable", strings.TrimSuffix("--comment=ddpbatch:ID "+string(f.Job.Slurm.Comment), " ")}
	waits, err := p.dependencyOption(f)
	if err != nil {
		return err
	}
	if waits != "" {
		argv = append(argv, waits)
	}
	argv = append(argv, dir.Script())
	if asJSON {
		return p.printJSON(map[string]any{"argv": argv, "dir": f.Base, "run_dir": dir.Path, "script": string(script)})
	}
	line := make([]string, len(argv))
	for i, word := range argv {
		line[i] = shellQuote(word)
	}
	p.note("would run in %s: %s", shellQuote(f.Base), strings.Join(line, " "))
	_, err = p.Stdout.Write(script)
	return err
}

// dependencyOption returns the --dependency option for sbatch, without a query to Slurm. A
// real submission omits dependencies that are already satisfied.
func (p *program) dependencyOption(f *jobfile.File) (string, error) {
	var parts []string
	for _, d := range f.Job.Slurm.Dependency {
		if d == jobs.Singleton {
			parts = append(parts, string(d))
			continue
		}
		kind, name := d.Parts()
		dir, err := p.runStore().FindDependency(f.Base, name)
		if err != nil {
			return "", err
		}
		if dir != nil {
			record, err := dir.ReadRecord()
			if err != nil {
				return "", err
			}
			if name = record.LastJob(); name == "" {
				return "", exitError{exitUsage, fmt.Errorf("%s: run %q was never submitted to Slurm", d, dir.Path)}
			}
		}
		parts = append(parts, kind+":"+name)
	}
	if parts == nil {
		return "", nil
	}
	return "--dependency=" + strings.Join(parts, ","), nil
}

func (p *program) testOnly(ctx context.Context, asJSON bool, f *jobfile.File, script []byte) error {
	forecast, err := p.slurm().TestOnly(ctx, script, f.Base)
	if err != nil {
		return err
	}
	if asJSON {
		answer := map[string]any{"processors": forecast.CPUs, "nodes": forecast.Nodes, "partition": forecast.Partition, "said": forecast.Text}
		if !forecast.Start.IsZero() {
			answer["start"] = forecast.Start
		}
		return p.printJSON(answer)
	}
	text := "Slurm would accept this job"
	if forecast.CPUs > 0 {
		text += " on " + format.Count(forecast.CPUs, "CPU")
	}
	if forecast.Nodes != "" {
		text += " of " + forecast.Nodes
	}
	if forecast.Partition != "" {
		text += ", partition " + forecast.Partition
	}
	if forecast.Start.IsZero() {
		text += "; the start time is unknown"
	} else {
		text += "; expected start " + forecast.Start.Format("2006-01-02 15:04:05") + ", which is often inaccurate"
	}
	p.printf("%s\n", text)
	return nil
}

// checkSecrets checks that every secret has a value. Without this check, the job would fail
// only after its time in the queue.
func (p *program) checkSecrets(f *jobfile.File) error {
	for _, job := range f.All() {
		s := job.Setup.Secrets
		if len(s.Names) == 0 {
			continue
		}
		path := string(s.File)
		if path != "" {
			path = jobs.ResolvePath(f.Base, s.File)
		}
		if _, err := secrets.Resolve(path, jobs.Strings(s.Names), p.lookup); err != nil {
			return exitError{exitUsage, err}
		}
	}
	return nil
}

// hostName returns the name of this host, for messages and for the record.
func hostName() string {
	name, err := os.Hostname()
	if err != nil {
		return "unknown"
	}
	return name
}

func userName() string {
	u, err := user.Current()
	if err != nil {
		return strconv.Itoa(os.Getuid())
	}
	return u.Username
}
