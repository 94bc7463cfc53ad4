package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"time"

	"github.com/ddpbatch/ddpbatch/internal/format"
	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/internal/printable"
	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/jobs/launch"
	"github.com/ddpbatch/ddpbatch/jobs/launch/output"
	"github.com/ddpbatch/ddpbatch/jobs/rundir"
	"github.com/ddpbatch/ddpbatch/jobs/runs"
	"github.com/ddpbatch/ddpbatch/slurm"
	"github.com/ddpbatch/ddpbatch/templates/sites"
	"github.com/ddpbatch/ddpbatch/trainer"
	"github.com/ddpbatch/ddpbatch/trainer/collective"
	"github.com/ddpbatch/ddpbatch/trainer/cuda"
	"github.com/ddpbatch/ddpbatch/trainer/cuda/engine"
	"github.com/ddpbatch/ddpbatch/trainer/cuda/library"
	"github.com/ddpbatch/ddpbatch/trainer/ddp"
	"github.com/ddpbatch/ddpbatch/trainer/rendezvous"
)

// exitTimeout is how long a rank may take to exit after its attempt has ended. After that, the
// rank exits even if a system call or a user's library blocks it.
const exitTimeout = 3 * time.Second

// closeTimeout is how long a rank that has reported its failure may take to close its communicators
// and its GPU. NCCL may take 10 s.
const closeTimeout = 30 * time.Second

// runCmd runs one rank. The launcher, srun, or another launcher such as torchrun starts it.
type runCmd struct {
	Job    string `arg:"" optional:"" name:"job.toml" help:"Job file, for ranks that srun or another program starts without ddpbatch launch."`
	RunDir string `help:"Run directory (default: runs/NAME in the current directory)." placeholder:"DIR"`

	Launcher string `placeholder:"NAME" default:"" enum:",slurm,torchrun,openmpi,hydra,sagemaker,kubernetes" help:"Program that started this process, if the environment has variables of several: slurm, torchrun, openmpi, hydra (MPICH, Intel MPI), sagemaker, or kubernetes."`
}

func (c *runCmd) Help() string {
	return `The launcher calls this command once per rank. Inside an allocation, srun can also
start the ranks:

    srun --nodes=2 --ntasks-per-node=4 ddpbatch run job.toml

In this case, rank 0 serves the rendezvous. The other ranks find it through a file in
the run directory, which must be on a file system that all hosts share. torchrun,
mpirun (Open MPI, MPICH, Intel MPI), SageMaker, and Kubernetes pods can start ranks in
the same way:

    torchrun --nproc_per_node=4 --no_python ddpbatch run job.toml
    mpirun -n 8 ddpbatch run job.toml

If the program starts one process per host, that process starts the ranks of its host.
docs/launchers.md describes the details.`
}

func (c *runCmd) Run(ctx context.Context, p *program) error {
	info, err := launch.DetectRank(p.lookup, c.Launcher)
	if err != nil {
		return err
	}
	if info.PerHost {
		if started, err := c.runHost(p, info); started || err != nil {
			return err
		}
	}
	r := &rank{program: p, info: info, unlock: func() {}}
	if err := r.open(ctx, c); err != nil {
		if launch.Report(ctx, p.lookup, info, err) == nil {
			return printedError{err} // the launcher prints it
		}
		return err
	}
	defer r.log.close()
	defer r.unlock()
	return r.run(ctx)
}

// A rank is one rank of a run, in its own process. It loads the job, joins the other ranks,
// and trains.
type rank struct {
	*program
	info    launch.RankInfo
	job     *jobs.Job
	site    *sites.Profile
	dir     rundir.Dir
	record  rundir.Record
	digests digests
	log     *rankLog
	unlock  func() // unlocks the run directory, if this rank locked it
	logged  bool   // the log has the failure of this rank
}

// open loads the job, opens the run directory, and opens the rank's log.
func (r *rank) open(ctx context.Context, c *runCmd) (err error) {
	switch {
	case c.Job != "":
		err = r.openFile(ctx, c)
	case c.RunDir != "":
		err = r.openRun(c.RunDir)
	default:
		err = usage("give a job file, or a run directory with --run-dir")
	}
	if err != nil {
		return err
	}
	r.log, err = openRankLog(r.dir, r.info)
	return err
}

