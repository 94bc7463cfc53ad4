package main

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/ddpbatch/ddpbatch/trainer/bench"
	"github.com/ddpbatch/ddpbatch/trainer/cuda"
	"github.com/ddpbatch/ddpbatch/trainer/cuda/library"
	"github.com/ddpbatch/ddpbatch/trainer/device"
)

type benchCmd struct {
	Step      benchStepCmd      `cmd:"" help:"Benchmark training steps of reference models."`
	Gemm      benchGemmCmd      `cmd:"" help:"Benchmark matrix multiplications (GEMM)."`
	AllReduce benchAllReduceCmd `cmd:"" name:"allreduce" help:"Benchmark all-reduce across processes."`
}

// benchFlags are the common flags of bench step and bench gemm.
type benchFlags struct {
	Precision []string `default:"fp32,bf16" enum:"fp32,bf16" placeholder:"NAME" help:"Precision: fp32 or bf16 (default: both)."`
	Threads   int      `default:"1" placeholder:"N" help:"Threads, one per core (default: ${default})."`
	JSON      bool     `help:"Print each result as a line of JSON, as soon as it is available."`
}

type benchStepCmd struct {
	Model  []string `default:"mlp,gpt,gpt2" enum:"mlp,gpt,gpt2" placeholder:"NAME" help:"Models, separated by commas (default: all)."`
	Device string   `default:"cpu" enum:"cpu,cuda" placeholder:"NAME" help:"Device: cpu, or cuda for the first visible GPU (default: ${default})."`
	Batch  int      `placeholder:"N" help:"Samples per step (default: depends on the model)."`
	Length int      `placeholder:"T" help:"Tokens per sequence (default: depends on the model)."`
	Steps  int      `placeholder:"K" help:"Number of timed steps (default: depends on the model)."`
	Ranks  int      `default:"1" placeholder:"N" help:"Ranks, all on this machine (default: ${default})."`
	TCP    bool     `name:"tcp" help:"Use TCP between the ranks, as between nodes, not shared memory."`
	Reduce string   `default:"fp32" enum:"fp32,bf16" placeholder:"NAME" help:"Data type of the gradient all-reduce: fp32 or bf16 (default: ${default})."`
	benchFlags
}

func (c *benchStepCmd) Help() string {
	text := "Models (L: layers, C: width, H: heads, V: vocabulary, T: sequence length, B: batch):\n\n"
	for _, m := range bench.Models() {
		text += fmt.Sprintf("    %-5s %s, %d steps\n", m.Name(), m.Shape(), m.Steps())
	}
	return text + `
The model gpt2 has 124 million parameters and needs 3 GiB of memory.

A step consists of forward, backward, gradient clipping (gpt only), and the
optimizer update. The first ` + fmt.Sprint(bench.WarmUp) + ` steps are not timed. GFLOP/S uses the best time; for a GPT,
it counts 6N + 12*L*C*T operations per token. OF PEAK is the fraction of the peak
rate of the cores, measured in the same run. Pin the process to as many cores as it
has threads: taskset -c 0 ddpbatch bench step.

With --device cuda, the host starts each step before the previous step has finished,
as in training. MEDIAN is the median interval between the ends of steps, without
the first 5 intervals. GFLOP/S uses MEDIAN. The samples are already in GPU memory.
MEMORY is the GPU memory of the training run. OF PEAK is empty, because the peak
rate of the GPU is unknown.

With --ranks, each rank has different samples, and the ranks all-reduce their
gradients as in training. RATE and GFLOP/S are totals of all ranks. COMM is the
communication time per step, and HIDDEN is the fraction of it that overlaps with
computation.`
}

type benchGemmCmd struct {
	Shape []string      `placeholder:"SHAPE" help:"MxNxK or MxNxK/LAYOUT, where LAYOUT is NN, NT, or TN (default: 1024x1024x1024 and the shapes of mlp and gpt)."`
	Time  time.Duration `default:"100ms" placeholder:"T" help:"Duration of each measurement (default: ${default})."`
	benchFlags
}

func (c *benchGemmCmd) Help() string {
	return `Multiplies an M x K matrix by a K x N matrix. In the layout, T marks an operand that
is transposed in memory. GFLOP/S uses the best time. OF PEAK is the fraction of the
peak rate of the cores, measured in the same run.`
}

func (c *benchStepCmd) Run(ctx context.Context, p *program) error {
	if c.Steps < 0 {
		return usage("--steps must not be negative")
	}
	models, err := c.models()
	if err != nil {
		return err
	}
	b := bench.New(c.Threads)
	var gpu device.Device // of the newest step
	switch onGPU := c.Device == "cuda"; {
	case onGPU && (c.Ranks != 1 || c.TCP || c.Threads != 1):
		return usage("--ranks, --tcp, and --threads are not valid with --device cuda, which uses a single GPU")
	case onGPU:
		b = bench.OnGPU(func() (device.Device, error) {
			var err error
			gpu, err = p.openGPU()
			return gpu, err
		})
	case c.Ranks != 1 || c.TCP:
		return c.runRanks(ctx, p, models)
	}
	var works []benchWork
	for _, m := range models {
		works = append(works, func(ctx context.Context, b *bench.Bench, in device.Precision) (bench.Result, error) {
			r, err := b.Step(ctx, m, in, c.steps(m))
			if gpu != nil {
				if fallback := gpu.Accelerator().Fallback(); fallback != nil {
					p.note("warning: %v", fallback)
				}
			}
			return r, err
		})
	}
	return c.run(ctx, p, b, works, append(slices.Clone(stepHeader), "MEMORY"), func(r bench.Result) []string {
		return append(stepCells(r), mebibytes(max(r.PeakRSS, r.DeviceMemory))) // at most one of them is not 0
	})
}

