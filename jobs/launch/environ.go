package launch

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/templates/sites"
)

// Variables from the launcher to the ranks that it starts.
const (
	envPrefix = "DDPBATCH_"
	// LauncherVariable is set in ranks that a launcher started.
	LauncherVariable = envAddresses
	// AttentionVariable is the one of this prefix that is the user's, for ranks.
	AttentionVariable = "DDPBATCH_ATTENTION"

	envAddresses = "DDPBATCH_RENDEZVOUS"         // host:port, comma separated
	envSecret    = "DDPBATCH_SECRET"             // on this machine only, without Slurm
	envSecretIn  = "DDPBATCH_SECRET_FILE"        // name of a file in the run directory, with Slurm
	envReportKey = "DDPBATCH_REPORT_KEY"         // for ranks that cannot start
	envAttempt   = "DDPBATCH_ATTEMPT"            // 1, 2, ...
	envPerNode   = "DDPBATCH_PROCESSES_PER_NODE" // ranks that a node is to run
	envWorkdir   = "DDPBATCH_WORKDIR"            // where a user's program starts
	envLocalRank = "DDPBATCH_LOCAL_RANK"         // without Slurm: this rank
	envLocalSize = "DDPBATCH_LOCAL_WORLD_SIZE"   // without Slurm: all of them
)

// rankEnviron is the environment of a rank: that of the launcher, then the
// job's own variables and Python environment. A variable of the site does not
// take the place of one that is set.
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
		// What bin/activate does, but for the prompt.
		out = append(without(out, "PYTHONHOME", "PATH", "VIRTUAL_ENV"),
			"VIRTUAL_ENV="+string(setup.Venv), "PATH="+filepath.Join(string(setup.Venv), "bin")+":"+path)
	}
	for name, value := range site.Env {
		if _, set := lookupIn(out)(string(name)); !set {
			out = append(out, string(name)+"="+string(value))
		}
	}
	for name, value := range setup.Env {
		out = append(without(out, string(name)), string(name)+"="+string(value))
	}
	return out
}

// without returns environ without the named variables.
func without(environ []string, names ...string) []string {
	return slices.DeleteFunc(environ, func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return slices.Contains(names, name)
	})
}

// withoutTorchrun returns environ without what an outer torchrun, or Kubeflow for one,
// has set for its own rendezvous: a program that got them would look for that one's store
// at the address of ours.
func withoutTorchrun(environ []string) []string {
	return slices.DeleteFunc(slices.Clone(environ), func(kv string) bool {
		return strings.HasPrefix(kv, "TORCHELASTIC_") || strings.HasPrefix(kv, "PET_")
	})
}

// lookupIn reads variables from environ; the last of equal names counts, as it
// does for a program that is started.
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

// lookPath finds a program in the PATH of environ, which need not be that of
// this process. A name with a slash is left as it is.
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
	return "", notInPath(name, path)
}

// torchrun is the command that starts PyTorch's launcher: the script where there
// is one, else the module that it is made of.
func torchrun(environ []string) []string {
	if path, err := lookPath(environ, "torchrun"); err == nil {
		return []string{path}
	}
	return []string{"python3", "-m", torchrunModule}
}

// torchrunModule is the module that torchrun is a script for.
const torchrunModule = "torch.distributed.run"