// openRun loads the job that the launcher stored in the run directory. The rank holds the
// directory until the process exits.
func (r *rank) openRun(path string) (err error) {
	if r.dir, _, err = rundir.OpenOwn(r.abs(path)); err != nil {
		if _, missing := (rundir.Dir{Path: r.abs(path)}).ReadRecord(); r.info.Nodes > 1 && errors.Is(missing, fs.ErrNotExist) {
			// The launcher has written to the directory on the first node. The file system is
			// not shared.
			return hints.Add(fmt.Errorf("run directory %q does not exist on %s", path, r.info.Host),
				"put it on a file system that all nodes share (--run-dir)")
		}
		return err
	}
	stored, err := runs.LoadJob(r.dir)
	if err != nil {
		return err
	}
	if run, ok := r.lookup(launch.RunVariable); ok && run != stored.Record.Run {
		return fmt.Errorf("run directory %q was replaced by the directory of a different run (%q, not %q)", r.dir.Path, stored.Record.Run, run)
	}
	r.job, r.site, r.record = stored.Job, stored.Site, stored.Record
	r.job.ResolvePaths(r.record.Base)
	r.digests, err = digestsFor(stored.Spec)
	return err
}

// openFile loads a job file. Rank 0 creates the run directory, and the other ranks wait for
// it. The rank holds the directory until the process exits.
func (r *rank) openFile(ctx context.Context, c *runCmd) error {
	f, err := r.load(c.Job)
	if err != nil {
		return err
	}
	if f.Job.Sweep != nil {
		return usage("a sweep cannot run as a single job: submit it, or run one trial with `ddpbatch launch --element N`")
	}
	r.job, r.site, r.dir = f.Job, f.Site, r.runDir(c.RunDir, f.Job, f.Base)
	r.job.ResolvePaths(f.Base)
	if r.info.Rank == 0 {
		r.warnIgnored()
		if r.dir, err = rundir.Create(r.dir.Path); err != nil {
			return err
		}
		if r.dir, _, err = r.dir.Hold(); err != nil {
			return err
		}
		// Two runs in this directory would mix their files.
		if r.unlock, err = r.dir.Lock(r.claim(ctx, r.info.JobID)); err != nil {
			return err
		}
		if r.record, err = r.dir.Prepare(string(f.Job.Name), f.Base, version(), f.Spec); err != nil {
			return err
		}
		if err = r.dir.WriteSite(f.Site.Source()); err != nil {
			return err
		}
	} else if err := r.waitForRunDir(time.Duration(r.job.Network.JoinTimeout)); err != nil {
		return err
	}
	r.digests, err = digestsFor(f.Spec)
	return err
}

// warnIgnored warns about keys that run does not apply.
func (r *rank) warnIgnored() {
	keys := r.ignoredSetupKeys(r.job, r.site)
	if r.job.Setup.Container.Image != "" {
		keys = append(keys, "setup.container")
	}
	if len(keys) > 0 {
		r.note("warning: run does not apply %s, only a submitted job does; set up the shell accordingly before you start run", listed(keys))
	}
	if r.job.Notify != nil {
		r.note("warning: run sends no messages for [notify], only launch and submitted jobs do")
	}
}

// waitForRunDir waits until rank 0 has created the run directory, and opens it.
func (r *rank) waitForRunDir(timeout time.Duration) error {
	for end := time.Now().Add(timeout); ; time.Sleep(100 * time.Millisecond) {
		dir, _, err := rundir.OpenOwn(r.dir.Path)
		if err == nil {
			r.dir = dir
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("rank 0 did not create the run directory within %s: %w", timeout, err)
		}
	}
}

