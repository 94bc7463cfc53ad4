//go:build cuda

package engine

import (
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/trainer/cuda/blaslt"
	"github.com/ddpbatch/ddpbatch/trainer/cuda/driver"
)

// tuning times the algorithms of matrix multiplications.
type tuning struct {
	start, end driver.Event
	// seconds returns the time of a run.
	seconds func(run func() error) (float64, error)
}

// minGain is the part of the heuristic's time that a different algorithm must save. Smaller differences
// are often noise.
const minGain = 0.02

// Algorithms returns the recorded algorithms in use, with the GPU and the version of cuBLASLt.
func (d *Device) Algorithms() Algorithms {
	a := d.products.algorithms
	a.Products = maps.Clone(a.Products)
	return a
}

// UseAlgorithms makes matrix multiplications use recorded algorithms. Others use the algorithm that
// cuBLASLt's heuristic prefers. The algorithms must match the device.
func (d *Device) UseAlgorithms(a Algorithms) {
	if !a.Matches(d.products.algorithms) {
		panic(fmt.Sprintf("engine: algorithms for %v on %v", a.Platform, d.products.algorithms.Platform))
	}
	defer d.enter("use_algorithms").Leave()
	d.forgetPlans()
	d.products.algorithms.Products = maps.Clone(a.Products)
}

// StartTuning makes each matrix multiplication time its algorithms the first time that it runs, and
// record the fastest. It runs several times on its operands: if it accumulates, its result is wrong.
// Multiplications with a recorded algorithm are not timed again.
func (d *Device) StartTuning() {
	defer d.enter("tune").Leave()
	d.forgetPlans()
	t := &tuning{}
	t.seconds = func(run func() error) (float64, error) { return d.timeRuns(t, run) }
	var err error
	if t.start, err = driver.NewEvent(true); err == nil {
		t.end, err = driver.NewEvent(true)
	}
	d.check(err)
	d.products.tuning = t
	if d.products.algorithms.Products == nil {
		d.products.algorithms.Products = map[string]TimedAlgorithm{}
	}
}

// StopTuning ends StartTuning. Multiplications use the recorded algorithms from now on.
func (d *Device) StopTuning() {
	defer d.enter("tune").Leave()
	d.forgetPlans()
	d.check(d.products.stopTuning())
}

func (p *products) stopTuning() error {
	t := p.tuning
	if t == nil {
		return nil
	}
	p.tuning = nil
	return errors.Join(t.start.Close(), t.end.Close())
}

// forgetPlans makes each multiplication select its algorithm again. It must not be called in a group.
func (d *Device) forgetPlans() {
	if d.group.open {
		panic("engine: plans change within a group")
	}
	d.check(errors.Join(d.stream.Synchronize(), d.group.close())) // graphs contain the algorithms
	clear(d.products.plans)
}

// algorithmsOf returns the number of algorithms that a plan of the product needs.
func (p *products) algorithmsOf(problem blaslt.Product) int {
	if _, recorded := p.algorithms.Products[problem.String()]; recorded || p.tuning != nil {
		return blaslt.MaxAlgorithms
	}
	return 1
}

// selectRecorded selects the recorded algorithm of a plan.
func (p *products) selectRecorded(plan *blaslt.Plan) error {
	recorded, ok := p.algorithms.Products[plan.Product().String()]
	if !ok {
		return nil
	}
	i := slices.IndexFunc(plan.Algorithms(), func(a blaslt.Algorithm) bool { return hex.EncodeToString(a[:]) == recorded.Algorithm })
	if i < 0 {
		return hints.Errorf("remove algorithms.json from the run directory, so that the algorithms are timed again",
			"cuBLASLt %d does not offer the algorithm that was recorded for the %v", p.algorithms.CUBLASLt, plan.Product())
	}
	plan.Select(i)
	return nil
}

// tune times the algorithms of a multiplication, and selects and records the fastest, unless one is
// recorded.
func (d *Device) tune(c *call) error {
	p, name := &d.products, c.plan.Product().String()
	if _, ok := p.algorithms.Products[name]; ok {
		return nil
	}
	own := *c // c must not escape to the heap, because steps allocate nothing
	run := func() error { return d.multiply(&own) }
	var best TimedAlgorithm // DefaultTime is the time of the first usable algorithm
	fastest := -1
	list := c.plan.Algorithms()
	for i, algorithm := range list {
		c.plan.Select(i)
		seconds, err := p.tuning.seconds(run)
		var unusable blaslt.Status
		if errors.As(err, &unusable) {
			continue
		} else if err != nil {
			return err
		}
		if fastest < 0 {
			best.DefaultTime = seconds
		}
		if fastest < 0 || seconds < best.Seconds && seconds <= best.DefaultTime*(1-minGain) {
			best.Seconds, fastest = seconds, i
			best.Algorithm = hex.EncodeToString(algorithm[:])
		}
	}
	if fastest < 0 {
		c.plan.Select(0) // its error is reported
		return nil
	}
	best.NumAlgorithms = len(list)
	p.algorithms.Products[name] = best
	c.plan.Select(fastest)
	return nil
}

// timeRuns returns the time of a run on the GPU: the shortest mean of several series.
func (d *Device) timeRuns(t *tuning, run func() error) (seconds float64, err error) {
	const series, runs = 3, 5
	if err := run(); err != nil { // also loads the kernel
		return 0, err
	}
	for i := range series {
		if err := d.stream.Record(t.start); err != nil {
			return 0, err
		}
		for range runs {
			if err := run(); err != nil {
				return 0, err
			}
		}
		if err := errors.Join(d.stream.Record(t.end), t.end.Synchronize()); err != nil {
			return 0, err
		}
		took, err := t.end.Since(t.start)
		if err != nil {
			return 0, err
		}
		if mean := took.Seconds() / runs; i == 0 || mean < seconds {
			seconds = mean
		}
	}
	return seconds, nil
}
