package launch

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/ddpbatch/ddpbatch/internal/environ"
	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/internal/safefile"
	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/jobs/secrets"
	"github.com/ddpbatch/ddpbatch/nccl"
	"github.com/ddpbatch/ddpbatch/netif"
	"github.com/ddpbatch/ddpbatch/templates/sites"
)

// Variables that the launcher passes to the ranks that it starts.
const (
	envPrefix = "DDPBATCH_"
	// LauncherVariable is set in ranks that a launcher started.
	LauncherVariable = envAddresses
	// AttentionVariable and FusionVariable are the only variables with this prefix that users set
	// and ranks read.
	AttentionVariable = "DDPBATCH_ATTENTION"
	FusionVariable    = "DDPBATCH_FUSION"
	// RunVariable holds the ID of the run. It keeps a rank from working in the directory of a
	// different run that another process has put at the path of the run directory.
	RunVariable = "DDPBATCH_RUN_ID"

	envAddresses = "DDPBATCH_RENDEZVOUS"         // host:port, comma separated
	envSecret    = "DDPBATCH_SECRET"             // on this machine, without Slurm
	envSecretIn  = "DDPBATCH_SECRET_FILE"        // name of a file in the run directory, with Slurm
	envReportKey = "DDPBATCH_REPORT_KEY"         // for ranks that cannot start
	envAttempt   = "DDPBATCH_ATTEMPT"            // 1, 2, ... of this launcher
	envPerNode   = "DDPBATCH_PROCESSES_PER_NODE" // number of ranks per node
	envWorkdir   = "DDPBATCH_WORKDIR"            // working directory of the user's program
	envLocalRank = "DDPBATCH_LOCAL_RANK"         // local rank, without Slurm
	envLocalSize = "DDPBATCH_LOCAL_WORLD_SIZE"   // number of ranks, without Slurm
)

// rankEnviron returns the environment of a rank: the launcher's environment, the job's
// variables, and the job's Python environment. A variable of the site does not override a
// variable that is already set.
func rankEnviron(env []string, job *jobs.Job, site *sites.Profile) []string {
	setup := &job.Setup
	out := slices.DeleteFunc(slices.Clone(env), func(kv string) bool {
		return strings.HasPrefix(kv, envPrefix) && !strings.HasPrefix(kv, AttentionVariable+"=") && !strings.HasPrefix(kv, FusionVariable+"=")
	})
	if setup.Venv != "" {
		path, _ := lookupIn(out)("PATH")
		// This does the same as bin/activate, except for the prompt.
		out = append(removeVars(out, "PYTHONHOME", "PATH", "VIRTUAL_ENV"),
			"VIRTUAL_ENV="+string(setup.Venv), "PATH="+environ.PrependPath(filepath.Join(string(setup.Venv), "bin"), path))
	}
	for name, value := range site.Env {
		if _, set := lookupIn(out)(string(name)); !set {
			out = append(out, string(name)+"="+string(value))
		}
	}
	for name, value := range setup.Env {
		out = append(removeVars(out, string(name)), string(name)+"="+string(value))
	}
	return out
}

// arrayTaskVariable is Slurm's index of a task in a job array.
const arrayTaskVariable = "SLURM_ARRAY_TASK_ID"

// setArrayTask sets Slurm's variable to setup.array_task. The variables for the first and the
// last index of the job array describe ddpbatch's own numbering of trials, so it removes them.
func setArrayTask(environ []string, job *jobs.Job) []string {
	if job.Setup.ArrayTask == nil {
		return environ
	}
	environ = removeVars(environ, arrayTaskVariable, "SLURM_ARRAY_TASK_MIN", "SLURM_ARRAY_TASK_MAX", "SLURM_ARRAY_TASK_STEP")
	return append(environ, arrayTaskVariable+"="+strconv.Itoa(*job.Setup.ArrayTask))
}

// removeVars returns environ without the named variables. Like slices.DeleteFunc, it changes the
// elements of environ, so the caller must not use environ afterward.
func removeVars(environ []string, names ...string) []string {
	return slices.DeleteFunc(environ, func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return slices.Contains(names, name)
	})
}

// removeTorchrunVars returns environ without the variables that an outer torchrun, or a launcher
// such as Kubeflow, has set for its own rendezvous. With these variables, a program would look
// for that launcher's store at the address that ddpbatch passes.
func removeTorchrunVars(environ []string) []string {
	return slices.DeleteFunc(slices.Clone(environ), func(kv string) bool {
		return strings.HasPrefix(kv, "TORCHELASTIC_") || strings.HasPrefix(kv, "PET_")
	})
}

// lookupIn returns a function that reads variables from env, see [environ.Lookup].
func lookupIn(env []string) func(string) (string, bool) {
	return func(name string) (string, bool) { return environ.Lookup(env, name) }
}