// run joins the other ranks, runs the trainer or the user's program, and leaves.
func (r *rank) run(ctx context.Context) error {
	// Catch signals first, so that a signal at any time only requests a stop.
	signals, quit := notifyStop()
	defer quit()

	r.log.info("starting")
	joining, joinedUp := contextWithSignal(ctx, signals)
	joined, err := launch.Join(joining, launch.JoinOptions{Job: r.job, Site: r.site, Dir: r.dir, Info: r.info,
		Program: r.digests.program, Spec: r.digests.spec, Lookup: r.lookup, Say: r.say})
	joinedUp()
	if err != nil {
		r.log.failed(err)
		if joined != nil {
			joined.Leave(exitFailed, err)
		}
		// If the launcher received the error, it prints the error once for all ranks.
		return r.suppressDuplicate(err)
	}
	r.info = joined.Info // now complete with values from the launcher
	r.log.info("joined", "interface", joined.Choice.Interface, "address", joined.Choice.Addr.String())
	if r.info.Rank == 0 {
		r.printNetwork(joined)
	}
	var exit int
	if r.job.Train != nil {
		exit, err = r.train(ctx, joined, signals)
	} else {
		if _, launched := r.lookup(launch.LauncherVariable); launched && !r.info.InSlurm() {
			defer output.Hold(os.Stdout, os.Stderr)()
		}
		// This process only waits and copies output. With several threads, the Go scheduler costs
		// much of the CPU time of the copy.
		runtime.GOMAXPROCS(1)
		exit, err = joined.Program(ctx, launch.ProgramOptions{Environ: r.Env, Stdout: os.Stdout, Stderr: os.Stderr,
			Signals: signals, Say: r.say})
	}
	if err != nil && !r.logged {
		r.log.failed(err)
	}
	joined.Leave(exit, err)
	if exit == exitDone && err == nil {
		return nil
	}
	return r.suppressDuplicate(exitError{exit, err})
}

// suppressDuplicate marks err as printed if ddpbatch's launcher started this rank, because the launcher
// prints it once for all ranks.
func (r *rank) suppressDuplicate(err error) error {
	if _, launched := r.lookup(launch.LauncherVariable); launched {
		return printedError{err}
	}
	return err
}

func (r *rank) say(line string) {
	r.log.info(line)
	r.note("%s", line)
}

// printNetwork prints the size and the network of the job. The standard output of a user's program may be
// data, so the message is then on standard error.
func (r *rank) printNetwork(j *launch.Rank) {
	out := r.Stdout
	if r.job.Command != nil {
		out = r.Stderr
	}
	printf := func(format string, args ...any) {
		fmt.Fprint(out, printable.Text(fmt.Sprintf(format, args...)))
	}
	if r.job.RunsOnce() {
		tasks := format.Count(r.job.TasksPerNode(), "task")
		if list := r.job.Slurm.RanksPerNode; len(list) > 0 {
			tasks = slurm.FoldTasksPerNode(list) + " tasks"
		}
		printf("1 process on %s, with %s per node\n", r.info.Host, tasks)
		return
	}
	c := j.Choice
	printf("%s on %s; network %s (%s on %s): %s\n", format.Count(r.info.WorldSize, "rank"), format.Count(r.info.Nodes, "node"),
		c.Prefix, c.Interface, r.info.Host, c.Why)
	for _, w := range c.Warnings {
		r.say("warning: " + w)
	}
}

