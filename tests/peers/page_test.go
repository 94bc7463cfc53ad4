package main

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/trainer/bench"
	"github.com/ddpbatch/ddpbatch/trainer/metrics"
)

var update = flag.Bool("update", false, "rewrite golden files")

// TestPage checks that docs/bench.md shows the measured results, for all workloads. Speed does not
// affect the result of the test.
func TestPage(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("../..", figures))
	if err != nil {
		t.Fatal(err)
	}
	var c comparison
	if err := json.Unmarshal(text, &c); err != nil {
		t.Fatal(err)
	}
	if c.Rounds < 5 {
		t.Errorf("%d rounds, want at least 5", c.Rounds)
	}
	for _, m := range bench.Models() {
		for _, precision := range []string{"fp32", "bf16"} {
			checkRow(t, &c, "step", m.Name(), m.Shape(), precision)
		}
	}
	for _, s := range bench.Shapes() {
		checkRow(t, &c, "gemm", s.Model, s.String(), "fp32")
	}
	golden(t, filepath.Join("../..", page), c.render())
}

func checkRow(t *testing.T, c *comparison, kind, model, shape, precision string) {
	t.Helper()
	r := c.find(kind, model, shape, precision)
	if r == nil {
		t.Errorf("no results for %s %s %s in %s", kind, model, shape, precision)
		return
	}
	if len(r.Ours.Median) != c.Rounds || len(r.Theirs.Median) != c.Rounds {
		t.Errorf("%s %s in %s: %d and %d of %d rounds", kind, shape, precision, len(r.Ours.Median), len(r.Theirs.Median), c.Rounds)
	}
}

// golden compares text with a file, or writes the file.
func golden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s does not match the results; run go test ./tests/peers -update", path)
	}
}

// invented returns two rounds of some workloads, with round numbers. PyTorch's matrix
// multiplications run at the given speed, and its GPT has the given loss.
func invented(t *testing.T, speed, loss float64) *comparison {
	t.Helper()
	c := &comparison{Date: "2030-01-02", Rounds: 2, Machine: machine{CPU: "A | B", Cores: 4, Memory: 8 << 30, Program: "ddpbatch v9", Torch: "3.0", BLAS: "SlowBLAS"}}
	for _, seconds := range []float64{1, 3} {
		step := func(model, precision string, seconds, loss float64) bench.Result {
			return bench.Result{Kind: "step", Model: model, Shape: "L1", Precision: precision, Device: "cpu", Threads: 1, Runs: 5, Median: seconds, Best: seconds,
				GFLOPS: 80, Peak: 100, Share: .8, Unit: "tokens", PerSecond: 10 / seconds, FirstLoss: metrics.NewNumber(4), Loss: metrics.NewNumber(loss), PeakRSS: int64(seconds * (1 << 30))}
		}
		product := func(model, shape string, speed, peak float64) bench.Result {
			return bench.Result{Kind: "gemm", Model: model, Shape: shape, Precision: "fp32", Threads: 1, Runs: 9, Median: 1, Best: 1, GFLOPS: speed, Peak: peak, Share: speed / 100}
		}
		for _, pair := range [][2]bench.Result{
			{step("mlp", "fp32", .8*seconds, 2), step("mlp", "fp32", seconds, 2)},
			{step("mlp", "bf16", 2*seconds, 2), step("mlp", "bf16", seconds, 2)},
			{step("gpt", "fp32", .9*seconds, 3), step("gpt", "fp32", seconds, loss)},
			{step("gpt2", "fp32", .5*seconds, 3), step("gpt2", "fp32", seconds, 3)},
			{product("square", "1024x1024x1024/NN", 90, 100), product("", "1024x1024x1024/NN", speed, 0)},
			{product("mlp", "1x2x3/NT", 84, 100), product("", "1x2x3/NT", 2*speed, 0)},
		} {
			if err := c.add(pair[0], pair[1]); err != nil {
				t.Fatal(err)
			}
		}
	}
	return c
}

