package launch

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/templates/sites"
)

// Variables that the launcher passes to the ranks that it starts.
const (
	envPrefix = "DDPBATCH_"
	// LauncherVariable is set in ranks that a launcher started.
	LauncherVariable = envAddresses
	// AttentionVariable is the only variable with this prefix that users set and ranks read.
	AttentionVariable = "DDPBATCH_ATTENTION"

	envAddresses = "DDPBATCH_RENDEZVOUS"         // host:port, comma separated
	envSecret    = "DDPBATCH_SECRET"             // on this machine, without Slurm
	envSecretIn  = "DDPBATCH_SECRET_FILE"        // name of a file in the run directory, with Slurm
	envReportKey = "DDPBATCH_REPORT_KEY"         // for ranks that cannot start
	envAttempt   = "DDPBATCH_ATTEMPT"            // 1, 2, ...
	envPerNode   = "DDPBATCH_PROCESSES_PER_NODE" // number of ranks per node
	envWorkdir   = "DDPBATCH_WORKDIR"            // working directory of the user's program
	envLocalRank = "DDPBATCH_LOCAL_RANK"         // local rank, without Slurm
	envLocalSize = "DDPBATCH_LOCAL_WORLD_SIZE"   // number of ranks, without Slurm
)

// rankEnviron returns the environment of a rank: the launcher's environment, the job's
// variables, and the job's Python environment. A variable of the site does not override a
// variable that is already set.
func rankEnviron(environ []string, job *jobs.Job, site *sites.Profile) []string {
	setup := &job.Setup
	out := slices.DeleteFunc(slices.Clone(environ), func(kv string) bool {
		return strings.HasPrefix(kv, envPrefix) && !strings.HasPrefix(kv, AttentionVariable+"=")
	})
	if setup.Venv != "" {
		path := ""
		for _, kv := range out {
			if v, ok := strings.CutPrefix(kv, "PATH="); ok {
				path = v
			}
		}
		// This does the same as bin/activate, except for the prompt.
		out = append(removeVars(out, "PYTHONHOME", "PATH", "VIRTUAL_ENV"),
			"VIRTUAL_ENV="+string(setup.Venv), "PATH="+filepath.Join(string(setup.Venv), "bin")+":"+path)
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

// removeVars returns environ without the named variables.
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

// lookupIn returns a function that reads variables from environ. If a name occurs several
// times, the last value counts, as for a program that starts with environ.
func lookupIn(environ []string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		for i := len(environ) - 1; i >= 0; i-- {
			if v, ok := strings.CutPrefix(environ[i], name+"="); ok {
				return v, true
			}
		}
		return "", false
	}
}

// lookPath finds a program in the PATH of environ, which may differ from the PATH of this
// process. It returns a name with a slash unchanged.
func lookPath(environ []string, name string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	path, _ := lookupIn(environ)("PATH")
	for _, dir := range filepath.SplitList(path) {
		candidate := filepath.Join(dir, name)
		info, err := os.Stat(candidate)
		if err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0 {
			return candidate, nil
		}
	}
	return "", pathLookupError(name, path)
}

// torchrunArgv returns the command that starts PyTorch's launcher: the script if it is in PATH, or
// else its Python module.
func torchrunArgv(environ []string) []string {
	if path, err := lookPath(environ, "torchrun"); err == nil {
		return []string{path}
	}
	return []string{"python3", "-m", torchrunModule}
}

// torchrunModule is the Python module behind the torchrun script.
const torchrunModule = "torch.distributed.run"
