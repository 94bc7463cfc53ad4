//go:build linux

package trainer

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/trainer/checkpointing"
	"github.com/ddpbatch/ddpbatch/trainer/collective"
)

// BenchmarkStallOfASave measures how long training waits for a save of 240 MB (a model of 80 MB
// with AdamW), asynchronous and synchronous. It alternates between the two and reports medians.
func BenchmarkStallOfASave(b *testing.B) {
	j, err := jobs.Parse("job.toml", fmt.Appendf(nil, wide+"async = true\n", jobs.StrategyDDP, 8))
	if err != nil {
		b.Fatal(err)
	}
	r := newRun(Options{Job: j, Run: "run", Checkpoints: b.TempDir(), Comm: collective.SingleRank{}, Observe: func(Event) {}})
	if err := r.build(b.Context()); err != nil {
		b.Fatal(err)
	}
	saver, step := r.loop.saver, int64(0)
	if err := saver.State.Scatter(b.Context(), checkpointing.Origin{}, false, r.newWeights); err != nil {
		b.Fatal(err)
	}
	var waited, async []float64
	timed := func(save func(context.Context, int64) error) float64 {
		step++
		r.loop.pos.Step = step
		began := time.Now()
		if err := save(b.Context(), step); err != nil {
			b.Fatal(err)
		}
		return time.Since(began).Seconds()
	}
	for b.Loop() {
		waited = append(waited, timed(saver.Save))
		async = append(async, timed(saver.SavePeriodic))
		if err := saver.Wait(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	median := func(v []float64) float64 {
		slices.Sort(v)
		return v[len(v)/2]
	}
	b.ReportMetric(1e3*median(waited), "ms-waited")
	b.ReportMetric(1e3*median(async), "ms-behind")
	b.ReportMetric(100*median(async)/median(waited), "%-behind")
	b.ReportMetric(1e3*async[0], "ms-behind-best")
}
