package main

import (
	"fmt"
	"strings"

	"github.com/ddpbatch/ddpbatch/trainer/bench"
)

// render is docs/bench.md.
func (c *comparison) render() string {
	var b strings.Builder
	m := c.Machine
	fmt.Fprintf(&b, `# Speed

<!-- Written by make bench from tests/peers; changes made here will be lost. -->

The built-in trainer beside PyTorch on the same work: one thread each, on the same core, in turns, in %s. A time is the median of the rounds' medians.

    make bench    # measures again and writes this page: some minutes on a quiet machine

| | |
|---|---|
| date | %s |
| processor | %s, %d cores, %.0f GiB |
| ddpbatch | %s; %s |
| PyTorch | %s; BLAS: %s |

`, rounds(c.Rounds), c.Date, cell(m.CPU), m.Cores, float64(m.Memory)/(1<<30), cell(strings.TrimPrefix(m.Program, "ddpbatch ")), cell(c.device()), cell(m.Torch), cell(m.BLAS))
	why := c.crippled()
	if why != "" {
		fmt.Fprintf(&b, "**Nothing is compared with this PyTorch: %s.** `tests/setup.sh` installs OpenBLAS.\n\n", cell(why))
	}
	c.renderSteps(&b, why == "")
	c.renderShares(&b)
	c.renderProducts(&b, why == "")
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

// device names the instructions in use.
func (c *comparison) device() string {
	if len(c.Rows) == 0 {
		return "-"
	}
	return c.Rows[0].Device
}

// renderSteps writes the table of training steps.
func (c *comparison) renderSteps(b *strings.Builder, comparable bool) {
	b.WriteString("## Training steps\nForward, backward, update, and in ddpbatch the norm of the gradients, which in PyTorch is taken only where it clips (gpt). The ratio is ddpbatch's number over PyTorch's.\n\n")
	header(b, "model", "in", "", "ddpbatch", "PyTorch", "ratio", "target", "met")
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

// compared are the cells of both sides, their ratio, the target and whether it is met.
func compared(r *row, m measure, comparable bool) []string {
	ours, theirs := middle(m.of(&r.Ours)), middle(m.of(&r.Theirs))
	known := comparable && ours > 0 && theirs > 0
	ratio := "not compared"
	if known {
		ratio = times(ours / theirs)
	}
	return append([]string{m.format(ours), m.format(theirs), ratio}, m.target.cells(ours/theirs, known, times)...)
}

// renderShares writes how near steps come to the limit, and what shows that both
// sides did the same.
func (c *comparison) renderShares(b *strings.Builder) {
	b.WriteString("## How near the limit\nThe limit is what the core multiplies and adds when it never waits, measured in the same run. The losses are those of the first and the last step of a round.\n\n")
	header(b, "model", "in", "GFLOP/s", "limit", "share", "target", "met", "losses of ddpbatch", "losses of PyTorch")
	for _, r := range c.Rows {
		if r.Kind == "step" {
			cells := []string{r.Model, r.Precision, whole(middle(r.Ours.GFLOPS)), whole(middle(r.Ours.Peak))}
			cells = append(append(cells, r.share()...), r.Ours.losses(), r.Theirs.losses())
			line(b, cells...)
		}
	}
	b.WriteString("\n")
}

// share are the cells of the part of the limit that a row reaches.
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

// renderProducts writes the table of products.
func (c *comparison) renderProducts(b *strings.Builder, comparable bool) {
	b.WriteString("## Products of matrices\nGFLOP/s in float32 by the best time of a round, PyTorch's by its BLAS. MxNxK is an M x K matrix times a K x N one; a T says that the first or the second is transposed in memory. Ten columns fill 10 of the 16 lanes of a register, so that 62% is the most that such a product can reach.\n\n")
	header(b, "of", "shape", "ddpbatch", "PyTorch", "ratio", "target", "met", "share of limit", "target", "met")
	for _, r := range c.Rows {
		if r.Kind == "gemm" {
			speed := measure{"GFLOP/s", func(s *side) []float64 { return s.GFLOPS }, whole, r.speedTarget()}
			cells := append([]string{r.Model, r.Shape}, compared(r, speed, comparable)...)
			line(b, append(cells, r.share()...)...)
		}
	}
	b.WriteString("\n")
}

// notes end the page.
var notes = fmt.Sprintf(`## What was measured
- The models: %s. The MLP is trained by SGD with momentum, the GPTs by AdamW, gpt with its gradients clipped to a norm of 1. Both sides start from the same weights and samples, drawn from the same seed; the first %d steps of a process are left out.
- FLOP of a step: of the MLP, its products; of a GPT, 6N + 12*L*C*T for each token, N being all parameters but the positions' (Chowdhery et al. 2022, appendix B).
- bf16 has products of bfloat16 with float32 sums: AVX512_BF16 here, autocast in PyTorch.
- GELU is GPT-2's, by tanh; PyTorch computes the exact one, which is faster there.
- Peak memory is the most that the process ever held, as Linux counts it.
- PyTorch runs without variables that steer OpenBLAS, OpenMP or oneDNN but OMP_NUM_THREADS=1.
- `+"`ddpbatch bench step` and `ddpbatch bench gemm`"+` print our side alone, with `+"`--json`"+` for programs. The figures of each round are in [tests/peers/testdata/bench.json](../tests/peers/testdata/bench.json).
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

// cell is text that stays within its cell.
func cell(text string) string {
	return strings.Join(strings.Fields(strings.ReplaceAll(text, "|", "/")), " ")
}