// lookPath finds a program in the PATH of env, which may differ from the PATH of this process,
// see [environ.LookPath].
func lookPath(env []string, name string) (string, error) {
	found, err := environ.LookPath(env, name)
	if err != nil {
		path, _ := environ.Lookup(env, "PATH")
		return "", pathLookupError(name, path)
	}
	return found, nil
}

// torchrunArgv returns the command that starts PyTorch's launcher: the script if it is in PATH and the
// job names no interpreter, or else its Python module. Python searches the working directory for
// modules before its own directories, so it is an error if every user can create files in workdir.
func torchrunArgv(environ []string, interpreter, workdir string) ([]string, error) {
	path, missing := lookPath(environ, "torchrun")
	if interpreter == "" && missing == nil {
		return []string{path}, nil
	}
	interpreter = cmp.Or(interpreter, "python3")
	info, err := os.Stat(workdir)
	if err != nil {
		return nil, hints.Errorf("create command.workdir on every node", "check the working directory: %w", err)
	}
	if info.Mode().Perm()&0o002 != 0 {
		hint := "set command.workdir to a directory of your own"
		if missing != nil {
			hint = "add the directory of torchrun to PATH, for example with setup.venv, or " + hint
		}
		return nil, hints.Errorf(hint, "`%s -m %s` would import modules from %q, in which every user can create files (mode %s)",
			interpreter, torchrunModule, workdir, safefile.Octal(info.Mode()))
	}
	return []string{interpreter, "-m", torchrunModule}, nil
}

// torchrunModule is the Python module behind the torchrun script.
const torchrunModule = "torch.distributed.run"

// programEnviron returns the environment of the user's program: the rank's environment without
// the variables of the launcher, plus the variables of torchrun, the job's secrets, and the
// variables of the agreed network.
func (r *Rank) programEnviron(ctx context.Context, o ProgramOptions, host string, port int) ([]string, error) {
	environ := setArrayTask(rankEnviron(removeTorchrunVars(o.Environ), r.job, r.site), r.job)
	set := func(name, value string) { environ = append(removeVars(environ, name), name+"="+value) }
	p := r.Info
	for name, n := range map[string]int{
		"RANK": p.Rank, "WORLD_SIZE": p.WorldSize, "LOCAL_RANK": p.LocalRank, "LOCAL_WORLD_SIZE": p.LocalWorldSize,
		"GROUP_RANK": p.NodeRank,
	} {
		if c := r.job.Command; c != nil && (c.Launcher == jobs.LauncherTorchrun || c.Run == jobs.RunOnce) {
			// torchrun, or the program, sets these variables for the processes that it starts.
			environ = removeVars(environ, name)
			continue
		}
		set(name, strconv.Itoa(n))
	}
	if len(r.job.Slurm.RanksPerNode) > 0 {
		environ = removeVars(environ, "SLURM_DISTRIBUTION") // with it, srun in the program rejects --nodes
	}
	if r.job.Command.Launcher != jobs.LauncherTorchrun {
		set("MASTER_ADDR", host)
	}
	environ = append(removeVars(environ, "MASTER_PORT", torchrunPortVariable), masterPortVariables(r.job.Command.Launcher, port)...)
	lookup := lookupIn(o.Environ)
	if err := r.setContext(set, lookup, lookupIn(environ)); err != nil {
		return nil, err
	}
	environ = r.setFramework(environ)
	lookup = lookupIn(environ)
	devices, warning, err := r.visibleDevices(ctx, lookup)
	if err != nil {
		return nil, err
	}
	if warning != "" {
		o.Say("warning: " + warning)
	}
	for name, value := range devices {
		set(name, value)
	}
	secretValues, err := secrets.Resolve(string(r.job.Setup.Secrets.File), jobs.Strings(r.job.Setup.Secrets.Names), lookup)
	if err != nil {
		return nil, err
	}
	for name, value := range secretValues {
		set(name, value)
	}
	lookup = lookupIn(environ)
	if _, given := lookup("PYTHONUNBUFFERED"); !given {
		// Python buffers output to a file, so lines would appear late.
		set("PYTHONUNBUFFERED", "1")
	}
	if r.job.RunsOnce() {
		return environ, nil
	}
	plan, err := r.networkPlan(ctx, o.Say, lookup)
	if err != nil {
		return nil, err
	}
	for _, v := range plan.ToSet() {
		set(v.Name, v.Value)
	}
	if r.Info.Rank == 0 {
		// A problem with a variable is the same on all nodes. Report it only once.
		for _, w := range plan.Warnings {
			o.Say(fmt.Sprintf("warning: %s: %s", r.Info.Host, w))
		}
	}
	return environ, nil
}

