package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// collectives holds all-reduces of two ranks on one machine: ddpbatch's shared memory, PyTorch's
// Gloo, and MPI_Allreduce of Open MPI and MPICH, called from a C program.
type collectives struct {
	Date   string           `json:"date"`
	Rounds int              `json:"rounds"`
	Busy   []float64        `json:"busy_cores,omitempty"` // cores used by other programs before each round
	Rows   []*collectiveRow `json:"rows"`
}

// collectiveRow holds the results for one size.
type collectiveRow struct {
	Bytes int              `json:"bytes"`
	Sides map[string]*sums `json:"sides"` // by the names below
}

// Names of the contenders.
const (
	ddpbatch = "ddpbatch"
	gloo     = "Gloo"
	openMPI  = "Open MPI"
	mpich    = "MPICH"
)

// A contender runs all-reduces in its own processes.
type contender struct {
	name string
	run  func(context.Context) ([]timedSum, error)
}

// localSizes are the buffer sizes in bytes for one machine.
var localSizes = []string{"4096", "1048576", "26214400", "104857600"}

// collectives measures all contenders in turns.
func (r *runner) collectives(ctx context.Context) (found *collectives, err error) {
	folder, err := os.MkdirTemp("", "ddpbatch-peers-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	direct := filepath.Join(folder, "allreduce")
	everywhere := runner{program: r.program, python: r.python, scripts: r.scripts} // on all cores
	if _, err := everywhere.run(ctx, "gcc", []string{"-O2", "-o", direct, filepath.Join(r.scripts, "direct", "allreduce.c"), "-ldl"}); err != nil {
		return nil, err
	}
	mpi := func(args ...string) func(context.Context) ([]timedSum, error) {
		return func(ctx context.Context) ([]timedSum, error) {
			return timedSums(everywhere.run(ctx, args[0], append(args[1:], localSizes...)))
		}
	}
	contenders := []contender{
		{ddpbatch, func(ctx context.Context) ([]timedSum, error) {
			return timedSums(everywhere.run(ctx, r.program, []string{"bench", "allreduce", "--ranks=2", "--json", "--bytes=" + strings.Join(localSizes, ",")}))
		}},
		{gloo, everywhere.localGloo},
		{openMPI, mpi("mpirun.openmpi", "--allow-run-as-root", "--bind-to", "none", "--oversubscribe", "-n", "2", direct, "libmpi.so.40")},
		{mpich, mpi("mpirun.mpich", "-n", "2", direct, "libmpich.so.12")},
	}
	found = &collectives{Date: time.Now().UTC().Format(time.DateOnly), Rounds: r.rounds}
	for round := range r.rounds {
		fmt.Fprintf(os.Stderr, "peers: round %d of %d: sums on one machine\n", round+1, r.rounds)
		busy, err := busyCores()
		if err != nil {
			return nil, err
		}
		found.Busy = append(found.Busy, busy)
		for _, c := range contenders {
			times, err := c.run(ctx)
			if err == nil {
				err = found.add(c.name, times)
			}
			if err != nil {
				return nil, fmt.Errorf("%s: %w", c.name, err)
			}
		}
	}
	return found, nil
}

// add adds the results of one contender in a round.
func (c *collectives) add(name string, times []timedSum) error {
	if len(times) != len(localSizes) {
		return fmt.Errorf("%d sizes, want %d", len(times), len(localSizes))
	}
	for i, t := range times {
		if fmt.Sprint(t.Bytes) != localSizes[i] || t.Median <= 0 || t.Best <= 0 {
			return fmt.Errorf("%+v is not an all-reduce of %s bytes", t, localSizes[i])
		}
		if i == len(c.Rows) {
			c.Rows = append(c.Rows, &collectiveRow{t.Bytes, map[string]*sums{}})
		}
		row := c.Rows[i]
		if row.Sides[name] == nil {
			row.Sides[name] = &sums{}
		}
		row.Sides[name].add(t)
	}
	return nil
}

// localGloo starts both ranks of PyTorch.
func (r *runner) localGloo(ctx context.Context) ([]timedSum, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // a single rank would wait forever
	rank := func(n string) ([]byte, error) {
		return r.runScript(ctx, append([]string{"allreduce.py", n, "127.0.0.1", port}, localSizes...))
	}
	other := make(chan error, 1)
	go func() {
		_, err := rank("1")
		if err != nil {
			cancel()
		}
		other <- err
	}()
	out, err := rank("0")
	if err != nil {
		cancel()
	}
	if err := errors.Join(err, <-other); err != nil {
		return nil, err
	}
	return timedSums(out, nil)
}

// freePort returns a port that is not in use now.
func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	_, port, err := net.SplitHostPort(l.Addr().String())
	return port, errors.Join(err, l.Close())
}

// timedSums parses lines of JSON.
func timedSums(out []byte, err error) ([]timedSum, error) {
	if err != nil {
		return nil, err
	}
	var found []timedSum
	for line := range bytes.Lines(out) {
		var s timedSum
		if err := json.Unmarshal(line, &s); err != nil {
			return nil, fmt.Errorf("read %q: %w", line, err)
		}
		found = append(found, s)
	}
	return found, nil
}

// canSum returns the reason why this machine cannot compare with the MPI libraries, or nothing.
func canSum() error {
	for _, name := range []string{"gcc", "mpirun.openmpi", "mpirun.mpich"} {
		if _, err := exec.LookPath(name); err != nil {
			return err
		}
	}
	return nil
}
