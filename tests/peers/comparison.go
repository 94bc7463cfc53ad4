package main

import (
	"fmt"
	"math"

	"github.com/ddpbatch/ddpbatch/trainer/bench"
	"github.com/ddpbatch/ddpbatch/trainer/metrics"
)

// comparison holds the results of all rounds.
type comparison struct {
	Date    string  `json:"date"`
	Machine machine `json:"machine"`
	Rounds  int     `json:"rounds"`
	Rows    []*row  `json:"rows"`
	// Others has the earlier results of Rows on other kinds of CPUs.
	Others []*comparison `json:"other_cpus,omitempty"`
	// Parallel is measured separately, on more than one core.
	Parallel *parallel `json:"ddp,omitempty"`
	// Collectives is measured separately, with other programs.
	Collectives *collectives `json:"collectives,omitempty"`
	// TCP is measured separately, because it needs root.
	TCP *transfers `json:"tcp,omitempty"`
}

// row is one workload: a step of a model in a precision, or a matrix multiplication.
type row struct {
	Kind      string `json:"bench"`
	Model     string `json:"model"`
	Shape     string `json:"shape"`
	Precision string `json:"precision"`
	Device    string `json:"device"`
	Unit      string `json:"unit,omitempty"`
	Ours      side   `json:"ddpbatch"`
	Theirs    side   `json:"pytorch"` // in eager mode
	// Compiled is PyTorch with torch.compile, or nil.
	Compiled *side `json:"pytorch_compiled,omitempty"`
}

// side holds the results of one side in each round.
type side struct {
	Median    []float64      `json:"median_s"`
	GFLOPS    []float64      `json:"gflops,omitempty"`
	Peak      []float64      `json:"peak_gflops,omitempty"`
	Share     []float64      `json:"share_of_peak,omitempty"`
	PerSecond []float64      `json:"per_s,omitempty"`
	PeakRSS   []float64      `json:"peak_rss,omitempty"`
	FirstLoss metrics.Number `json:"first_loss,omitempty"`
	Loss      metrics.Number `json:"loss,omitempty"`
}

// checkSameWork returns an error if the results are of different workloads.
func checkSameWork(ours, theirs bench.Result) error {
	if ours.Kind != theirs.Kind || ours.Precision != theirs.Precision || ours.Runs < 1 || theirs.Runs < 1 ||
		ours.Threads != 1 || theirs.Threads != 1 || ours.Params != theirs.Params ||
		ours.Kind == "step" && ours.Model != theirs.Model || ours.Kind == "gemm" && ours.Shape != theirs.Shape {
		return fmt.Errorf("not the same work: %+v and %+v", ours, theirs)
	}
	return nil
}

// addCompiled adds PyTorch's result with torch.compile to a round that add has added.
func (c *comparison) addCompiled(ours, theirs bench.Result) error {
	if err := checkSameWork(ours, theirs); err != nil {
		return err
	}
	r := c.find(ours.Kind, ours.Model, ours.Shape, ours.Precision)
	if r.Compiled == nil {
		r.Compiled = &side{}
	}
	r.Compiled.add(theirs)
	return nil
}

// add adds a round of one workload. It rejects results of a different workload.
func (c *comparison) add(ours, theirs bench.Result) error {
	if err := checkSameWork(ours, theirs); err != nil {
		return err
	}
	r := c.find(ours.Kind, ours.Model, ours.Shape, ours.Precision)
	if r == nil {
		r = &row{Kind: ours.Kind, Model: ours.Model, Shape: ours.Shape, Precision: ours.Precision, Device: ours.Device, Unit: ours.Unit}
		c.Rows = append(c.Rows, r)
	}
	r.Ours.add(ours)
	r.Theirs.add(theirs)
	return nil
}

func (s *side) add(r bench.Result) {
	s.Median = append(s.Median, r.Median)
	for _, v := range []struct {
		list  *[]float64
		value float64
	}{{&s.GFLOPS, r.GFLOPS}, {&s.Peak, r.Peak}, {&s.Share, r.Share}, {&s.PerSecond, r.PerSecond}, {&s.PeakRSS, float64(r.PeakRSS)}} {
		if v.value > 0 {
			*v.list = append(*v.list, v.value)
		}
	}
	if r.FirstLoss != nil && r.Loss != nil {
		s.FirstLoss, s.Loss = *r.FirstLoss, *r.Loss
	}
}

// device returns the names of the instruction sets in use.
func (c *comparison) device() string {
	if len(c.Rows) == 0 {
		return "-"
	}
	return c.Rows[0].Device
}

// isSameCPU reports whether both were measured on the same kind of CPU.
func (c *comparison) isSameCPU(d *comparison) bool {
	return c.Machine.CPU == d.Machine.CPU && c.device() == d.device()
}

// retain adds the results of before on other kinds of CPUs to Others.
func (c *comparison) retain(before comparison) {
	for _, d := range append(before.Others, &comparison{Date: before.Date, Machine: before.Machine, Rounds: before.Rounds, Rows: before.Rows}) {
		if len(d.Rows) > 0 && !c.isSameCPU(d) {
			c.Others = append(c.Others, d)
		}
	}
}

// find returns a row, or nil.
func (c *comparison) find(kind, model, shape, precision string) *row {
	for _, r := range c.Rows {
		if r.Kind == kind && r.Model == model && r.Shape == shape && r.Precision == precision {
			return r
		}
	}
	return nil
}

// middle returns the median of the rounds, or 0 without rounds.
func middle(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	return bench.Median(v)
}

// crippled returns the reason why this PyTorch is not comparable, or nothing.
func (c *comparison) crippled() string {
	r := c.find("gemm", "square", "1024x1024x1024/NN", "fp32")
	if r == nil {
		return "its products were not measured"
	}
	speed, peak := middle(r.Theirs.GFLOPS), middle(r.Ours.Peak)
	if speed >= peak/2 {
		return ""
	}
	return fmt.Sprintf("its 1024 x 1024 matrix multiplication reaches %.0f GFLOP/s, less than half of this core's %.0f GFLOP/s; its BLAS is %s", speed, peak, c.Machine.BLAS)
}

// otherWork returns the reason why a step differs between the two sides, or nothing. bfloat16, a
// different order of sums, and a different form of GELU change a loss by less than the tolerance
// within the steps of a round.
func (r *row) otherWork() string {
	const tolerance = 5e-3
	losses := [][2]metrics.Number{{r.Ours.FirstLoss, r.Theirs.FirstLoss}, {r.Ours.Loss, r.Theirs.Loss}}
	if r.Compiled != nil {
		losses = append(losses, [2]metrics.Number{r.Ours.FirstLoss, r.Compiled.FirstLoss}, [2]metrics.Number{r.Ours.Loss, r.Compiled.Loss})
	}
	for _, l := range losses {
		ours, theirs := float64(l[0]), float64(l[1])
		if !(math.Abs(ours-theirs) <= tolerance*math.Abs(theirs)) || math.IsInf(theirs, 0) {
			return fmt.Sprintf("the losses are %.4f and %.4f", ours, theirs)
		}
	}
	return ""
}
