package launch

import (
	"context"
	"errors"
	"time"

	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/trainer/collective"
	"github.com/ddpbatch/ddpbatch/trainer/collective/mpi"
)

// defaultMPI is the value of srun's --mpi if neither the job nor the site sets it. Open MPI
// needs this value.
const defaultMPI = "pmix"

// usesMPI reports whether the built-in trainer communicates through the site's MPI library.
func usesMPI(job *jobs.Job) bool { return job.Train != nil && job.Train.Backend == jobs.BackendMPI }

// startsMPI reports whether srun must start the ranks as an MPI program: for the built-in
// trainer over MPI, or for a user's program whose job file sets slurm.mpi.
func startsMPI(job *jobs.Job) bool {
	return usesMPI(job) || job.Command != nil && job.IsSet("slurm.mpi")
}

// connectMPI builds the communicator over the MPI library. The rendezvous continues to monitor
// the ranks and to receive their reports. MPI carries only the collectives. It uses the chosen
// network as far as UCX and Open MPI follow their variables.
func (r *Rank) connectMPI(ctx context.Context) (collective.Communicator, error) {
	set, _, err := r.NetworkVariables(ctx, "UCX_", "OMPI_")
	if err != nil {
		return nil, err
	}
	w, err := mpi.Connect(ctx, mpi.Options{Rank: r.Info.Rank, Size: r.Info.WorldSize, Host: r.Info.Host,
		Library: string(r.job.Network.MPILibrary), Lookup: r.lookup, Set: set,
		ConnectTimeout: time.Duration(r.job.Network.JoinTimeout), Timeout: time.Duration(r.job.Network.CollectiveTimeout)})
	if err != nil {
		return nil, err
	}
	return finalized{w}, nil
}

// finalized is a communicator whose Close also finalizes MPI in this process.
type finalized struct{ *mpi.World }

// Close leaves the communicator, and then finalizes MPI after all ranks have left.
func (f finalized) Close() error { return errors.Join(f.World.Close(), f.Finalize()) }
