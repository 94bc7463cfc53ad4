package launch

import (
	"context"
	"errors"
	"time"

	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/trainer/collective"
	"github.com/ddpbatch/ddpbatch/trainer/collective/mpi"
)

// defaultMPI is srun's --mpi where neither job nor site says one: what Open MPI needs.
const defaultMPI = "pmix"

// usesMPI reports whether ranks exchange their numbers by the site's MPI library.
func usesMPI(job *jobs.Job) bool { return job.Train != nil && job.Train.Backend == jobs.BackendMPI }

// startsMPI reports whether srun is to start the ranks as those of an MPI program: of the
// trainer over MPI, or of a user's program whose job file gives slurm.mpi.
func startsMPI(job *jobs.Job) bool {
	return usesMPI(job) || job.Command != nil && job.Gives("slurm.mpi")
}

// connectMPI builds the communicator over the MPI library. Ranks have met by then, and
// go on to report and to be watched over the rendezvous: MPI carries numbers only, over
// the network that was agreed on, as far as UCX and Open MPI follow their variables.
func (r *Rank) connectMPI(ctx context.Context) (collective.Communicator, error) {
	set, _, err := r.NetworkVariables(ctx, "UCX_", "OMPI_")
	if err != nil {
		return nil, err
	}
	w, err := mpi.Connect(ctx, mpi.Options{Rank: r.Place.Rank, Size: r.Place.WorldSize, Host: r.Place.Host,
		Library: string(r.job.Network.MPILibrary), Lookup: r.lookup, Set: set,
		ConnectTimeout: time.Duration(r.job.Network.JoinTimeout), Timeout: time.Duration(r.job.Network.CollectiveTimeout)})
	if err != nil {
		return nil, err
	}
	return finalized{w}, nil
}

// finalized is a communicator whose end is also that of MPI in this process.
type finalized struct{ *mpi.World }

// Close says that this rank is done, and ends MPI when all are.
func (f finalized) Close() error { return errors.Join(f.World.Close(), f.Finalize()) }

// noMPIHere is that there is nothing here by which MPI could start.
type noMPIHere struct{}

func (noMPIHere) Error() string {
	return "an MPI program, or train.backend = \"mpi\", needs srun to start the ranks: without Slurm there is none"
}

// Hint says what to do about it.
func (noMPIHere) Hint() string {
	return "submit the job; or start it by mpirun -n N ddpbatch run job.toml; or leave train.backend out: ranks of one machine share memory, which is faster"
}

// ExitCode is that of wrong usage.
func (noMPIHere) ExitCode() int { return 2 }