// networkPlan returns the variables that make NCCL and related libraries use the agreed
// network.
func (r *Rank) networkPlan(ctx context.Context, say func(string), lookup func(string) (string, bool)) (nccl.Env, error) {
	inventory, err := netif.Collect(ctx)
	if err != nil {
		return nccl.Env{}, fmt.Errorf("collect network interfaces: %w", err)
	}
	f := nccl.Facts{Choice: r.Choice, Inventory: inventory, Job: r.network, LocalRank: r.Info.LocalRank,
		Site: nccl.Profile{Name: r.site.Name(), Vars: map[string]string{}}}
	if _, given := lookup("NCCL_DEBUG"); !given {
		// Without NCCL_DEBUG, NCCL logs nothing. Users who set it expect its output in the
		// log, and not in this file.
		f.DebugFile = ncclLogs(filepath.Dir(r.dir.RankLog(0)))
	}
	if c := r.job.Command; c != nil && c.Launcher == jobs.LauncherTorchrun {
		f.LocalRank = -1
	}
	f.Exclude = jobs.Strings(slices.Concat(r.job.Network.Exclude, r.site.Network.Exclude))
	for name, value := range r.site.Env {
		f.Site.Vars[string(name)] = string(value)
	}
	// A variable with the site's value belongs to the site, not to the user.
	f.Lookup = func(name string) (string, bool) {
		value, ok := lookup(name)
		if site, also := r.site.Env[jobs.EnvName(name)]; ok && also && string(site) == value {
			return "", false
		}
		return value, ok
	}
	f.FileExists = nccl.FileExists
	conf, err := nccl.ReadConf("", lookup)
	if err != nil {
		// NCCL also ignores the file.
		say(fmt.Sprintf("warning: %s: %v", r.Info.Host, err))
	}
	f.Conf = conf
	return nccl.Plan(f), nil
}

// ncclLogs returns the value of NCCL_DEBUG_FILE for one file per process in dir. NCCL replaces %h and %p
// also in the path of the directory, and %% by a percent sign.
func ncclLogs(dir string) string {
	return filepath.Join(strings.ReplaceAll(dir, "%", "%%"), "nccl-%h-%p.log")
}

// NetworkVariables returns the variables with the given prefixes that make a library in this
// process use the agreed network, and warnings about variables that are already set.
func (r *Rank) NetworkVariables(ctx context.Context, prefixes ...string) (set map[string]string, warnings []string, err error) {
	plan, err := r.networkPlan(ctx, r.say, r.lookup)
	set = map[string]string{}
	for _, v := range plan.ToSet() {
		if slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(v.Name, p) }) {
			set[v.Name] = v.Value
		}
	}
	return set, plan.Warnings, err
}

// insideSetup returns the bash code of the steps of [setup] that run in every rank, or an empty
// string. It skips them if the rank runs outside of its container.
func (r *Rank) insideSetup() string {
	_, once := r.lookup(programNodes)
	if r.job.Setup.Container.Image != "" && !r.Info.InSlurm() && !(once && r.job.RunsOnce()) {
		return ""
	}
	return r.job.Setup.SetupScript(jobs.WhereInside)
}

// programArgv returns the command line. It looks up the program in the rank's PATH. The port of
// rank 0 is not in it, see masterPortVariables. The program starts in workdir.
func (r *Rank) programArgv(environ []string, host, workdir string) ([]string, error) {
	argv := jobs.Strings(r.job.Command.Argv)
	if r.job.Command.Launcher.IsFramework() {
		var err error
		if argv, err = r.job.Command.FrameworkArgv(r.Info.LocalRank); err != nil {
			return nil, err
		}
	}
	argv, err := r.expandPlaceholders(argv, environ)
	if err != nil {
		return nil, err
	}
	if c := r.job.Command; c.Launcher == jobs.LauncherTorchrun {
		interpreter, script, err := c.TorchrunArgv()
		if err != nil {
			return nil, err
		}
		if script, err = r.expandPlaceholders(script, environ); err != nil {
			return nil, err
		}
		if argv, err = torchrunArgv(environ, interpreter, workdir); err != nil {
			return nil, err
		}
		argv = slices.Concat(argv, []string{
			"--nnodes", strconv.Itoa(r.Info.WorldSize), "--node_rank", strconv.Itoa(r.Info.Rank),
			"--nproc_per_node", strconv.Itoa(r.perNode), "--master_addr", host,
		}, script)
	}
	if r.insideSetup() != "" {
		return argv, nil // the setup may change PATH
	}
	path, err := lookPath(environ, argv[0])
	if err != nil {
		return nil, err
	}
	argv[0] = path
	return argv, nil
}
