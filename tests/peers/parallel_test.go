package main

import (
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/trainer/bench"
	"github.com/ddpbatch/ddpbatch/trainer/metrics"
)

// stepOf returns a result of n ranks.
func stepOf(ranks int, rate, loss float64) bench.Result {
	return bench.Result{Kind: "step", Model: "gpt", Unit: "tokens", Precision: "fp32", Threads: 1, Params: 7, Ranks: ranks, PerSecond: rate,
		FirstLoss: metrics.NewNumber(4), Loss: metrics.NewNumber(loss), Communication: .002, Hidden: .75}
}

// TestRanksAreComparable checks that only measurements of the same model, parameters, and ranks
// are compared.
func TestRanksAreComparable(t *testing.T) {
	for name, change := range map[string]func(alone, ours, theirs *bench.Result){
		"ranks":      func(_, ours, _ *bench.Result) { ours.Ranks = 3 },
		"alone":      func(alone, _, _ *bench.Result) { alone.Ranks = 2 },
		"model":      func(_, _, theirs *bench.Result) { theirs.Model = "mlp" },
		"parameters": func(alone, _, _ *bench.Result) { alone.Params = 8 },
		"no time":    func(_, _, theirs *bench.Result) { theirs.PerSecond = 0 },
	} {
		alone, ours, theirs := stepOf(0, 1, 2), stepOf(2, 2, 2), stepOf(2, 1, 2)
		change(&alone, &ours, &theirs)
		if err := new(parallel).add(alone, ours, theirs); err == nil {
			t.Errorf("%s: added", name)
		}
	}
}

// TestTablesOfRanks checks the rows of the tables, and that rates are not compared if the losses
// differ.
func TestTablesOfRanks(t *testing.T) {
	found := parallel{Date: "2030-01-02", Rounds: 2}
	for _, rate := range []float64{100, 140} {
		if err := found.add(stepOf(0, rate, 2), stepOf(2, 2*rate, 2), stepOf(2, rate, 2)); err != nil {
			t.Fatal(err)
		}
	}
	var b strings.Builder
	found.render(&b)
	for _, want := range []string{
		"| gpt | tokens/s | 240 | 120 | 2x | at least 1.4x | yes |\n",
		"| gpt | 120 tokens/s | 2x | at least 1.8x | yes | 2 ms | 75% | at least 80% | **no** |\n",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
	other := parallel{Date: "2030-01-02", Rounds: 1}
	if err := other.add(stepOf(0, 1, 2), stepOf(2, 2, 2), stepOf(2, 1, 3)); err != nil {
		t.Fatal(err)
	}
	b.Reset()
	other.render(&b)
	if !strings.Contains(b.String(), "not compared: the losses are 2.0000 and 3.0000 | at least 1.4x | not known |") {
		t.Errorf("other work was compared:\n%s", b.String())
	}
}

// TestRanksOfBothSides checks that ddpbatch and PyTorch train the same model on two ranks.
// Otherwise their times could not be compared.
func TestRanksOfBothSides(t *testing.T) {
	r := torchRunner(t)
	var found parallel
	for _, model := range []string{"mlp", "gpt"} {
		if err := r.ranks(t.Context(), model, "2", &found); err != nil {
			t.Fatal(err)
		}
	}
	for _, found := range found.Rows {
		if why := (&row{Ours: found.Ours, Theirs: found.Theirs}).otherWork(); why != "" {
			t.Errorf("%s: %s", found.Model, why)
		}
	}
}
