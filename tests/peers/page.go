package main

import (
	"fmt"
	"strings"

	"github.com/ddpbatch/ddpbatch/trainer/bench"
)

// render returns the text of docs/bench.md.
func (c *comparison) render() string {
	var b strings.Builder
	m := c.Machine
	fmt.Fprintf(&b, `# Benchmarks

<!-- Written by make bench from tests/peers; changes made here will be lost. -->

This page is for users who want to know how fast the built-in trainer is. It compares the trainer with PyTorch on the same work, with one thread each on the same core. The two programs take turns, in %s. Each time is the median of the rounds' medians.

Results against other versions of PyTorch are unknown. No GPU has been measured.

    make bench    # measure again and write this page: takes up to an hour on an idle machine

As root on Debian, `+"`make bench`"+` runs both sides on Debian 13 with PyTorch 2.6 ([CONTRIBUTING.md](../CONTRIBUTING.md#build-and-test)), otherwise with the PyTorch of this machine.

| Property | Value |
|---|---|
| Date | %s |
| CPU | %s, %d cores, %.0f GiB |
| ddpbatch | %s; %s |
| PyTorch | %s; BLAS: %s |

`, rounds(c.Rounds), c.Date, cell(m.CPU), m.Cores, float64(m.Memory)/(1<<30), cell(strings.TrimPrefix(m.Program, "ddpbatch ")), cell(c.device()), cell(m.Torch), cell(m.BLAS))
	why := c.crippled()
	if why != "" {
		fmt.Fprintf(&b, "**This PyTorch is not used for comparisons: %s.** `tests/setup.sh` installs OpenBLAS.\n\n", cell(why))
	}
	c.renderSteps(&b, why == "")
	c.renderShares(&b)
	c.renderProducts(&b, why == "")
	c.renderOthers(&b)
	if c.Parallel != nil {
		c.Parallel.render(&b)
	}
	if c.Collectives != nil {
		c.Collectives.render(&b)
	}
	if c.TCP != nil {
		c.TCP.render(&b)
	}
	b.WriteString(notes)
	return b.String()
}

func rounds(n int) string {
	if n == 1 {
		return "1 round"
	}
	return fmt.Sprintf("%d rounds", n)
}

// renderSteps writes the section about training steps.
func (c *comparison) renderSteps(b *strings.Builder, comparable bool) {
	b.WriteString("## Training steps\nA step is forward, backward, and update. ddpbatch also computes the norm of the gradients; PyTorch does so only for gradient clipping (gpt). The ratio is ddpbatch's value divided by PyTorch's. \"Target\" is the project's goal.\n\n")
	c.renderStepTable(b, comparable)
}

// renderOthers writes the tables of training steps on other kinds of CPUs.
func (c *comparison) renderOthers(b *strings.Builder) {
	if len(c.Others) == 0 {
		return
	}
	b.WriteString("## Training steps on other CPUs\nThe tables have the same columns as the one for [this machine](#training-steps).\n\n")
	for _, d := range c.Others {
		fmt.Fprintf(b, "### %s, %s\nMeasured on %s in %s, with %s and PyTorch %s; BLAS: %s.\n\n",
			cell(d.Machine.CPU), cell(d.device()), d.Date, rounds(d.Rounds), cell(d.Machine.Program), cell(d.Machine.Torch), cell(d.Machine.BLAS))
		d.renderStepTable(b, d.crippled() == "")
	}
}

// renderStepTable writes the table of training steps.
func (c *comparison) renderStepTable(b *strings.Builder, comparable bool) {
	header(b, "Model", "Precision", "Quantity", "ddpbatch", "PyTorch", "Ratio", "Target", "Met")
	for _, r := range c.Rows {
		if r.Kind != "step" {
			continue
		}
		for _, m := range r.measures() {
			line(b, append([]string{r.Model, r.Precision, m.name}, compared(r, m, comparable && r.otherWork() == "")...)...)
		}
	}
	b.WriteString("\n")
	for _, r := range c.Rows {
		if why := r.otherWork(); r.Kind == "step" && why != "" {
			fmt.Fprintf(b, "%s in %s is not compared: %s.\n\n", r.Model, r.Precision, why)
		}
	}
}

// compared returns the cells of both sides, their ratio, the target, and whether it is met.
func compared(r *row, m measure, comparable bool) []string {
	ours := middle(m.of(&r.Ours))
	theirs, text := r.opponent(m)
	known := comparable && ours > 0 && theirs > 0
	ratio := "not compared"
	if known {
		ratio = times(ours / theirs)
	}
	return append([]string{m.format(ours), text, ratio}, m.target.cells(ours/theirs, known, times)...)
}

