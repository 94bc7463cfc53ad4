package main

import (
	"fmt"
	"io"

	"github.com/ddpbatch/ddpbatch/internal/printable"
	"github.com/ddpbatch/ddpbatch/trainer"
	"github.com/ddpbatch/ddpbatch/trainer/eventlog"
	"github.com/ddpbatch/ddpbatch/trainer/rendezvous"
	"github.com/ddpbatch/ddpbatch/trainer/trace"
)

// An observer handles the trainer's events. Every rank writes its log and a timeline, and
// reports progress to the launcher. Rank 0 also prints events and writes the metrics.
type observer struct {
	r        *rank
	progress trainer.Progress // updated by the trainer
	recorder eventlog.Recorder
	exporter eventlog.Exporter
	trace    *trace.Recorder // nil unless log.trace is set
	err      error           // first error in writing the metrics
}

func newObserver(r *rank, s *rendezvous.Session) *observer {
	o := &observer{r: r, recorder: eventlog.Recorder{Path: r.dir.Metrics(), TensorBoardDir: r.dir.TensorBoard(), Host: r.info.Host},
		exporter: eventlog.NewExporter(string(r.job.Log.Prometheus), string(r.job.Name), r.record.Run, r.info.JobID, r.info.Host)}
	// The directory is open until the process exits, even if another directory takes its path.
	if root, _, err := r.dir.OpenRoot(); err == nil {
		o.recorder.Root = root
	}
	if steps := r.job.Log.Trace; !steps.IsZero() {
		o.trace = trace.New(steps.First, steps.Last)
	}
	s.Report(func() rendezvous.Progress {
		step, phase, done := o.progress.Now()
		return rendezvous.Progress{Step: step, Phase: phase, Done: done}
	})
	return o
}

func (o *observer) event(e trainer.Event) {
	o.r.log.info(string(e.Kind), "step", e.Step, "epoch", e.Epoch, "text", e.String())
	if e.Kind == trainer.Traced {
		if err := o.writeTrace(); err != nil {
			o.r.say(fmt.Sprintf("warning: write the timeline of rank %d: %v", o.r.info.Rank, err))
		}
	}
	// Do not print the device if the job uses CPUs and did not request a GPU.
	if o.r.info.Rank != 0 || e.Kind == trainer.OnCPU && !e.GPUsRequested {
		return
	}
	o.r.printf("%s\n", printable.Verbatim(e.String()))
	if err := o.exporter.Update(e); err != nil {
		// A failed export must not stop training.
		o.r.say("warning: " + err.Error() + "; disabling the export of metrics")
		_ = o.exporter.Close() // a stale file would be collected indefinitely
		o.exporter = eventlog.Exporter{}
	}
	if err := o.recorder.Write(e); err != nil && o.err == nil {
		o.err = err
		o.r.say("warning: " + err.Error())
	}
}

// writeTrace replaces the rank's timeline with the current recording.
func (o *observer) writeTrace() error {
	at := o.r.info
	return o.r.dir.WriteTrace(at.Rank, func(w io.Writer) error {
		return o.trace.Write(w, trace.Rank{Rank: at.Rank, Ranks: at.WorldSize, Node: at.NodeRank, Host: at.Host})
	})
}

func (o *observer) close() {
	if err := o.exporter.Close(); err != nil {
		o.r.say("warning: " + err.Error())
	}
	if err := o.recorder.Close(); err != nil && o.err == nil {
		o.r.say("warning: " + err.Error())
	}
}
