package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/ddpbatch/ddpbatch/trainer/bench"
)

// parallel holds training steps of two ranks with one core each, PyTorch's DistributedDataParallel
// over Gloo, and a single rank.
type parallel struct {
	Date   string         `json:"date"`
	Rounds int            `json:"rounds"`
	Rows   []*parallelRow `json:"rows"`
}

// parallelRow holds the results for one model.
type parallelRow struct {
	Model         string    `json:"model"`
	Unit          string    `json:"unit"`
	Ours          side      `json:"ddpbatch"`
	Theirs        side      `json:"pytorch"`                    // in eager mode
	Compiled      *side     `json:"pytorch_compiled,omitempty"` // with torch.compile
	Alone         side      `json:"alone"`                      // a single rank of ddpbatch
	Communication []float64 `json:"comm_s"`
	Hidden        []float64 `json:"comm_hidden"`
}

// parallelRanks is the number of ranks.
const parallelRanks = 2

// parallel measures both sides in turns.
func (r *runner) parallel(ctx context.Context) (*parallel, error) {
	if _, err := r.describe(ctx); err != nil { // for the core of a single rank
		return nil, err
	}
	found := &parallel{Date: time.Now().UTC().Format(time.DateOnly), Rounds: r.rounds}
	for round := range r.rounds {
		for _, model := range []struct{ name, steps string }{{"mlp", "200"}, {"gpt", "20"}} {
			fmt.Fprintf(os.Stderr, "peers: round %d of %d: %s on %d ranks\n", round+1, r.rounds, model.name, parallelRanks)
			if err := r.ranks(ctx, model.name, model.steps, found); err != nil {
				return nil, err
			}
		}
	}
	return found, nil
}

// ranks measures a round of a model.
func (r *runner) ranks(ctx context.Context, model, steps string, into *parallel) error {
	ours := []string{"bench", "step", "--model", model, "--precision", "fp32", "--steps", steps, "--json"}
	everywhere := *r
	everywhere.core = "" // ranks use all cores
	ranks := fmt.Sprint(parallelRanks)
	theirs := func(mode string) func() ([]byte, error) {
		return func() ([]byte, error) {
			return everywhere.runScript(ctx, []string{"ddp.py", model, "fp32", steps, ranks, mode})
		}
	}
	programs := []func() ([]byte, error){
		func() ([]byte, error) { return r.run(ctx, r.program, ours) },
		func() ([]byte, error) { return everywhere.run(ctx, r.program, append(ours, "--ranks", ranks)) },
		theirs(eager),
	}
	if r.compile {
		programs = append(programs, theirs(compiled))
	}
	var sides []bench.Result
	for _, run := range programs {
		list, err := results(run())
		if err != nil {
			return err
		}
		if len(list) != 1 {
			return fmt.Errorf("%s on %s ranks: %d results, want 1", model, ranks, len(list))
		}
		sides = append(sides, list[0])
	}
	return into.add(sides[0], sides[1], sides[2:]...)
}

// add adds a round: of PyTorch, the results in eager mode and, if it can compile, with torch.compile.
// It rejects results of a different workload.
func (p *parallel) add(alone, ours bench.Result, theirs ...bench.Result) error {
	for i, r := range append([]bench.Result{alone, ours}, theirs...) {
		if r.Kind != "step" || r.Model != ours.Model || r.Precision != ours.Precision || r.Params != ours.Params || r.Threads != 1 || r.PerSecond <= 0 {
			return fmt.Errorf("not the same work: %+v, %+v and %+v", alone, ours, theirs)
		}
		ranks := parallelRanks
		if i == 0 { // alone
			ranks = 0
		}
		if r.Ranks != ranks {
			return fmt.Errorf("results of %d ranks, want %d", r.Ranks, ranks)
		}
	}
	var row *parallelRow
	for _, of := range p.Rows {
		if of.Model == ours.Model {
			row = of
		}
	}
	if row == nil {
		row = &parallelRow{Model: ours.Model, Unit: ours.Unit}
		p.Rows = append(p.Rows, row)
	}
	row.Alone.add(alone)
	row.Ours.add(ours)
	row.Theirs.add(theirs[0])
	if len(theirs) > 1 {
		if row.Compiled == nil {
			row.Compiled = &side{}
		}
		row.Compiled.add(theirs[1])
	}
	row.Communication, row.Hidden = append(row.Communication, ours.Communication), append(row.Hidden, ours.Hidden)
	return nil
}