// train runs the built-in trainer and returns the exit code.
func (r *rank) train(ctx context.Context, j *launch.Rank, signals <-chan os.Signal) (int, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stopLink := context.AfterFunc(j.Session.Context(), func() {
		cause := context.Cause(j.Session.Context())
		if j.Session.Stacks() {
			r.log.info("stacks", "stacks", stacks())
		}
		cancel(cause)
		time.AfterFunc(exitTimeout, func() {
			r.log.failed(fmt.Errorf("did not exit within %s: %w", exitTimeout, cause))
			os.Exit(exitLost)
		})
	})
	defer stopLink()

	stop := make(chan struct{})
	go func() {
		select {
		case s := <-signals:
			r.log.info("signal", "signal", s.String())
		case <-j.Session.Stopping():
		case <-ctx.Done():
			return
		}
		close(stop)
	}()

	comm, err := j.Connect(ctx)
	if err != nil {
		err = r.rootCause(j, err)
		return r.exitOf(err), err
	}
	defer func() {
		// Training has ended, and a failed close cannot change its result.
		if err := comm.Close(); err != nil {
			r.log.info("close", "error", err.Error())
		}
	}()
	r.logTransport(comm)
	watch := newObserver(r, j.Session)
	defer watch.close()
	root, closeRoot, err := r.dir.OpenRoot()
	if err != nil {
		return r.exitOf(err), err
	}
	defer closeRoot()
	o := trainer.Options{Job: r.job, Run: r.record.Run, Program: version(), Checkpoints: r.dir.Checkpoints(), RunDir: root, CheckRunDir: r.dir.CheckPlace, Comm: comm,
		Threads: r.threads(), LocalRanks: r.info.LocalWorldSize, Node: r.info.NodeRank, Stop: stop, Progress: &watch.progress, Trace: watch.trace, Observe: watch.event}
	if visible, set := r.lookup("CUDA_VISIBLE_DEVICES"); set {
		o.VisibleDevices = &visible
	}
	blocking, _ := r.lookup("CUDA_LAUNCH_BLOCKING")
	o.LaunchBlocking = blocking == "1"
	if o.Attention, err = r.attention(); err != nil {
		return r.exitOf(err), err
	}
	if o.DisabledFusions, err = r.disabledFusions(); err != nil {
		return r.exitOf(err), err
	}
	o.Libraries = func(names ...string) []string { return library.Find(r.lookup, names...) }
	o.Connect = func(ctx context.Context, gpu *cuda.GPU) (ddp.Communicator, error) {
		return r.connectGPUs(ctx, j, comm, gpu)
	}
	var failure error
	o.Failed = func(err error) {
		failure = r.rootCause(j, err)
		r.log.failed(failure)
		r.logged = true
		stopLink() // the session ends before the process
		_ = j.Session.Leave(r.exitOf(failure), failure)
		time.AfterFunc(closeTimeout, func() { os.Exit(r.exitOf(failure)) })
	}
	result, err := trainer.Run(ctx, o)
	if failure != nil {
		return r.exitOf(failure), failure
	}
	if err == nil {
		err = watch.err
	}
	if err != nil {
		err = r.rootCause(j, err)
		return r.exitOf(err), err
	}
	if result.Stopped {
		return exitStopped, nil
	}
	return exitDone, nil
}

// attention returns the instructions of attention that the environment selects.
func (p *program) attention() (engine.Attention, error) {
	v, _ := p.lookup(launch.AttentionVariable)
	a, err := engine.ParseAttention(v)
	if err != nil {
		return 0, usage(fmt.Sprintf("%s=%v", launch.AttentionVariable, err))
	}
	return a, nil
}

// disabledFusions returns the fusions that the environment disables.
func (p *program) disabledFusions() (engine.Fusion, error) {
	v, _ := p.lookup(launch.FusionVariable)
	f, err := engine.ParseFusion(v)
	if err != nil {
		return 0, usage(fmt.Sprintf("%s=%v", launch.FusionVariable, err))
	}
	return engine.AllFusions &^ f, nil
}

// logTransport logs the transport of gradients between ranks. It warns if the ranks of a node
// cannot use shared memory.
func (r *rank) logTransport(comm collective.Communicator) {
	p := comm.Path(collective.AllReduce(make([]float32, ddp.FirstBucketBytes/4), collective.Sum))
	r.log.info("connected", "transport", p.Transport)
	if p.Why != "" && r.info.LocalRank == 0 {
		r.say("warning: ranks of the same node use TCP for gradients, because they cannot share memory: " + p.Why)
	}
}

// rootCause returns err if this rank's error is the root cause of the failure. If the attempt had
// already failed, it returns the error of the attempt instead. A collective error is usually a
// consequence, unless it names this rank. Therefore, rootCause first gives the launcher time to
// report the root cause.
func (r *rank) rootCause(j *launch.Rank, err error) error {
	var broken *collective.Error
	var other trainer.RemoteError
	if errors.As(err, &broken) && broken.Peer.Rank != r.info.Rank || errors.As(err, &other) {
		wait := exitTimeout
		if broken != nil && broken.IsRemote() {
			wait *= 2 // the rank that detected the failure has more details and reports first
		}
		select {
		case <-j.Session.Context().Done():
		case <-time.After(wait):
		}
	}
	if cause := context.Cause(j.Session.Context()); errors.Is(cause, rendezvous.ErrAborted) {
		return cause
	}
	return err
}

func (r *rank) exitOf(err error) int {
	var coded interface{ ExitCode() int }
	if errors.As(err, &coded) {
		return coded.ExitCode()
	}
	if errors.Is(err, rendezvous.ErrAborted) || errors.Is(err, rendezvous.ErrLauncherLost) {
		return exitLost
	}
	return exitFailed
}

// stacks returns the stack traces of all goroutines.
func stacks() string {
	buffer := make([]byte, 1<<20)
	return string(buffer[:runtime.Stack(buffer, true)])
}
