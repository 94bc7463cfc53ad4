// Package launchers reads the rank of a process, and related values, from the variables of
// launchers other than Slurm: torchrun, Open MPI's mpirun, Hydra (MPICH, Intel MPI),
// SageMaker, and Kubernetes pods. A job that was written for srun therefore runs under each of
// them.
//
// Variables leak from one launcher into processes that another one starts, so several launchers
// must agree on the rank and the world size. If they differ, [Find] returns an error that lists
// the values of each launcher, and the user can select one. The package does not guess. Values that a
// launcher does not pass are [Unknown], and the ranks determine them after the rendezvous.
//
// The package does not read the environment itself, starts no processes, and opens no
// connections. docs/launchers.md describes the rendezvous.
package launchers

import (
	"fmt"
	"strings"

	"github.com/ddpbatch/ddpbatch/internal/hints"
)

// A Lookup returns the value of an environment variable, and reports whether it is set.
type Lookup func(name string) (string, bool)

// Unknown marks a value that the launcher does not pass.
const Unknown = -1

// RankInfo holds the rank of a process, the world size, and related values, as a launcher passes
// them.
type RankInfo struct {
	Launcher string // name of a supported launcher, such as [Torchrun]
	// Start is the launcher's ID for this start of the ranks, equal on all of them. It is
	// empty if the launcher has no such ID. Restart counts the restarts with that ID.
	Start   string
	Restart int

	// PerHost reports that the launcher started one process on each host or pod, and that this
	// process must start the ranks. Rank and WorldSize then count hosts.
	PerHost bool

	Rank, WorldSize           int
	LocalRank, LocalWorldSize int // both Unknown or both known
	NodeRank, Nodes           int // both Unknown or both known
	GPUs                      int // GPUs of this host according to the launcher, or Unknown
}

// Names of the supported launchers.
const (
	Torchrun   = "torchrun"
	OpenMPI    = "openmpi"
	Hydra      = "hydra" // MPICH's mpiexec, Intel MPI's mpirun
	SageMaker  = "sagemaker"
	Kubernetes = "kubernetes"
)

// readers lists the supported launchers by priority. Find returns the rank information of the
// first one that has set its variables.
var readers = []struct {
	name string
	read func(v *variables) (RankInfo, bool)
}{
	{Torchrun, torchrun}, {OpenMPI, openMPI}, {Hydra, hydra}, {SageMaker, sageMaker}, {Kubernetes, kubernetes},
}

// Find reads the rank of this process from the environment. It returns false if no supported
// launcher has set its variables. With a name, Find reads only the variables of that launcher,
// and returns an error if they are not set. If several launchers disagree, the error is an
// [*AmbiguousError]. If only incomplete variables are set, Find returns an error that names a
// missing one.
func Find(lookup Lookup, name string) (RankInfo, bool, error) {
	var found []RankInfo
	for _, r := range readers {
		if name != "" && r.name != name {
			continue
		}
		v := &variables{lookup: lookup, launcher: r.name}
		p, ok := r.read(v)
		if v.err != nil {
			return RankInfo{}, false, v.err
		}
		if ok {
			p.Launcher = r.name
			found = append(found, p)
		}
	}
	if name != "" && len(found) == 0 {
		return RankInfo{}, false, fmt.Errorf("the variables of launcher %s are not set (%s)", name, strings.Join(markerVariables[name], ", "))
	}
	if len(found) == 0 {
		return RankInfo{}, false, checkIncompleteEnv(lookup)
	}
	for _, other := range found[1:] {
		if !found[0].isConsistent(other) {
			return RankInfo{}, false, &AmbiguousError{found}
		}
	}
	return found[0], true, nil
}

// isConsistent reports whether two launchers agree on the rank and the world size, and on whether
// these count hosts.
func (p RankInfo) isConsistent(o RankInfo) bool {
	return p.PerHost == o.PerHost && p.Rank == o.Rank && p.WorldSize == o.WorldSize
}

// String formats the launcher, the rank, and the world size for messages.
func (p RankInfo) String() string {
	singular, plural := "rank", "ranks"
	if p.PerHost {
		singular, plural = "host", "hosts"
	}
	return fmt.Sprintf("%s: %s %d of %d %s", p.Launcher, singular, p.Rank, p.WorldSize, plural)
}

// An AmbiguousError reports that several launchers disagree about the rank or the world size.
type AmbiguousError struct{ Found []RankInfo }

func (e *AmbiguousError) Error() string {
	var values []string
	for _, p := range e.Found {
		values = append(values, p.String())
	}
	return "the variables of several launchers contradict each other: " + strings.Join(values, "; ")
}

// Hint returns the fixes.
func (e *AmbiguousError) Hint() string {
	return fmt.Sprintf("select a launcher, such as `ddpbatch run --launcher %s`, or unset the variables of the others", e.Found[0].Launcher)
}

// markerVariables lists the variables that identify each launcher.
var markerVariables = map[string][]string{
	Torchrun:   {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"},
	OpenMPI:    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
	Hydra:      {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"},
	SageMaker:  {"SM_HOSTS", "SM_CURRENT_HOST"},
	Kubernetes: {"KUBERNETES_SERVICE_HOST", "RANK, PET_NODE_RANK or JOB_COMPLETION_INDEX", "WORLD_SIZE or PET_NNODES"},
}

// checkIncompleteEnv returns an error if the variables of a launcher are incomplete.
func checkIncompleteEnv(lookup Lookup) error {
	for _, c := range []struct{ has, lacks, why string }{
		{"RANK", "LOCAL_RANK", "torchrun sets both; LOCAL_RANK shows which ranks share a host"},
		{"PMIX_RANK", "OMPI_COMM_WORLD_SIZE", "Open MPI's mpirun sets both"},
		{"PMI_RANK", "MPI_LOCALRANKID", "the mpirun of MPICH and Intel MPI sets both; MPI_LOCALRANKID shows which ranks share a host"},
		{"PET_RDZV_ENDPOINT", "RANK", "the pods of an elastic PyTorchJob have no fixed ranks; start them with `torchrun --no_python ddpbatch run job.toml`"},
		{"JOB_COMPLETION_INDEX", "WORLD_SIZE", "set WORLD_SIZE to the Job's completions"},
		{"SM_HOSTS", "SM_CURRENT_HOST", "SageMaker sets both"},
	} {
		value, has := lookup(c.has)
		if _, also := lookup(c.lacks); has && !also {
			return incompleteError("%s is %q, but %s is not set: %s", c.has, value, c.lacks, c.why)
		}
	}
	return nil
}

// incompleteError returns the error for an environment that does not determine the rank of this
// process.
func incompleteError(format string, args ...any) error {
	return hints.Errorf("run `ddpbatch launch job.toml` to start ranks on this machine without another launcher",
		"cannot determine the rank of this process: "+format, args...)
}
