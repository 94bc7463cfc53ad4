// Package mpi is a [collective.Communicator] over the MPI library of the machine, for
// fabrics that TCP cannot use well. The library is loaded when [Connect] is called, and
// finds the other processes by itself: they must have been started by a launcher that it
// knows (mpirun, srun --mpi=...). Rank and number of ranks are compared with those that
// ddpbatch's own launcher gave, so that a library which does not know the launcher, and
// would take each process for the only one, is refused.
//
// It promises what package collective promises of errors and order, by means of MPI's
// own: before each operation the ranks compare what they are about to do (one small
// MPI_Iallreduce), so that ranks which are in different operations or pass other
// arguments find out; all calls are non-blocking and polled, first at once, then leaving
// the core to others after each look, so that deadlines and contexts end them; a rank
// that gives up tells the others why by a message, and one that is waited for in vain is
// found by asking all who is in the operation.
//
// MPI sees memory of this package only, mapped for good: what [collective.Alloc] returns
// is worked on in place, all else is copied through windows. So neither the garbage
// collector, nor the Go runtime giving memory back behind the back of a fabric's cache of
// registrations, nor a buffer that is used again after a timeout can disturb a transfer.
//
// Bits: the order of a sum is the MPI library's choice. It depends on the number of
// ranks, the length, and where the ranks run, and is the same run after run as long as
// these and the library's settings are; sums differ from those of the other members in
// the last place. All-reduce and reduce-scatter may have different orders, so that ZeRO
// has other bits than ddp here. bfloat16 and float16, for which MPI has no types, are
// reduced by package element's arithmetic, called from MPI. The extreme of a number and
// NaN is what the MPI library says; a mean is MPI's sum, divided here.
//
// Failure is final for the process, as MPI's state is undefined after it: [World.Close]
// then does not call MPI_Finalize, which would wait for ever, and MPI_Abort is never
// called, as it would kill other ranks before they could say what they know; the process
// is to end, and its launcher ends the others.
// Without a failure [World.Finalize] waits until all ranks have closed, and for
// MPI_Finalize some seconds.
//
// It does not run without an MPI launcher, not twice in a process, and Split, which MPI
// cannot do without blocking, has no deadline once all ranks have entered it; splits of
// different communicators must be in one order on all ranks.
package mpi

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/ddpbatch/ddpbatch/trainer/collective/mpi/libmpi"
)

// Options describe this process's place.
type Options struct {
	// Rank and Size are what MPI must say, too; with a Size of 0 they are taken from
	// MPI.
	Rank, Size int
	// Host is this node's name for messages.
	Host string
	// Library is the path or name of the library; empty finds it: see [libmpi.Open].
	Library string
	// Lookup reads the variables of the MPI launcher.
	Lookup func(string) (string, bool)
	// Set are variables for the library, put into the environment of this process.
	Set map[string]string
	// ConnectTimeout bounds Connect, Timeout every single operation.
	ConnectTimeout, Timeout time.Duration
}

// World is the communicator of all ranks.
type World struct{ *group }

// Connect initialises MPI and returns the communicator of all its processes.
func Connect(ctx context.Context, o Options) (*World, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, o.ConnectTimeout, fmt.Errorf("MPI was not ready within %s", o.ConnectTimeout))
	defer cancel()
	launcher := libmpi.StartedBy(o.Lookup)
	if launcher == libmpi.LauncherNone {
		return nil, &Mislaunched{Why: "no MPI launcher started this process"}
	}
	for name, value := range o.Set {
		if err := os.Setenv(name, value); err != nil {
			return nil, fmt.Errorf("set %s for MPI: %w", name, err)
		}
	}
	lib, err := libmpi.Open(o.Library, o.Lookup)
	if err != nil {
		return nil, err
	}
	if lib.Flavor == libmpi.OpenMPI && launcher == libmpi.LauncherPMI {
		return nil, &Mislaunched{Library: lib, Why: "Open MPI needs PMIx, and the launcher speaks PMI"}
	}
	p := &process{lib: lib, timeout: o.ConnectTimeout}
	if err := p.start(ctx); err != nil {
		return nil, fmt.Errorf("initialise %s (%s): %w", lib.Version, lib.Path, err)
	}
	if o.Size == 0 {
		o.Rank, o.Size = p.rank, started(o.Lookup, p.size)
	}
	if p.rank != o.Rank || p.size != o.Size {
		return nil, &Mislaunched{Library: lib, Why: fmt.Sprintf("for MPI this process is rank %d of %d, for the launcher rank %d of %d", p.rank, p.size, o.Rank, o.Size)}
	}
	for r := range p.size {
		p.everyone = append(p.everyone, r)
	}
	w := &World{newGroup(p, p.comm, 0, p.everyone, p.rank)}
	if err := w.meet(ctx, o.Host); err != nil {
		return nil, fmt.Errorf("connect the ranks by %s: %w", lib.Version, err)
	}
	p.timeout = o.Timeout
	return w, nil
}

// started is the number of processes that the launcher says it has started; size if it
// does not say so.
func started(lookup func(string) (string, bool), size int) int {
	for _, name := range []string{"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"} {
		var n int
		if v, ok := lookup(name); ok {
			if _, err := fmt.Sscan(v, &n); err == nil {
				return n
			}
		}
	}
	return size
}

// Library is the name and version of the MPI library and where it was found.
func (w *World) Library() (version, path string) { return w.process.lib.Version, w.process.lib.Path }

// Mislaunched is that launcher and library do not belong together.
type Mislaunched struct {
	Library *libmpi.Library // nil if none was loaded
	Why     string
}

// Error says what does not fit.
func (e *Mislaunched) Error() string {
	if e.Library == nil {
		return e.Why
	}
	return fmt.Sprintf("%s (%s) was not started by its own launcher: %s", e.Library.Version, e.Library.Path, e.Why)
}

// Hint says what to do about it.
func (*Mislaunched) Hint() string {
	return `Open MPI needs its own mpirun or slurm.mpi = "pmix", MPICH its own mpirun or "pmi2", Cray MPICH "cray_shasta" ("srun --mpi=list" shows what there is); network.mpi_library names another library`
}
