package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/trainer/bench"
	"github.com/ddpbatch/ddpbatch/trainer/collective"
	"github.com/ddpbatch/ddpbatch/trainer/collective/mpi"
)

type benchAllReduceCmd struct {
	Ranks     *int   `placeholder:"N" help:"Ranks, all on this machine (default: 2)."`
	Bytes     []int  `default:"4096,1048576,26214400,104857600" placeholder:"B" help:"Buffer sizes in bytes, separated by commas (default: 4 KiB to 100 MiB)."`
	TCP       bool   `name:"tcp" help:"Use TCP between the ranks, as between nodes, not shared memory."`
	Backend   string `default:"auto" enum:"auto,tcp,mpi,nccl" placeholder:"NAME" help:"Backend: auto, tcp (like --tcp), nccl (one GPU per rank), or mpi (the ranks are the processes that mpirun or srun started) (default: ${default})."`
	Library   string `name:"mpi-library" placeholder:"PATH" help:"Path or name of libmpi, for --backend mpi (default: found by the dynamic loader)."`
	Integrity string `default:"checksum" enum:"checksum,mac" placeholder:"NAME" help:"Message protection with --tcp: checksum or mac, like network.integrity (default: ${default})."`
	JSON      bool   `help:"Print each result as a line of JSON."`
}

func (c *benchAllReduceCmd) Help() string {
	return `Times all-reduce operations on float32 buffers, one after the other, as training
does for gradients. BUSBW is the bus bandwidth: 2(N-1)/N times the buffer size,
divided by the median time. Each rank must send at least that much.

To compare with the MPI library of this machine:

    mpirun -n 2 ddpbatch bench allreduce --backend mpi`
}

func (c *benchAllReduceCmd) Run(ctx context.Context, p *program) error {
	const maxBytes = 4 << 30
	if n := c.ranks(); n < 2 || n > bench.MaxRanks {
		return usage(fmt.Sprintf("--ranks must be from 2 to %d", bench.MaxRanks))
	}
	for _, n := range c.Bytes {
		if n < 4 || n > maxBytes || n%4 != 0 {
			return usage(fmt.Sprintf("--bytes must be multiples of 4, from 4 to %d", maxBytes))
		}
	}
	if err := c.validateFlags(); err != nil {
		return err
	}
	ctx, stop := interruptible(ctx)
	defer stop()
	c.TCP = c.TCP || c.Backend == "tcp"
	if c.Backend == "mpi" {
		return c.runMPIRank(ctx, p)
	}
	rank, ok, err := bench.RankFromEnv(p.lookup)
	if err != nil {
		return err
	}
	if ok {
		return c.runRank(ctx, p, rank)
	}
	out, err := bench.RunRanks(ctx, c.ranks(), c.arguments(), p.Env)
	if err != nil {
		return err
	}
	var results []bench.AllReduceResult
	if err := json.Unmarshal(out, &results); err != nil {
		return fmt.Errorf("read the results of rank 0: %w", err)
	}
	return c.print(p, results)
}

// validateFlags returns an error for flags that are not valid together.
func (c *benchAllReduceCmd) validateFlags() error {
	mpi := c.Backend == "mpi"
	switch {
	case c.Library != "" && !mpi:
		return usage("--mpi-library requires --backend mpi")
	case c.TCP && mpi:
		return usage("--tcp is not valid with --backend mpi: the MPI library selects the transport")
	case c.TCP && c.Backend == "nccl":
		return usage("--tcp is not valid with --backend nccl: NCCL selects the transport")
	case c.Integrity == string(jobs.IntegrityMAC) && !c.TCP && c.Backend != "tcp":
		return usage("--integrity mac requires --tcp: it protects messages between nodes")
	case c.Ranks != nil && mpi:
		return usage("--ranks is not valid with --backend mpi: mpirun or srun starts the ranks, such as mpirun -n 4")
	}
	return nil
}