// models returns the selected models with the given batch size and length.
func (c *benchStepCmd) models() (out []bench.Model, err error) {
	if c.Batch < 0 || c.Length < 0 {
		return nil, usage("--batch and --length must not be negative")
	}
	for _, m := range bench.Models() {
		if !slices.Contains(c.Model, m.Name()) {
			continue
		}
		if m, err = bench.Resize(m, c.Batch, c.Length); err != nil {
			return nil, usage("--length: " + err.Error())
		}
		out = append(out, m)
	}
	return out, nil
}

// steps returns the number of timed steps for a model. A GPU runs more steps in the same time.
func (c *benchStepCmd) steps(m bench.Model) int {
	const onGPU = 50
	switch {
	case c.Steps > 0:
		return c.Steps
	case c.Device == "cuda":
		return max(m.Steps(), onGPU)
	}
	return m.Steps()
}

// openGPU opens the first visible GPU.
func (p *program) openGPU() (device.Device, error) {
	attention, err := p.attention()
	if err != nil {
		return nil, err
	}
	disabled, err := p.disabledFusions()
	if err != nil {
		return nil, err
	}
	d, err := cuda.Open(0, cuda.Options{Disabled: disabled, Attention: attention, Libraries: func(names ...string) []string { return library.Find(p.lookup, names...) }})
	if err != nil {
		return nil, err // not a nil *cuda.GPU
	}
	return d, nil
}

// stepHeader and stepCells are the common columns of all tables of steps.
var stepHeader = []string{"MODEL", "IN", "MEDIAN", "BEST", "RATE", "GFLOP/S", "OF PEAK", "LOSS"}

func stepCells(r bench.Result) []string {
	return []string{
		r.Model, r.Precision, milliseconds(r.Median), milliseconds(r.Best), fmt.Sprintf("%.0f %s/s", r.PerSecond, r.Unit),
		fmt.Sprintf("%.1f", r.GFLOPS), ofPeak(r), fmt.Sprintf("%.4f", float64(*r.Loss)),
	}
}

func (c *benchGemmCmd) Run(ctx context.Context, p *program) error {
	if c.Time <= 0 {
		return usage("--time must be greater than 0")
	}
	shapes := bench.Shapes()
	if len(c.Shape) > 0 {
		shapes = nil
	}
	for _, text := range c.Shape {
		s, err := bench.ParseShape(text)
		if err != nil {
			return usage("--shape: " + err.Error())
		}
		shapes = append(shapes, s)
	}
	var works []benchWork
	for _, s := range shapes {
		works = append(works, func(ctx context.Context, b *bench.Bench, in device.Precision) (bench.Result, error) {
			return b.Gemm(ctx, s, in, c.Time)
		})
	}
	header := []string{"MODEL", "SHAPE", "IN", "MEDIAN", "BEST", "GFLOP/S", "OF PEAK"}
	return c.run(ctx, p, bench.New(c.Threads), works, header, func(r bench.Result) []string {
		return []string{
			r.Model, r.Shape, r.Precision, milliseconds(r.Median), milliseconds(r.Best), fmt.Sprintf("%.1f", r.GFLOPS), ofPeak(r),
		}
	})
}

func (c *benchFlags) checkThreads() error {
	cores := runtime.GOMAXPROCS(0) // respects the CPU affinity mask and cgroup limits of the process
	if c.Threads < 1 || c.Threads > cores {
		return usage(fmt.Sprintf("--threads must be from 1 to %d, the number of cores that this process may use", cores))
	}
	return nil
}

// A benchWork runs one measurement.
type benchWork func(context.Context, *bench.Bench, device.Precision) (bench.Result, error)

// run runs each measurement in each precision and prints its result.
func (c *benchFlags) run(ctx context.Context, p *program, b *bench.Bench, works []benchWork, header []string, cells func(bench.Result) []string) error {
	if err := c.checkThreads(); err != nil {
		return err
	}
	ctx, stop := interruptible(ctx)
	defer stop()
	var rows [][]string
	for _, work := range works {
		for _, name := range c.Precision {
			in, _ := bench.Precision(name) // kong has validated the name
			r, err := work(ctx, b, in)
			if err != nil {
				return err
			}
			if !c.JSON {
				rows = append(rows, cells(r))
			} else if err := p.printJSONLine(r); err != nil {
				return err
			}
		}
	}
	if !c.JSON {
		p.table(header, rows)
	}
	return nil
}

func milliseconds(seconds float64) string { return fmt.Sprintf("%.4g ms", seconds*1e3) }

// ofPeak formats the share of the peak rate. It returns "" if the peak is unknown.
func ofPeak(r bench.Result) string {
	if r.Peak == 0 {
		return ""
	}
	return fmt.Sprintf("%.1f%%", 100*r.Share)
}

// mebibytes formats a size in MiB. It returns "" if the size is unknown.
func mebibytes(size int64) string {
	if size == 0 {
		return ""
	}
	return fmt.Sprintf("%d MiB", size>>20)
}
