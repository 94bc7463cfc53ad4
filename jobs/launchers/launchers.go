// Package launchers reads a rank's place from the variables of launchers other than
// Slurm's: torchrun, Open MPI's mpirun, Hydra (MPICH, Intel MPI), SageMaker, and pods of
// Kubernetes. A job that was written for srun thus runs under each of them.
//
// What several launchers say must agree, for variables leak from one into what another
// starts; where they do not, [Find] refuses and says what each has said, and a person can
// choose. Nothing is guessed: a place is complete, or says what it leaves open, which the
// ranks find out when they meet.
//
// The package does not read the environment by itself, starts nothing, and does not
// connect to anybody. docs/launchers.md says how ranks meet.
package launchers

import (
	"fmt"
	"strings"
)

// Lookup returns a variable of the environment.
type Lookup func(name string) (string, bool)

// Unknown stands for what a launcher does not tell.
const Unknown = -1

// Place is where a process stands in the job that a launcher has started.
type Place struct {
	Launcher string // one of [Names]
	// Start names this start of the ranks, for all of them the same; empty where the
	// launcher gives it no name. Restart counts within it.
	Start   string
	Restart int

	// PerHost says that one process was started on each host or pod, which is to start
	// the ranks: then Rank and WorldSize count hosts.
	PerHost bool

	Rank, WorldSize           int
	LocalRank, LocalWorldSize int // Unknown, or both known
	NodeRank, Nodes           int // Unknown, or both known
	GPUs                      int // of this host, as the launcher says; Unknown if it does not
}

// The launchers.
const (
	Torchrun   = "torchrun"
	OpenMPI    = "openmpi"
	Hydra      = "hydra" // MPICH's mpiexec, Intel MPI's mpirun
	SageMaker  = "sagemaker"
	Kubernetes = "kubernetes"
)

// readers are the launchers, in the order in which the first that speaks counts.
var readers = []struct {
	name string
	read func(v *variables) (Place, bool)
}{
	{Torchrun, torchrun}, {OpenMPI, openMPI}, {Hydra, hydra}, {SageMaker, sageMaker}, {Kubernetes, kubernetes},
}

// Names are the launchers that Find knows.
func Names() []string {
	var names []string
	for _, r := range readers {
		names = append(names, r.name)
	}
	return names
}

// Find returns the place that the environment tells of; false where no launcher that is
// known has left anything. With a name, only that launcher is asked, and must have
// spoken. Variables that contradict each other are an [*Ambiguous].
func Find(lookup Lookup, name string) (Place, bool, error) {
	var found []Place
	for _, r := range readers {
		if name != "" && r.name != name {
			continue
		}
		v := &variables{lookup: lookup, launcher: r.name}
		p, ok := r.read(v)
		if v.err != nil {
			return Place{}, false, v.err
		}
		if ok {
			p.Launcher = r.name
			found = append(found, p)
		}
	}
	if name != "" && len(found) == 0 {
		return Place{}, false, &notFound{name, lookup}
	}
	if len(found) == 0 {
		return Place{}, false, halfSaid(lookup)
	}
	for _, other := range found[1:] {
		if !found[0].agrees(other) {
			return Place{}, false, &Ambiguous{found}
		}
	}
	return found[0], true, nil
}

// agrees says whether two launchers can both be right.
func (p Place) agrees(o Place) bool {
	return p.PerHost == o.PerHost && p.Rank == o.Rank && p.WorldSize == o.WorldSize
}

// String tells a place as messages have it.
func (p Place) String() string {
	of, what := "rank", "ranks"
	if p.PerHost {
		of, what = "host", "hosts"
	}
	return fmt.Sprintf("%s: %s %d of %d %s", p.Launcher, of, p.Rank, p.WorldSize, what)
}

// Ambiguous is an environment in which several launchers tell different places.
type Ambiguous struct{ Found []Place }

func (e *Ambiguous) Error() string {
	var said []string
	for _, p := range e.Found {
		said = append(said, p.String())
	}
	return "several launchers have left variables, which contradict each other: " + strings.Join(said, "; ")
}

// Hint says how to choose.
func (e *Ambiguous) Hint() string {
	return fmt.Sprintf("name the one that started this process, such as `ddpbatch run --launcher %s`, or unset the variables of the others", e.Found[0].Launcher)
}

// notFound is a launcher that was named and has said nothing.
type notFound struct {
	name   string
	lookup Lookup
}

func (e *notFound) Error() string {
	return fmt.Sprintf("%s was named as the launcher, and has left none of its variables (%s)", e.name, strings.Join(marks[e.name], ", "))
}

// marks are the variables by which each launcher is known.
var marks = map[string][]string{
	Torchrun:   {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"},
	OpenMPI:    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
	Hydra:      {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"},
	SageMaker:  {"SM_HOSTS", "SM_CURRENT_HOST"},
	Kubernetes: {"KUBERNETES_SERVICE_HOST", "RANK, PET_NODE_RANK or JOB_COMPLETION_INDEX", "WORLD_SIZE or PET_NNODES"},
}

// halfSaid is an error where variables of a launcher are there, but not enough to find a
// place.
func halfSaid(lookup Lookup) error {
	for _, c := range []struct{ has, lacks, why string }{
		{"RANK", "LOCAL_RANK", "torchrun sets both, and without LOCAL_RANK it is not known which ranks share a machine"},
		{"PMIX_RANK", "OMPI_COMM_WORLD_SIZE", "it does not say of how many; Open MPI's mpirun sets both"},
		{"PMI_RANK", "MPI_LOCALRANKID", "MPICH's and Intel MPI's mpirun set both, and without the second it is not known which ranks share a machine"},
		{"PET_RDZV_ENDPOINT", "RANK", "the pods of an elastic PyTorchJob have no numbers; start the ranks by torchrun, which gives them some: torchrun --no_python ddpbatch run job.toml"},
		{"JOB_COMPLETION_INDEX", "WORLD_SIZE", "set WORLD_SIZE to the Job's completions"},
		{"SM_HOSTS", "SM_CURRENT_HOST", "SageMaker sets both"},
	} {
		value, has := lookup(c.has)
		if _, also := lookup(c.lacks); has && !also {
			return &incomplete{fmt.Sprintf("%s is %q, but %s is not set: %s", c.has, value, c.lacks, c.why)}
		}
	}
	return nil
}

// incomplete is an environment that says too little.
type incomplete struct{ why string }

func (e *incomplete) Error() string { return "the place of this rank is not told: " + e.why }

// Hint says what always works.
func (e *incomplete) Hint() string {
	return "`ddpbatch launch job.toml` starts the ranks of this machine by itself"
}
