package slurm

import "strings"

// scrubbedPrefixes are the families of variables that Scrub removes, each with
// what it does when it gets into a job that it was not made for.
var scrubbedPrefixes = []string{
	"SLURM_",  // describes the step around the caller; sbatch carries it into the new job, whatever --export says
	"SLURMD_", // names the node the caller runs on
	"SBATCH_", // overrides the #SBATCH lines of the script without a word
	"SRUN_",   // changes how the job's srun lays out its step (SRUN_CPUS_PER_TASK)
	"PMI_",    // a process manager's rank and sockets: an MPI library would join the caller's step
	"PMI2_",
	"PMIX_",
}

// keptVariables begin like a scrubbed one and are kept.
var keptVariables = map[string]bool{
	"SLURM_CONF": true, // where the cluster's configuration is; without it no client may find the controller
}

// Scrub returns the environment without the variables that would leak from the
// caller's own Slurm step, or shell settings, into a job submitted with it, and
// the names of those it left out, in the order found. Values are never returned
// apart, for they may be secret.
func Scrub(environ []string) (kept, dropped []string) {
	kept = make([]string, 0, len(environ))
	for _, entry := range environ {
		name, _, _ := strings.Cut(entry, "=")
		if hasAnyPrefix(name, scrubbedPrefixes) && !keptVariables[name] {
			dropped = append(dropped, name)
			continue
		}
		kept = append(kept, entry)
	}
	return kept, dropped
}

func hasAnyPrefix(s string, prefixes []string) bool {
	for _, p := range prefixes {
		if strings.HasPrefix(s, p) {
			return true
		}
	}
	return false
}
