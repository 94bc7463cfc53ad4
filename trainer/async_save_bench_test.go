//go:build linux

package trainer

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/trainer/collective"
)

// BenchmarkStallOfASave measures how long training waits for a save of 240 MB (a model of 80 MB
// with AdamW), asynchronous and synchronous. It alternates between the two and reports medians.
func BenchmarkStallOfASave(b *testing.B) {
	j, err := jobs.Parse("job.toml", fmt.Appendf(nil, wide+"async = true\n", jobs.StrategyDDP, 8))
	if err != nil {
		b.Fatal(err)
	}
	r := &run{Options: Options{Job: j, Run: "run", Checkpoints: b.TempDir(), Comm: collective.Alone{}, Observe: func(Event) {}, Progress: new(Progress)},
		train: j.Train, lastMetrics: map[string]float64{}, verified: map[int]bool{}}
	if err := r.build(b.Context()); err != nil {
		b.Fatal(err)
	}
	defer r.loader.Stop()
	if err := r.scatterState(b.Context(), origin{}, false); err != nil {
		b.Fatal(err)
	}
	var waited, behind []float64
	timed := func(save func() error) float64 {
		r.pos.Step++
		began := time.Now()
		if err := save(); err != nil {
			b.Fatal(err)
		}
		return time.Since(began).Seconds()
	}
	for b.Loop() {
		waited = append(waited, timed(func() error { return r.save(b.Context()) }))
		behind = append(behind, timed(func() error { return r.saveAsync(b.Context()) }))
		if err := r.waitAsyncSave(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	median := func(v []float64) float64 {
		slices.Sort(v)
		return v[len(v)/2]
	}
	b.ReportMetric(1e3*median(waited), "ms-waited")
	b.ReportMetric(1e3*median(behind), "ms-behind")
	b.ReportMetric(100*median(behind)/median(waited), "%-behind")
	b.ReportMetric(1e3*behind[0], "ms-behind-best")
}