// renderShares writes the fraction of the limit that steps reach, and the losses, which show that
// both sides did the same work.
func (c *comparison) renderShares(b *strings.Builder) {
	b.WriteString("## Efficiency\nThe limit is the peak rate of the core for fused multiply-adds, measured in the same run. Losses are from the first and the last step of a round.\n\n")
	header(b, "Model", "Precision", "GFLOP/s", "Limit", "Fraction", "Target", "Met", "Losses of ddpbatch", "Losses of PyTorch")
	for _, r := range c.Rows {
		if r.Kind == "step" {
			cells := []string{r.Model, r.Precision, whole(middle(r.Ours.GFLOPS)), whole(middle(r.Ours.Peak))}
			cells = append(append(cells, r.share()...), r.Ours.losses(), r.Theirs.losses())
			line(b, cells...)
		}
	}
	b.WriteString("\n")
}

// share returns the cells for the fraction of the limit that a row reaches.
func (r *row) share() []string {
	share := middle(r.Ours.Share)
	text := "-"
	if share > 0 {
		text = percent(share)
	}
	return append([]string{text}, r.shareTarget().cells(share, share > 0, percent)...)
}

func (s *side) losses() string {
	return fmt.Sprintf("%.4f, %.4f", float64(s.FirstLoss), float64(s.Loss))
}

// renderProducts writes the table of matrix multiplications.
func (c *comparison) renderProducts(b *strings.Builder, comparable bool) {
	b.WriteString("## Matrix multiplication\nGFLOP/s in float32, from the best time of a round. PyTorch uses its BLAS. MxNxK is an M x K matrix times a K x N matrix. NT and TN mean that the second or the first matrix is transposed in memory. A matrix with ten columns fills 10 of the 16 lanes of a register, so it can reach 62% at most.\n\n")
	header(b, "Model", "Shape", "ddpbatch", "PyTorch", "Ratio", "Target", "Met", "Fraction of limit", "Target", "Met")
	for _, r := range c.Rows {
		if r.Kind == "gemm" {
			speed := measure{"GFLOP/s", func(s *side) []float64 { return s.GFLOPS }, whole, r.speedTarget(), true}
			cells := append([]string{r.Model, r.Shape}, compared(r, speed, comparable)...)
			line(b, append(cells, r.share()...)...)
		}
	}
	b.WriteString("\n")
}

// notes is the last section of the page.
var notes = fmt.Sprintf(`## Method
- Models: %s. The MLP uses SGD with momentum; the GPTs use AdamW; gpt clips its gradients to a norm of 1. Both programs start from the same weights and samples, which a seed generates. The first %d steps of a process are not counted.
- FLOPs of a step: for the MLP, its matrix multiplications; for a GPT, 6N + 12*L*C*T per token, where N is the number of parameters without the positional embedding (Chowdhery et al. 2022, appendix B).
- bf16 means bfloat16 matrix multiplications with float32 sums: AVX512_BF16 in ddpbatch, autocast in PyTorch.
- GELU is the tanh approximation of GPT-2. PyTorch computes the exact function, which is faster in PyTorch.
- Peak memory is the maximum resident size of the process.
- PyTorch 2.4 and later use fused optimizers, and PyTorch 2.0 and later use `+"`scaled_dot_product_attention`"+`. If this PyTorch can compile, each value is the better one of eager mode and `+"`torch.compile`"+`, and the tables name the mode. Compilation is not counted.
- PyTorch runs with OMP_NUM_THREADS=1 and no other variables that affect OpenBLAS, OpenMP, or oneDNN.
- `+"`ddpbatch bench step` and `ddpbatch bench gemm`"+` measure ddpbatch only. They print JSON with `+"`--json`"+`. The values of each round are in [tests/peers/testdata/bench.json](../tests/peers/testdata/bench.json).
`, modelList(), bench.WarmUp)

func modelList() string {
	var list []string
	for _, m := range bench.Models() {
		list = append(list, m.Name()+" "+m.Shape())
	}
	return strings.Join(list, ", ")
}

// header and line write rows of a table.
func header(b *strings.Builder, cells ...string) {
	line(b, cells...)
	b.WriteString(strings.Repeat("|---", len(cells)) + "|\n")
}

func line(b *strings.Builder, cells ...string) {
	b.WriteString("| " + strings.Join(cells, " | ") + " |\n")
}

// cell returns text without characters that would end its cell.
func cell(text string) string {
	return strings.Join(strings.Fields(strings.ReplaceAll(text, "|", "/")), " ")
}
