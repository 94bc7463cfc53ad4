package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/user"
	"strconv"
	"time"

	"github.com/ddpbatch/ddpbatch/jobs/rundir"
	"github.com/ddpbatch/ddpbatch/slurm"
)

type submitCmd struct {
	Job      string `arg:"" name:"job.toml" help:"Job file."`
	RunDir   string `placeholder:"DIR" help:"Run directory; default runs/NAME. Submitted again, a run goes on from its last checkpoint."`
	DryRun   bool   `xor:"mode" help:"Print the script and how it would be sent. Nothing is written or sent."`
	TestOnly bool   `xor:"mode" help:"Have Slurm check the job, and say when it would start. Nothing is written or queued."`
	Wait     bool   `xor:"mode" help:"Wait until the job is done; the exit code is the job's."`
	JSON     bool   `help:"Print the answer as JSON."`
}

func (c *submitCmd) Run(ctx context.Context, p *program) error {
	f, err := p.load(c.Job)
	if err != nil {
		return err
	}
	dir := p.runDir(c.RunDir, f.job)
	script, err := f.script(dir)
	if err != nil {
		return err
	}
	switch {
	case c.DryRun:
		p.note("would run in %s: sbatch --parsable %s", shellQuote(f.base), shellQuote(dir.Script()))
		_, err := p.Stdout.Write(script)
		return err
	case c.TestOnly:
		answer, err := p.slurm().TestOnly(ctx, script, f.base)
		if err != nil {
			return err
		}
		p.printf("%s\n", answer)
		return nil
	}
	ctx, stop := interruptible(ctx)
	defer stop()
	id, err := p.submit(ctx, f, dir.Path, script)
	if err != nil {
		return err
	}
	if c.JSON {
		err = p.printJSON(map[string]string{"job_id": id, "run_dir": dir.Path})
	} else {
		p.printf("submitted %s as job %s\nrun directory: %s\nfollow: ddpbatch logs -f %s\n",
			f.job.Name, id, dir.Path, shellQuote(p.short(dir.Path)))
	}
	if err != nil || !c.Wait {
		return err
	}
	return p.wait(ctx, dir, id)
}

// submit prepares the run directory and hands the script to Slurm. Until a job
// has its id, the record names none.
func (p *program) submit(ctx context.Context, f *jobFile, path string, script []byte) (id string, err error) {
	dir, err := rundir.Create(path)
	if err != nil {
		return "", err
	}
	unlock, err := dir.LockSubmission()
	if err != nil {
		return "", err
	}
	defer unlock()
	if err := p.refuseSecond(ctx, dir); err != nil {
		return "", err
	}
	// A launcher may be at work there without Slurm. The lock is not kept: the
	// job's own launcher needs it, maybe at once.
	idle, err := dir.Lock()
	if err != nil {
		return "", err
	}
	idle()
	record, err := dir.Prepare(string(f.job.Name), f.base, version(), f.spec)
	if err != nil {
		return "", err
	}
	if err := dir.WriteScript(script); err != nil {
		return "", err
	}
	environ, dropped := slurm.Scrub(p.Env)
	if len(dropped) > 0 {
		p.note("not passed on to the job: %s", listed(dropped))
	}
	if err := ctx.Err(); err != nil {
		return "", context.Cause(ctx)
	}
	// From here to the record an interrupt has to wait: the job would be lost.
	id, err = slurm.Client{Environ: environ}.Submit(context.WithoutCancel(ctx), slurm.SubmitRequest{Script: dir.Script(), Dir: f.base})
	if err != nil {
		return "", err
	}
	record.Submissions = append(record.Submissions, rundir.Submission{
		JobID: id, Time: time.Now().UTC().Truncate(time.Second), Host: hostName(), User: userName(),
		SpecSHA256: digest(f.spec), ScriptSHA256: digest(script), Version: version(),
	})
	if err := dir.WriteRecord(record); err != nil {
		return "", hinted{fmt.Errorf("job %s is submitted, but the record of its run could not be written: %w", id, err),
			"end it with `scancel " + id + "`, or note its id"}
	}
	return id, nil
}

// refuseSecond refuses a run whose last job Slurm still has: two jobs would
// write into one directory.
func (p *program) refuseSecond(ctx context.Context, dir rundir.Dir) error {
	record, err := dir.ReadRecord()
	if err != nil || record.LastJob() == "" {
		// Without a record this is the first submission. One that is damaged is
		// told by what comes next.
		return nil
	}
	id := record.LastJob()
	states, err := p.slurm().State(ctx, id)
	if err != nil {
		return fmt.Errorf("ask whether job %s, which was submitted from here before, is done: %w", id, err)
	}
	if s := states[0]; s.State != slurm.StateUnknown && !s.Done() {
		return hinted{fmt.Errorf("run directory %q is in use by job %s, which is %s", dir.Path, id, stateText(s)),
			fmt.Sprintf("wait for it, end it with `ddpbatch cancel %s`, or give this run its own --run-dir", shellQuote(p.short(dir.Path)))}
	}
	return nil
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// hostName and userName are for people who read the record.
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
