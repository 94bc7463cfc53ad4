package main

import (
	"fmt"
	"math"
	"time"

	"github.com/ddpbatch/ddpbatch/trainer"
	"github.com/ddpbatch/ddpbatch/trainer/metrics"
	"github.com/ddpbatch/ddpbatch/trainer/rendezvous"
)

// observer shows and keeps what the trainer reports: every rank tells its log
// and the launcher, rank 0 also the terminal and metrics.jsonl.
type observer struct {
	r        *rank
	progress trainer.Progress // the trainer keeps it up to date
	metrics  *metrics.Log
	err      error // the first failure to keep the figures
}

func newObserver(r *rank, s *rendezvous.Session) *observer {
	o := &observer{r: r}
	s.Report(func() rendezvous.Progress {
		step, phase, done := o.progress.Now()
		return rendezvous.Progress{Step: step, Phase: phase, Done: done}
	})
	return o
}

func (o *observer) event(e trainer.Event) {
	o.r.log.info(string(e.Kind), "step", e.Step, "epoch", e.Epoch, "text", e.String())
	if o.r.place.Rank != 0 {
		return
	}
	fmt.Fprintln(o.r.Stdout, e)
	if err := o.keep(e); err != nil && o.err == nil {
		o.err = err
		o.r.say("WARNING: " + err.Error())
	}
}

// keep writes the event to metrics.jsonl.
func (o *observer) keep(e trainer.Event) error {
	if e.Kind == trainer.Started {
		var err error
		o.metrics, err = metrics.Open(o.r.dir.Metrics(), e.Step)
		return err
	}
	if o.metrics == nil {
		return nil
	}
	m := metrics.Record{Kind: string(e.Kind), Step: e.Step, Epoch: e.Epoch, Time: time.Now().UTC()}
	switch e.Kind {
	case trainer.Trained:
		m.Loss, m.LR, m.SamplesPerSecond = metrics.Of(e.Loss), metrics.Of(e.LR), metrics.Of(e.SamplesPerSecond)
		if e.TokensPerSecond > 0 {
			m.TokensPerSecond = metrics.Of(e.TokensPerSecond)
		}
		if c := e.Communication; c != nil {
			m.CommMillis, m.CommHidden = metrics.Of(c.Busy.Seconds()*1e3), metrics.Of(c.Hidden)
			m.SlowestRank, m.SlowestRatio = &c.Slowest, metrics.Of(c.Ratio)
		}
	case trainer.Evaluated:
		m.Loss = metrics.Of(e.Loss)
		if !math.IsNaN(e.Accuracy) {
			m.Accuracy = metrics.Of(e.Accuracy)
		}
	case trainer.Skipped:
	default:
		return nil
	}
	return o.metrics.Write(m)
}

func (o *observer) close() {
	if o.metrics != nil {
		o.metrics.Close()
	}
}