// ranks returns the number of ranks to start.
func (c *benchAllReduceCmd) ranks() int {
	if c.Ranks == nil {
		return 2
	}
	return *c.Ranks
}

func (c *benchAllReduceCmd) arguments() []string {
	arguments := []string{"bench", "allreduce", fmt.Sprint("--ranks=", c.ranks())}
	for _, n := range c.Bytes {
		arguments = append(arguments, fmt.Sprint("--bytes=", n))
	}
	if c.TCP {
		arguments = append(arguments, "--tcp")
	}
	if c.Integrity != "" {
		arguments = append(arguments, "--integrity="+c.Integrity)
	}
	if c.Backend == "nccl" {
		arguments = append(arguments, "--backend=nccl")
	}
	return arguments
}

func (c *benchAllReduceCmd) print(p *program, results []bench.AllReduceResult) error {
	var rows [][]string
	for _, r := range results {
		if c.JSON {
			if err := p.printJSONLine(r); err != nil {
				return err
			}
			continue
		}
		rows = append(rows, []string{fmt.Sprint(r.Bytes), milliseconds(r.Median / 1e3), milliseconds(r.Best / 1e3),
			fmt.Sprintf("%.2f GB/s", r.BusBW), r.Transport, r.Algorithm})
	}
	if !c.JSON {
		p.table([]string{"BYTES", "MEDIAN", "BEST", "BUSBW", "TRANSPORT", "ALGORITHM"}, rows)
	}
	return nil
}

// runMPIRank runs one rank that an MPI launcher started.
func (c *benchAllReduceCmd) runMPIRank(ctx context.Context, p *program) error {
	const timeout = time.Minute
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	w, err := mpi.Connect(ctx, mpi.Options{Host: host, Library: c.Library, Lookup: p.lookup, ConnectTimeout: timeout, Timeout: timeout})
	if err != nil {
		return replaceKeysByFlags(err)
	}
	results, err := c.times(ctx, w, bench.InHostMemory(w))
	if err == nil && w.Rank() == 0 {
		err = c.print(p, results)
	}
	return errors.Join(err, w.Finalize())
}

// replaceKeysByFlags rewrites the hint of an MPI error to name flags of this command instead of keys
// of the job file.
func replaceKeysByFlags(err error) error {
	return hints.Add(err, strings.NewReplacer("network.mpi_library", "--mpi-library", " in setup.modules", "", `slurm.mpi = "pmix"`, "srun --mpi=pmix",
		`"pmi2"`, "--mpi=pmi2", `"cray_shasta"`, "--mpi=cray_shasta").Replace(hints.Of(err)))
}

// runRank runs one rank that bench.RunRanks started.
func (c *benchAllReduceCmd) runRank(ctx context.Context, p *program, r bench.Rank) error {
	comm, err := r.Connect(ctx, !c.TCP, c.Integrity == string(jobs.IntegrityMAC))
	if err != nil {
		return err
	}
	defer comm.Close()
	prepare := bench.InHostMemory(comm)
	if c.Backend == "nccl" {
		var closeNCCL func() error
		if prepare, closeNCCL, err = connectNCCL(ctx, p, comm, r.Rank); err != nil {
			return err
		}
		defer closeNCCL()
	}
	results, err := c.times(ctx, comm, prepare)
	if err != nil || r.Rank != 0 {
		return err
	}
	return json.NewEncoder(p.Stdout).Encode(results)
}

// times returns the results for all buffer sizes.
func (c *benchAllReduceCmd) times(ctx context.Context, comm collective.Communicator, prepare bench.PrepareAllReduce) (results []bench.AllReduceResult, err error) {
	for _, n := range c.Bytes {
		result, err := bench.AllReduce(ctx, comm, prepare, n)
		if err != nil {
			return nil, err
		}
		results = append(results, result)
	}
	return results, comm.Do(ctx, collective.Barrier())
}
