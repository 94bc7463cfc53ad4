package main

import (
	"io"
	"os"
	"time"

	"github.com/ddpbatch/ddpbatch/jobs/launch"
	"github.com/ddpbatch/ddpbatch/jobs/launch/output"
	"github.com/ddpbatch/ddpbatch/jobs/rundir"
	"github.com/ddpbatch/ddpbatch/jobs/watch"
)

// A teeWriter writes messages to Writer and to a log. Function say wraps lines for the terminal and
// writes unwrapped lines to the log.
type teeWriter struct {
	io.Writer
	log io.Writer
}

// Write writes b to the log and to Writer. The log receives b even if Writer fails.
func (k *teeWriter) Write(b []byte) (int, error) {
	_, _ = k.log.Write(b) // never fails, see output.Log
	return k.Writer.Write(b)
}

// copyOutput starts copying the output of the launcher and its ranks to a file in the run
// directory. It returns nil if Slurm already writes that file, and after a warning if the file
// cannot be opened.
func (p *program) copyOutput(o *launch.Options, id string) *output.Copier {
	file, err := openOutput(o.Dir, id)
	if err != nil {
		p.note("warning: %v", err)
	}
	if file == nil {
		return nil
	}
	log := output.NewLog(file, func(err error) {
		p.note("warning: write the log of this launch: %v; the run continues without it", err)
	})
	p.Stderr = &teeWriter{p.Stderr, log}
	return output.NewCopier(log)
}

// openOutput opens the file for the output of a launch. Inside a Slurm job with a user's own
// script, it opens the same file as a submitted job would use. The id is the job's ID, or
// empty. The file is nil if Slurm already writes it.
func openOutput(dir rundir.Dir, id string) (*os.File, error) {
	if id == "" {
		return dir.CreateLaunchLog(time.Now())
	}
	record, err := dir.ReadRecord()
	if err != nil {
		return nil, err
	}
	if s := record.Of(id); s == nil || s.ID != "" {
		return nil, nil // submitted by ddpbatch
	}
	file, err := dir.OpenBatchLog(id)
	if err == nil && (output.SameFile(file, os.Stdout) || output.SameFile(file, os.Stderr)) {
		return nil, file.Close() // the script redirects its output to this file
	}
	return file, err
}

// show forwards the output of the ranks. On a terminal, it also draws the live view below that
// output. A user's program gets no view and can draw on the terminal itself. The caller calls
// hide after the ranks have exited. Out is nil if no copy is stored.
func (c *launchCmd) show(p *program, o *launch.Options, id string, out *output.Copier) (hide func(), err error) {
	l := c.startView(p, o, id)
	copied := out != nil
	if !copied {
		out = output.NewCopier(io.Discard)
	}
	hide = func() { out.Close(); l.stop() }
	defer func() {
		if err != nil {
			hide()
		}
	}()
	out.Lost = func(err error) {
		p.note("warning: forward the output of the ranks: %v; the run continues without it", err)
	}
	same := output.SameFile(os.Stdout, os.Stderr)
	switch {
	case l != nil:
		same = l.shows(p.Stderr)
		o.Stdout, err = out.Pipe(l.bottom)
	case copied:
		o.Stdout, err = out.Like(os.Stdout)
	default:
		return hide, nil
	}
	switch {
	case err != nil:
		return nil, err
	case same: // a single stream preserves the order
		o.Stderr = o.Stdout
	case copied:
		o.Stderr, err = out.Like(os.Stderr)
	}
	return hide, err
}

// startView starts the live view. It returns nil with --plain, for jobs with a user's program,
// and if standard output is not a terminal.
func (c *launchCmd) startView(p *program, o *launch.Options, id string) *live {
	if c.Plain || o.Job.Train == nil {
		return nil
	}
	metrics := watch.NewMetricsTail(o.Dir.Metrics())
	return p.startLive(func() watch.Status {
		s := watch.Read(o.Dir, string(o.Job.Name), id, metrics)
		s.SetPhase(time.Now())
		return s
	})
}
