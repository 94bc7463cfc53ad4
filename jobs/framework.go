package jobs

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/ddpbatch/ddpbatch/internal/lazyregexp"
)

// Launchers of frameworks. ddpbatch starts the program once per rank, with the environment in which
// the framework's own launcher would start it.
const (
	LauncherAccelerate Launcher = "accelerate"
	LauncherDeepSpeed  Launcher = "deepspeed"
	LauncherLightning  Launcher = "lightning"
)

// IsFramework reports whether the launcher stands for the launcher of a framework.
func (l Launcher) IsFramework() bool {
	return l == LauncherAccelerate || l == LauncherDeepSpeed || l == LauncherLightning
}

// noLocalRank is DeepSpeed's option to start the script without --local_rank.
const noLocalRank = "--no_local_rank"

// FrameworkArgv returns the command line of a rank, for the launcher of a framework. A script
// without an interpreter runs in python3 if its name ends with .py. With DeepSpeed, --local_rank
// follows the script, unless argv starts with --no_local_rank.
func (c *Command) FrameworkArgv(localRank int) ([]string, error) {
	argv := Strings(c.Argv)
	if len(argv) == 0 {
		return nil, nil
	}
	at := 0
	passRank := c.Launcher == LauncherDeepSpeed
	if passRank && argv[0] == noLocalRank {
		passRank, at = false, 1
	}
	rest := argv[at:]
	switch {
	case len(rest) == 0:
		return nil, &argvError{0, "no script follows", `for example: argv = ["train.py"]`}
	case slices.Contains(launchers, filepath.Base(rest[0])):
		return nil, &argvError{at, fmt.Sprintf("starts %s, but ddpbatch already starts each rank", filepath.Base(rest[0])),
			"remove the launcher and its options: argv = [\"train.py\", ...]; setup.env holds settings such as ACCELERATE_MIXED_PRECISION"}
	case IsPython(rest[0]) && slices.ContainsFunc(moduleOf(rest), isLauncherModule):
		return nil, &argvError{at, "starts a launcher, but ddpbatch already starts each rank", "remove the launcher and its options: argv = [\"train.py\", ...]"}
	case strings.HasPrefix(rest[0], "-"):
		return nil, &argvError{at, fmt.Sprintf("%q is an option of a launcher", rest[0]),
			"start with the script: ddpbatch passes ranks, nodes, and the address itself; set other options of the launcher in setup.env"}
	}
	if strings.HasSuffix(rest[0], ".py") {
		rest = append([]string{"python3"}, rest...)
	}
	if !passRank {
		return rest, nil
	}
	script := 0
	if IsPython(rest[0]) {
		if script = findScriptAfter(rest, 1, "cm", "WX"); script < 0 {
			if script = slices.Index(rest, "-m") + 1; script == 0 || script >= len(rest) {
				return rest, nil
			}
		}
	}
	return slices.Insert(slices.Clone(rest), script+1, "--local_rank="+strconv.Itoa(localRank)), nil
}

// moduleOf returns the module that a Python command line runs, or nil.
func moduleOf(argv []string) []string {
	if i := slices.Index(argv, "-m"); i > 0 && i+1 < len(argv) && findScriptAfter(argv, 1, "cm", "WX") < 0 {
		return argv[i+1 : i+2]
	}
	return nil
}

func isLauncherModule(module string) bool {
	return strings.HasPrefix(module, "torch.distributed.") || strings.HasPrefix(module, "accelerate.commands") || strings.HasPrefix(module, "deepspeed.launcher")
}

// maxScript is the maximum size in bytes of a script that [Job.CheckProgram] reads.
const maxScript = 1 << 20

var (
	createsSlurm = lazyregexp.New(`(?m)^[^#\n]*\bSLURMEnvironment\s*\(`)
	noRequeue    = lazyregexp.New(`\bauto_requeue\s*=\s*False\b`)
	setsPort     = lazyregexp.New(`(?m)^[^#\n]*(?:os\.environ\[["']MASTER_PORT["']\]\s*=[^=]|os\.environ\.update\(.*MASTER_PORT|putenv\(["']MASTER_PORT["'])`)
)

// checkFramework warns if the program starts ranks itself, or if both the program and ddpbatch
// requeue the job or choose a port.
func (c *programCheck) checkFramework() {
	name := filepath.Base(c.argv[0])
	if slices.Contains(launchers, name) && c.job.Command.Launcher == LauncherRank && c.job.TasksPerNode() > 1 && !c.job.RunsOnce() {
		c.report(false, 0, fmt.Sprintf("set launcher = %q, and start argv with the script", name),
			"ddpbatch starts %q once per rank, %d times on each node", name, c.job.TasksPerNode())
	}
	at, _, _ := c.findScript()
	if at < 0 {
		return
	}
	use := c.job.fileCache().script(c.path(c.argv[at]))
	if use.createsSlurm {
		switch {
		case c.job.Command.Launcher == LauncherLightning:
			c.report(false, at, "remove it: Lightning then uses the ranks that ddpbatch has started",
				"the script creates Lightning's SLURMEnvironment, which needs variables that launcher = %q removes", LauncherLightning)
		case c.job.Restart.Requeue > 0 && !use.noRequeue:
			c.report(false, at, "pass auto_requeue=False, or set launcher = \"lightning\" and remove it",
				"the script creates Lightning's SLURMEnvironment, which requeues the job; restart.requeue requeues it again")
		}
	}
	if use.setsPort {
		c.report(false, at, "remove the line, or set MASTER_PORT only if it is not set",
			"the script sets MASTER_PORT; ddpbatch has already chosen a free port for all ranks")
	}
}
