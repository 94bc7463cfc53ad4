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

// kept is a writer of messages for people that also go to a log. The terminal gets lines
// that fit its width, and the log gets whole ones; see say.
type kept struct {
	io.Writer
	log io.Writer
}

// Write writes b to both. The log gets it also if nobody reads the messages any more.
func (k *kept) Write(b []byte) (int, error) {
	_, _ = k.log.Write(b) // it never fails, see output.Log
	return k.Writer.Write(b)
}

// keepOutput has what the ranks and the launcher print copied to a file of the run
// directory. It returns nil if there is to be no copy: Slurm keeps the output of a job
// that ddpbatch submitted.
func (p *program) keepOutput(o *launch.Options, id string) *output.Copier {
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
	p.Stderr = &kept{p.Stderr, log}
	return output.NewCopier(log)
}

// openOutput opens the file for the output of a launch. In the job of a user's own script
// it is the one that a submitted job would have; id is that of the job. The file is nil if
// Slurm writes it.
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
	if err == nil && (sameFile(file, os.Stdout) || sameFile(file, os.Stderr)) {
		return nil, file.Close() // the script has it there
	}
	return file, err
}

// show passes on what the ranks print and, on a terminal, draws the state of the run
// below it. The caller calls hide when the ranks have ended. A user's program has the
// terminal for itself: what it draws there is its own. Out is nil if no copy is kept.
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
		p.note("WARNING: pass on the output of the ranks: %v; the run continues without it", err)
	}
	same := sameFile(os.Stdout, os.Stderr)
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
	case same: // one stream keeps the order
		o.Stderr = o.Stdout
	case copied:
		o.Stderr, err = out.Like(os.Stderr)
	}
	return hide, err
}

// startView starts the view of the run, nil if there is to be none.
func (c *launchCmd) startView(p *program, o *launch.Options, id string) *live {
	if c.Plain || o.Job.Train == nil {
		return nil
	}
	figures := watch.NewFigures(o.Dir.Metrics())
	return p.startLive(func() watch.Status {
		s := watch.Read(o.Dir, string(o.Job.Name), id, figures)
		s.Settle("", time.Now())
		return s
	})
}

// sameFile reports whether a and b are the same file, pipe, or terminal.
func sameFile(a, b *os.File) bool {
	one, err := a.Stat()
	if err != nil {
		return false
	}
	other, err := b.Stat()
	return err == nil && os.SameFile(one, other)
}
