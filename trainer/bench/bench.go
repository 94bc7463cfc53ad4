// Package bench times what a trainer does on this machine's processor: whole
// training steps of three reference models ([Models]), and products of matrices
// ([Shapes]), beside the limit of the core that is measured in the same run; and
// the steps on a GPU ([OnGPU]).
//
// A step is everything between two batches: the forward pass with its loss, the
// backward pass, the norm of the gradients, which the trainer looks at in every step,
// clipping where the model has it, and the update of all parameters. Weights, samples
// and labels are drawn as PyTorch draws them from the same seed, so that a PyTorch
// program doing the same work has the same loss, which shows that it was the same
// work. The first steps are left out of the times.
//
// Speed is counted in GFLOP/s, 1e9 products and sums a second, by the usual formula
// of the work (see [Model] and [Shape]), never by what was really executed. It is of
// the best time, as the limit is, which a machine with other work on it disturbs
// least; rates are of the median.
//
// On several ranks ([Bench.RankStep]) gradients are added up by packages ddp and
// collective as in training, and a step ends with the loss of all ranks.
//
// On a GPU steps are asked for as the trainer does: as a group, which becomes a CUDA
// graph, with the loss learnt while the next step is computed. A step's time is that
// between two such losses. The samples of all steps are the same and on the GPU already.
//
// It does not read data, start ranks or save anything, and it compares with no other
// program: that is what "make bench" does.
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

// Result is what one measurement found.
type Result struct {
	Kind      string `json:"bench"` // "step" or "gemm"
	Model     string `json:"model,omitempty"`
	Shape     string `json:"shape"`
	Precision string `json:"precision"` // "fp32" or "bf16"
	Device    string `json:"device"`
	Threads   int    `json:"threads"`
	Runs      int    `json:"runs"` // that were timed

	Median float64 `json:"median_s"` // seconds
	Best   float64 `json:"best_s"`
	GFLOP  float64 `json:"gflop"`  // of one run
	GFLOPS float64 `json:"gflops"` // a second, by Best; on a GPU by Median
	// Peak is the limit of as many cores as threads, and Share the part of it that
	// GFLOPS is. They are 0 where the limit is not known.
	Peak  float64 `json:"peak_gflops,omitempty"`
	Share float64 `json:"share_of_peak,omitempty"`

	// Of steps only.
	Unit      string          `json:"unit,omitempty"` // "samples" or "tokens"
	PerSecond float64         `json:"per_s,omitempty"`
	Params    int             `json:"params,omitempty"`
	FirstLoss *metrics.Number `json:"first_loss,omitempty"`
	Loss      *metrics.Number `json:"loss,omitempty"` // of the last step
	// Of steps on several ranks only: PerSecond, GFLOP, and Peak are of all of them,
	// Communication is the time of a step's operations on rank 0, waiting for other
	// ranks included, and Hidden the part of it, 0 to 1, that passed during computation.
	Ranks         int     `json:"ranks,omitempty"`
	Reduce        string  `json:"reduce,omitempty"` // what gradients are added up in: "fp32" or "bf16"
	Communication float64 `json:"comm_s,omitempty"` // seconds
	Hidden        float64 `json:"comm_hidden,omitempty"`
	Transport     string  `json:"transport,omitempty"`

	// DeviceMemory is what the training has taken of a GPU's memory when it is over, in
	// bytes, libraries included; 0 elsewhere.
	DeviceMemory int64 `json:"device_memory,omitempty"`
	// PeakRSS is the most memory that the process has held since the measurement
	// began, in bytes; 0 where the system does not say.
	PeakRSS int64 `json:"peak_rss,omitempty"`
}

// Bench measures on the processor, or on a GPU. Each measurement has a device of its own,
// so that nothing keeps the memory of the one before.
type Bench struct {
	threads int
	gpu     func() (device.Device, error) // opens one
	probe   *gemm.Workspace
	peaks   map[device.Precision]float64 // of one core, the best so far
}

// New returns a bench that uses so many threads, at least 1.
func New(threads int) *Bench {
	return &Bench{threads: threads, probe: gemm.NewWorkspace(1), peaks: map[device.Precision]float64{}}
}

// OnGPU returns a bench for steps on a GPU that open opens, whose limit it does not know.
// A device that is an io.Closer is closed after its measurement.
func OnGPU(open func() (device.Device, error)) *Bench { return &Bench{threads: 1, gpu: open} }

func (b *Bench) newDevice() device.Device { return cpu.New(b.threads) }

// measurePeak looks for the limit of a core anew, and keeps the best that was found.
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

// rate adds what the times say; seconds are those of each run, at least one.
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

// timed is how long f takes, in seconds.
func timed(f func()) float64 {
	start := time.Now()
	f()
	return time.Since(start).Seconds()
}

// repeat has f called so many times, unless the context ends.
func repeat(ctx context.Context, times int, f func()) error {
	for range times {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		f()
	}
	return nil
}

// Median is the middle of some numbers, or the mean of the two there. It panics if
// there are none.
func Median(v []float64) float64 {
	sorted := slices.Sorted(slices.Values(v))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// precisions by name.
var precisions = map[string]device.Precision{"fp32": device.FP32, "bf16": device.BF16}

// Precision is the precision with a name, "fp32" or "bf16".
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
