package main

import (
	"fmt"

	"github.com/ddpbatch/ddpbatch/trainer"
	"github.com/ddpbatch/ddpbatch/trainer/rendezvous"
)

// observer shows and keeps what the trainer reports: every rank tells its log
// and the launcher, rank 0 also the terminal and the files of figures.
type observer struct {
	r        *rank
	progress trainer.Progress // the trainer keeps it up to date
	kept     recorder
	shown    exporter
	err      error // the first failure to keep the figures
}

func newObserver(r *rank, s *rendezvous.Session) *observer {
	o := &observer{r: r, kept: recorder{dir: r.dir, host: r.place.Host},
		shown: newExporter(string(r.job.Log.Prometheus), string(r.job.Name), r.record.Run, r.place.JobID, r.place.Host)}
	s.Report(func() rendezvous.Progress {
		step, phase, done := o.progress.Now()
		return rendezvous.Progress{Step: step, Phase: phase, Done: done}
	})
	return o
}

func (o *observer) event(e trainer.Event) {
	o.r.log.info(string(e.Kind), "step", e.Step, "epoch", e.Epoch, "text", e.String())
	// Without a GPU and without asking for one, processors are what one expects.
	if o.r.place.Rank != 0 || e.Kind == trainer.Processor && !e.Asked {
		return
	}
	fmt.Fprintln(o.r.Stdout, e)
	if err := o.shown.keep(e); err != nil {
		// Who watches misses it; the training does not.
		o.r.say("WARNING: " + err.Error() + "; nothing more is written there")
		o.shown = exporter{}
	}
	if err := o.kept.keep(e); err != nil && o.err == nil {
		o.err = err
		o.r.say("WARNING: " + err.Error())
	}
}

func (o *observer) close() {
	if err := o.shown.close(); err != nil {
		o.r.say("WARNING: " + err.Error())
	}
	if err := o.kept.close(); err != nil && o.err == nil {
		o.r.say("WARNING: " + err.Error())
	}
}