// TestFasterMode checks that the better mode of PyTorch is compared, for each quantity, and that a
// compiled step with other losses is not.
func TestFasterMode(t *testing.T) {
	for name, tt := range map[string]struct {
		speed float64 // of the compiled step, relative to eager mode
		loss  float64
		want  []string
	}{
		"compiled": {2, 3, []string{"| gpt2 | fp32 | tokens/s | 10 | 10 (compiled) | 1x |", "| gpt2 | fp32 | peak memory | 1024 MiB | 1024 MiB (compiled) | 1x |", "| mlp | fp32 | time | 1000 ms | 2000 ms | 0.5x |"}},
		"eager":    {0.5, 3, []string{"| gpt2 | fp32 | tokens/s | 10 | 5 (eager) | 2x |", "| gpt2 | fp32 | peak memory | 1024 MiB | 2048 MiB (eager) | 0.5x |"}},
		"other":    {2, 4, []string{"| gpt2 | fp32 | tokens/s | 10 | 10 (compiled) | not compared |", "gpt2 in fp32 is not compared: the losses are 3.0000 and 4.0000."}},
	} {
		step := func(model string, speed, loss float64) bench.Result {
			return bench.Result{Kind: "step", Model: model, Precision: "fp32", Threads: 1, Runs: 1, Median: 2 / speed, PerSecond: 5 * speed,
				FirstLoss: metrics.NewNumber(4), Loss: metrics.NewNumber(loss), PeakRSS: int64((2 << 30) / speed)}
		}
		c := &comparison{Rounds: 1, Machine: machine{Torch: "3.0"}}
		for _, err := range []error{
			c.add(step("mlp", 2, 3), step("mlp", 1, 3)),
			c.add(bench.Result{Kind: "gemm", Model: "square", Shape: "1024x1024x1024/NN", Precision: "fp32", Threads: 1, Runs: 1, GFLOPS: 1, Peak: 1},
				bench.Result{Kind: "gemm", Shape: "1024x1024x1024/NN", Precision: "fp32", Threads: 1, Runs: 1, GFLOPS: 1}),
			c.add(step("gpt2", 2, 3), step("gpt2", 1, 3)),
			c.addCompiled(step("gpt2", 2, 3), step("gpt2", tt.speed, tt.loss)),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := c.addCompiled(step("gpt2", 2, 3), step("gpt", 2, 3)); err == nil {
			t.Error("a compiled step of a different model was added")
		}
		page := c.render()
		for _, want := range tt.want {
			if !strings.Contains(page, want) {
				t.Errorf("%s: the page has no %q:\n%s", name, want, page)
			}
		}
	}
}

// TestOtherCPUs checks that a measurement replaces the results of the same kind of CPU, and
// that the page shows the others.
func TestOtherCPUs(t *testing.T) {
	on := func(cpu, date string) *comparison {
		c := invented(t, 60, 3)
		c.Machine.CPU, c.Date = cpu, date
		return c
	}
	found := on("A", "2030-01-01")
	for _, next := range []*comparison{on("B", "2030-01-02"), on("C", "2030-01-03"), on("A", "2030-01-04"), on("B", "2030-01-05")} {
		next.retain(*found)
		found = next
	}
	page := found.render()
	for text, count := range map[string]int{
		"| Date | 2030-01-05 |": 1, "| CPU | B, 4 cores, 8 GiB |": 1,
		"### C, cpu\nMeasured on 2030-01-03 in 2 rounds, with ddpbatch v9 and PyTorch 3.0; BLAS: SlowBLAS.\n": 1,
		"### A, cpu\nMeasured on 2030-01-04 in 2 rounds,":                                                     1, "### ": 2,
		"| mlp | fp32 | time | 1600 ms | 2000 ms | 0.8x | at most 0.8x | yes |\n": 3,
	} {
		if got := strings.Count(page, text); got != count {
			t.Errorf("the page has %q %d times, want %d:\n%s", text, got, count, page)
		}
	}
}

// TestVerdicts checks which results are compared, and the reasons for the others.
func TestVerdicts(t *testing.T) {
	good := invented(t, 60, 3).render()
	for _, want := range []string{
		"take turns, in 2 rounds.",
		"| CPU | A / B, 4 cores, 8 GiB |",
		"| mlp | fp32 | time | 1600 ms | 2000 ms | 0.8x | at most 0.8x | yes |",
		"| mlp | bf16 | time | 4000 ms | 2000 ms | 2x | - | - |",
		"| gpt | fp32 | time | 1800 ms | 2000 ms | 0.9x | at most 0.8x | **no** |",
		"| gpt2 | fp32 | tokens/s | 13 | 7 | 2x | at least 1.6x | yes |",
		"| gpt2 | fp32 | peak memory | 1024 MiB | 2048 MiB | 0.5x | at most 0.8x | yes |",
		"| gpt | fp32 | 80 | 100 | 80% | at least 75% | yes | 4.0000, 3.0000 | 4.0000, 3.0000 |",
		"| square | 1024x1024x1024/NN | 90 | 60 | 1.5x | at least 1x | yes | 90% | at least 85% | yes |",
		"| mlp | 1x2x3/NT | 84 | 120 | 0.7x | at least 1x | **no** | 84% | at least 85% | **no** |",
	} {
		if !strings.Contains(good, want+"\n") && !strings.Contains(good, want+" ") {
			t.Errorf("the page has no %q:\n%s", want, good)
		}
	}
	if strings.Contains(good, "not compared") {
		t.Errorf("something is not compared:\n%s", good)
	}

	slow := invented(t, 49, 3).render()
	for _, want := range []string{
		"**This PyTorch is not used for comparisons: its 1024 x 1024 matrix multiplication reaches 49 GFLOP/s, less than half of this core's 100 GFLOP/s; its BLAS is SlowBLAS.**",
		"| gpt2 | fp32 | tokens/s | 13 | 7 | not compared | at least 1.6x | not known |",
		"| square | 1024x1024x1024/NN | 90 | 49 | not compared | at least 1x | not known | 90% | at least 85% | yes |",
	} {
		if !strings.Contains(slow, want) {
			t.Errorf("the page has no %q:\n%s", want, slow)
		}
	}

	other := invented(t, 60, 3.1).render()
	for _, want := range []string{
		"| gpt | fp32 | time | 1800 ms | 2000 ms | not compared | at most 0.8x | not known |",
		"gpt in fp32 is not compared: the losses are 3.0000 and 3.1000.",
		"| mlp | fp32 | time | 1600 ms | 2000 ms | 0.8x | at most 0.8x | yes |",
	} {
		if !strings.Contains(other, want) {
			t.Errorf("the page has no %q:\n%s", want, other)
		}
	}
}
