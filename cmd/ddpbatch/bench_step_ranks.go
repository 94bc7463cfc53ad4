package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/ddpbatch/ddpbatch/trainer/bench"
	"github.com/ddpbatch/ddpbatch/trainer/collective"
	"github.com/ddpbatch/ddpbatch/trainer/ddp"
)

// runRanks starts the ranks and prints the results of rank 0. If this process is one of these
// ranks, runRanks runs it instead.
func (c *benchStepCmd) runRanks(ctx context.Context, p *program, models []bench.Model) error {
	if c.Ranks < 2 || c.Ranks > bench.MaxRanks {
		return usage(fmt.Sprintf("--ranks must be from 2 to %d; omit it to run a single process", bench.MaxRanks))
	}
	if err := c.checkThreads(); err != nil {
		return err
	}
	ctx, stop := interruptible(ctx)
	defer stop()
	rank, ok, err := bench.RankFromEnv(p.lookup)
	if err != nil {
		return err
	}
	if ok {
		return c.runRank(ctx, p, rank, models)
	}
	out, err := bench.RunRanks(ctx, c.Ranks, c.arguments(), p.Env)
	if err != nil {
		return err
	}
	var rows [][]string
	for line := range bytes.Lines(out) {
		var r bench.Result
		if err := json.Unmarshal(line, &r); err != nil {
			return fmt.Errorf("read the results of rank 0: %w", err)
		}
		if !c.JSON {
			rows = append(rows, append(stepCells(r), milliseconds(r.Communication), fmt.Sprintf("%.0f%%", 100*r.Hidden), r.Transport))
		} else if err := p.printJSONLine(r); err != nil {
			return err
		}
	}
	if !c.JSON {
		p.table(append(slices.Clone(stepHeader), "COMM", "HIDDEN", "TRANSPORT"), rows)
	}
	return nil
}

// arguments returns the command-line arguments of each rank.
func (c *benchStepCmd) arguments() []string {
	out := []string{"bench", "step", fmt.Sprint("--ranks=", c.Ranks), fmt.Sprint("--batch=", c.Batch), fmt.Sprint("--length=", c.Length), fmt.Sprint("--steps=", c.Steps), fmt.Sprint("--threads=", c.Threads), "--reduce=" + c.Reduce}
	for _, m := range c.Model {
		out = append(out, "--model="+m)
	}
	for _, p := range c.Precision {
		out = append(out, "--precision="+p)
	}
	if c.TCP {
		out = append(out, "--tcp")
	}
	return out
}

// runRank runs one rank of the benchmark. Rank 0 prints the results as JSON lines.
func (c *benchStepCmd) runRank(ctx context.Context, p *program, r bench.Rank, models []bench.Model) error {
	comm, err := r.Connect(ctx, !c.TCP, false)
	if err != nil {
		return err
	}
	defer comm.Close()
	b := bench.New(c.Threads)
	for _, m := range models {
		for _, name := range c.Precision {
			in, _ := bench.Precision(name) // kong has validated the name
			found, err := b.RankStep(ctx, comm, m, in, c.steps(m), ddp.Options{BF16: c.Reduce == "bf16"})
			if err != nil {
				return err
			}
			if r.Rank == 0 {
				if err := p.printJSONLine(found); err != nil {
					return err
				}
			}
		}
	}
	return comm.Do(ctx, collective.Barrier())
}
