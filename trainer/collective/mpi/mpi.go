// Package mpi implements [collective.Communicator] with the MPI library of the machine, for fabrics
// that TCP cannot use well. [Connect] loads the library, which finds the other processes itself:
// they must be started by a launcher that it supports (mpirun, srun --mpi=...). Connect compares
// rank and world size with those of ddpbatch's launcher. So it rejects a library that does not
// support the launcher and would treat each process as the only one.
//
// Errors and order are as in package collective, implemented with MPI:
//   - Before each operation, the ranks compare their calls (one small MPI_Iallreduce), so that
//     they detect different operations or arguments.
//   - All calls are non-blocking and polled, first in a loop, then with a yield after each poll,
//     so that timeouts and contexts apply.
//   - A rank that fails sends the reason to the others. If a rank does not respond, the others
//     identify it by comparing their current operations.
//
// MPI accesses only memory of this package, which is never unmapped. It uses memory from
// [collective.Alloc] in place; other buffers are copied through windows. So a transfer cannot be
// disturbed by the garbage collector, by memory that the Go runtime returns to the system while the
// fabric's registration cache still holds it, or by a buffer that is reused after a timeout.
//
// Bits: the MPI library chooses the order of a sum. The order depends on the number of ranks, the
// length, and the placement of the ranks, and is the same in every run as long as these and the
// library's settings are the same. Sums differ in the last bit from the sums of the other
// implementations. All-reduce and reduce-scatter may have different orders, so ZeRO and ddp do not
// give the same bits here. MPI has no types for bfloat16 and float16; they are reduced by package
// element, which MPI calls. The MPI library defines the maximum or minimum of a value and NaN. A
// mean is MPI's sum, divided by this package.
//
// A failure is final for the process, because MPI's state is undefined afterwards. [World.Finalize]
// then does not call MPI_Finalize, which would wait indefinitely. The package never calls
// MPI_Abort, which would kill other ranks before they could report the cause. The process
// should exit, and its launcher stops the others. Without a failure, [World.Finalize] waits up to
// Options.Timeout until all ranks have closed, and then a few seconds for MPI_Finalize.
//
// Limits:
//   - The package requires an MPI launcher and works once per process.
//   - Split has no timeout once all ranks have entered it, because MPI cannot split without
//     blocking. Splits of different communicators must be in the same order on all ranks.
package mpi

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/trainer/collective/mpi/libmpi"
)

// Options configure this process.
type Options struct {
	// Rank and Size must match MPI's. If Size is 0, MPI determines both.
	Rank, Size int
	// Host is the name of this node, for messages.
	Host string
	// Library is the path or name of the library. If it is empty, [libmpi.Open] searches for one.
	Library string
	// Lookup reads the environment variables of the MPI launcher.
	Lookup func(string) (string, bool)
	// Set contains environment variables for the library, which Connect sets in this process.
	Set map[string]string
	// ConnectTimeout limits Connect. Timeout limits each operation.
	ConnectTimeout, Timeout time.Duration
}

// World is the communicator of all ranks.
type World struct{ *group }

// Connect initializes MPI and returns the communicator of all its processes.
func Connect(ctx context.Context, o Options) (*World, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, o.ConnectTimeout, fmt.Errorf("MPI was not ready within %s", o.ConnectTimeout))
	defer cancel()
	launcher := libmpi.StartedBy(o.Lookup)
	if launcher == libmpi.LauncherNone {
		return nil, mislaunched(nil, "no MPI launcher started this process")
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
		return nil, mislaunched(lib, "Open MPI requires PMIx, but the launcher provides PMI")
	}
	p := &process{lib: lib, timeout: o.ConnectTimeout}
	p.finalize = sync.OnceValue(p.finalizeOnce)
	if err := p.start(ctx); err != nil {
		return nil, fmt.Errorf("initialize %s (%s): %w", lib.Version, lib.Path, err)
	}
	if o.Size == 0 {
		o.Rank, o.Size = p.rank, started(o.Lookup, p.size)
	}
	if p.rank != o.Rank || p.size != o.Size {
		return nil, mislaunched(lib, fmt.Sprintf("MPI reports rank %d of %d, but the launcher reports rank %d of %d", p.rank, p.size, o.Rank, o.Size))
	}
	for r := range p.size {
		p.allRanks = append(p.allRanks, r)
	}
	w := &World{newGroup(p, p.comm, 0, p.allRanks, p.rank)}
	if err := w.exchangeHosts(ctx, o.Host); err != nil {
		return nil, fmt.Errorf("connect the ranks with %s: %w", lib.Version, err)
	}
	p.timeout = o.Timeout
	return w, nil
}

// started returns the number of processes according to the launcher, or size if the launcher does
// not set it.
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

// mislaunched returns the error for a launcher that does not match the library, which is nil if none
// was loaded.
func mislaunched(lib *libmpi.Library, why string) error {
	if lib != nil {
		why = fmt.Sprintf("%s (%s) was not started by its own launcher: %s", lib.Version, lib.Path, why)
	}
	return hints.Add(errors.New(why), `use the mpirun of the library, or set slurm.mpi to "pmix" for Open MPI, "pmi2" for MPICH, or "cray_shasta" for Cray MPICH ("srun --mpi=list" shows the supported types); or set network.mpi_library to a different library`)
}
