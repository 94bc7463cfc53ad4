// Peers benchmarks the trainer against PyTorch:
//   - training steps of the reference models, and matrix multiplications, with one thread on one core;
//   - steps of two ranks, against DistributedDataParallel;
//   - all-reduces of two ranks on this machine, against Gloo, Open MPI, and MPICH;
//   - all-reduces of two ranks over TCP, in network namespaces, which needs root.
//
// It writes docs/bench.md, and the results of each round to testdata/bench.json in its own directory.
// Results of steps on other kinds of CPUs are kept.
//
//	go run ./tests/peers -program bin/ddpbatch
//
// The two sides take turns, each in its own process, so that other load affects both. The median of
// the rounds is compared. The Python programs do the same work as "ddpbatch bench", from the same
// weights and samples; equal losses show it. Variables that would slow PyTorch down are removed from
// its environment. These results are not compared, because they would be unfair: a PyTorch whose
// matrix multiplications run at less than half of the core's speed, and a step with a different loss.
//
// It does not decide whether a test passes, and it does not measure several threads.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

// Output paths, relative to the root of the repository.
const (
	page    = "docs/bench.md"
	figures = "tests/peers/testdata/bench.json"
)

func main() {
	var r runner
	flag.StringVar(&r.program, "program", "bin/ddpbatch", "path of ddpbatch, built by make build")
	flag.StringVar(&r.python, "python", "/usr/bin/python3", "path of a Python with PyTorch")
	flag.IntVar(&r.rounds, "rounds", 5, "number of measurements of each side")
	only := flag.String("only", "", `part to measure: "steps" (training steps and matrix multiplications), "ddp" (steps of two ranks), "collectives" (all-reduces on this machine), or "tcp" (all-reduces over TCP); other results are kept`)
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := r.compare(ctx, *only); err != nil {
		fmt.Fprintf(os.Stderr, "peers: %v\n", err)
		os.Exit(1)
	}
}

// compare measures, and writes and prints the page.
func (r *runner) compare(ctx context.Context, only string) error {
	if !slices.Contains([]string{"", "steps", "ddp", "collectives", "tcp"}, only) {
		return fmt.Errorf(`-only is %q, want "steps", "ddp", "collectives", or "tcp"`, only)
	}
	if r.rounds < 1 {
		return fmt.Errorf("-rounds is %d, want at least 1", r.rounds)
	}
	r.scripts = "tests/peers"
	var found comparison
	text, err := os.ReadFile(figures)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, &found); err != nil {
		return fmt.Errorf("read %s: %w", figures, err)
	}
	if only == "" || only == "steps" {
		if err := r.compareWork(ctx, &found); err != nil {
			return err
		}
	}
	if only == "" || only == "ddp" {
		if found.Parallel, err = r.parallel(ctx); err != nil {
			return err
		}
	}
	if only == "" || only == "collectives" {
		if err := canSum(); err != nil {
			fmt.Fprintf(os.Stderr, "peers: sums on this machine stay as they were: %v: run tests/setup.sh\n", err)
		} else if found.Collectives, err = r.collectives(ctx); err != nil {
			return err
		}
	}
	switch {
	case only != "" && only != "tcp":
	case os.Geteuid() == 0:
		if found.TCP, err = r.transfers(ctx); err != nil {
			return err
		}
	default:
		fmt.Fprintln(os.Stderr, "peers: all-reduces over TCP require root for network namespaces; keeping their earlier results")
	}
	if err := os.MkdirAll(filepath.Dir(figures), 0o755); err != nil {
		return err
	}
	text, err = json.MarshalIndent(found, "", " ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(figures, append(text, '\n'), 0o644); err != nil {
		return err
	}
	fmt.Print(found.render())
	return os.WriteFile(page, []byte(found.render()), 0o644)
}

// compareWork repeats the measurements of training steps and matrix multiplications.
func (r *runner) compareWork(ctx context.Context, found *comparison) error {
	machine, err := r.describe(ctx)
	if err != nil {
		return err
	}
	before := *found
	*found = comparison{Date: time.Now().UTC().Format(time.DateOnly), Rounds: r.rounds, Machine: machine, Parallel: found.Parallel, Collectives: found.Collectives, TCP: found.TCP}
	for round := range r.rounds {
		for _, w := range workloads() {
			fmt.Fprintf(os.Stderr, "peers: round %d of %d: %s\n", round+1, r.rounds, w.name)
			if err := r.round(ctx, w, found); err != nil {
				return err
			}
		}
	}
	found.retain(before)
	return nil
}
