// Package bench measures the trainer on this machine's CPU: whole training steps of three reference
// models ([Models]) and matmuls ([Shapes]), compared with the peak of the core, which it measures
// in the same run. It also measures steps on a GPU ([OnGPU]).
//
// A step includes everything between two batches: the forward pass with the loss, the backward
// pass, the gradient norm, which the trainer computes in every step, clipping if the model uses it,
// and the update of all parameters. Weights, samples, and labels are the values that PyTorch
// generates from the same seed. So a PyTorch program that does the same work has the same loss,
// which shows that the work is equal. The first steps are not timed.
//
// Speed is in GFLOP/s, 1e9 floating-point operations per second, by the usual formula for the work
// (see [Model] and [Shape]), not by the operations executed. It is computed from the best time,
// like the peak, because other work on the machine disturbs the best time least. Rates per second
// are computed from the median.
//
// Steps on several ranks ([Bench.RankStep]) are also the same as in training: packages ddp and
// collective reduce the gradients, and a step ends with the loss over all ranks. [AllReduce] times
// single all-reduces, in host or GPU memory. [RunRanks] runs this program as ranks on this machine,
// and [Rank.Connect] connects them.
//
// On a GPU, steps run as in the trainer: they are captured as a CUDA graph, and the host reads the
// loss while the GPU computes the next step. A step's time is the time between two such losses. All
// steps use the same samples, which are already on the GPU.
//
// The package does not read data or save anything. It does not run other programs for comparison;
// "make bench" does.
package bench

import (
	"context"
	"slices"
	"time"

	"github.com/ddpbatch/ddpbatch/trainer/cpu"
	"github.com/ddpbatch/ddpbatch/trainer/device"
	"github.com/ddpbatch/ddpbatch/trainer/gemm"
	"github.com/ddpbatch/ddpbatch/trainer/metrics"
)

// Result is the result of one measurement.
type Result struct {
	Kind      string `json:"bench"` // "step" or "gemm"
	Model     string `json:"model,omitempty"`
	Shape     string `json:"shape"`
	Precision string `json:"precision"` // "fp32" or "bf16"
	Device    string `json:"device"`
	Threads   int    `json:"threads"`
	Runs      int    `json:"runs"` // number of timed runs

	Median float64 `json:"median_s"` // seconds
	Best   float64 `json:"best_s"`
	GFLOP  float64 `json:"gflop"`  // per run
	GFLOPS float64 `json:"gflops"` // GFLOP/s, from Best; on a GPU from Median
	// Peak is the peak GFLOP/s of as many cores as threads, and Share is GFLOPS as a fraction of
	// it. Both are 0 if the peak is unknown.
	Peak  float64 `json:"peak_gflops,omitempty"`
	Share float64 `json:"share_of_peak,omitempty"`

	// The following fields are for steps only.
	Unit      string          `json:"unit,omitempty"` // "samples" or "tokens"
	PerSecond float64         `json:"per_s,omitempty"`
	Params    int             `json:"params,omitempty"`
	FirstLoss *metrics.Number `json:"first_loss,omitempty"`
	Loss      *metrics.Number `json:"loss,omitempty"` // of the last step
	// The following fields are for steps on several ranks only. PerSecond, GFLOP, and Peak are
	// totals over all ranks. Communication is the time of a step's collectives on this rank, including
	// the wait for other ranks. Hidden is the fraction of it, 0 to 1, that overlaps computation.
	Ranks         int     `json:"ranks,omitempty"`
	Reduce        string  `json:"reduce,omitempty"` // precision of the gradient reduction: "fp32" or "bf16"
	Communication float64 `json:"comm_s,omitempty"` // seconds
	Hidden        float64 `json:"comm_hidden,omitempty"`
	Transport     string  `json:"transport,omitempty"`

	// DeviceMemory is the GPU memory that the training run uses at its end, in bytes, including
	// the memory of libraries; 0 without a GPU.
	DeviceMemory int64 `json:"device_memory,omitempty"`
	// PeakRSS is the process's peak resident memory since the measurement began, in bytes; 0 if the
	// system does not report it.
	PeakRSS int64 `json:"peak_rss,omitempty"`
}

// Bench runs measurements on the CPU or on a GPU. Each measurement has its own device, so that the
// memory of the previous one is free.
type Bench struct {
	threads int
	gpu     func() (device.Device, error) // opens the GPU
	probe   *gemm.Workspace
	peaks   map[device.Precision]float64 // of one core, best value so far
}

// New returns a bench that uses this number of threads, at least 1.
func New(threads int) *Bench {
	return &Bench{threads: threads, probe: gemm.NewWorkspace(1), peaks: map[device.Precision]float64{}}
}

// OnGPU returns a bench for steps on a GPU, which open opens. Its peak is unknown. The device is
// closed after its measurement.
func OnGPU(open func() (device.Device, error)) *Bench { return &Bench{threads: 1, gpu: open} }

func (b *Bench) newDevice() device.Device { return cpu.New(b.threads) }

// measurePeak measures the peak of a core again and stores the best value so far.
func (b *Bench) measurePeak(p device.Precision) {
	const duration = 20 * time.Millisecond
	found := 0.0
	if p == device.BF16 {
		found = b.probe.PeakBFloat16(duration)
	} else {
		found = b.probe.Peak(duration)
	}
	b.peaks[p] = max(b.peaks[p], found)
}

// rate sets the fields that depend on the times. seconds has the time of each run, at least one.
func (b *Bench) rate(r Result, d device.Device, p device.Precision, seconds []float64, flop float64) Result {
	r.Precision, r.Device, r.Threads, r.Runs = precisionName(p), d.Name(), b.threads, len(seconds)
	r.Median, r.Best, r.GFLOP = Median(seconds), slices.Min(seconds), flop/1e9
	r.Peak = b.peaks[p] * float64(b.threads)
	r.GFLOPS = r.GFLOP / r.Best
	if r.Peak > 0 {
		r.Share = r.GFLOPS / r.Peak
	}
	return r
}

// timed returns the duration of f in seconds.
func timed(f func()) float64 {
	start := time.Now()
	f()
	return time.Since(start).Seconds()
}

// repeat calls f the given number of times, unless the context ends.
func repeat(ctx context.Context, times int, f func()) error {
	for range times {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		f()
	}
	return nil
}

// Median returns the median of v. It panics if v is empty.
func Median(v []float64) float64 {
	sorted := slices.Sorted(slices.Values(v))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// precisions maps names to precisions.
var precisions = map[string]device.Precision{"fp32": device.FP32, "bf16": device.BF16}

// Precision returns the precision with the given name, "fp32" or "bf16".
func Precision(name string) (device.Precision, bool) {
	p, ok := precisions[name]
	return p, ok
}

func precisionName(p device.Precision) string {
	if p == device.BF16 {
		return "bf16"
	}
	return "fp32"
}
