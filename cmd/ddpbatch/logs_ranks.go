package main

import (
	"bytes"
	"context"
	"io"
	"regexp"
	"slices"
	"sync/atomic"

	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/jobs/rankoutput"
	"github.com/ddpbatch/ddpbatch/jobs/runs"
	"github.com/ddpbatch/ddpbatch/slurm"
)

// selectsRanks reports whether the flags select the output of ranks.
func (c *logsCmd) selectsRanks() bool {
	return (c.Rank != nil || c.Node != "" || c.Failed || c.Component != "" || c.Attempt > 0 || c.all) && !c.Events
}

// selected returns the outputs that the flags select.
func (c *logsCmd) selected(a *rankoutput.Attempt) (found []rankoutput.Output, err error) {
	var one rankoutput.Output
	switch {
	case c.Component != "":
		return a.Component(c.Component)
	case c.Node != "":
		return a.Node(c.Node)
	case c.Rank != nil:
		one, err = a.Rank(*c.Rank)
	case c.Failed:
		one, err = a.Failed()
	default:
		return a.All(), nil
	}
	return []rankoutput.Output{one}, err
}

// rankLogs prints the output of the selected ranks. It reports false if the flags do not select the
// output of ranks, or if --grep must search the log because the run has no output of ranks.
func (c *logsCmd) rankLogs(ctx context.Context, p *program, store *runs.Store, run runs.Run) (done bool, err error) {
	if !c.selectsRanks() {
		return false, nil
	}
	attempt, err := rankoutput.Read(run, c.Attempt)
	if err != nil {
		return true, err
	}
	if attempt == nil && c.all {
		return false, nil
	}
	if attempt == nil {
		return true, c.withoutOutput(ctx, p, run)
	}
	found, err := c.selected(attempt)
	if err != nil {
		return true, err
	}
	labeled := slices.ContainsFunc(found, func(o rankoutput.Output) bool { return o.Label() != found[0].Label() })
	if c.Follow {
		var logs []*tail
		for _, o := range rankoutput.WithRestarts(found) {
			t := &tail{open: o.Open}
			if labeled {
				t.prefix = o.Label()
			}
			logs = append(logs, t)
		}
		ctx, stop := interruptible(ctx)
		defer stop()
		return true, p.explainInterrupt(run, p.follow(ctx, logs, p.waitForEnd(store, new(atomic.Pointer[slurm.JobState]), run)))
	}
	for _, o := range found {
		w := p.Stdout
		if labeled {
			w = &prefixWriter{w: w, prefix: o.Label()}
		}
		if err := o.Copy(w); err != nil {
			return true, err
		}
		endLine(w)
	}
	return true, nil
}

// withoutOutput handles the flags for a run without output of ranks.
func (c *logsCmd) withoutOutput(ctx context.Context, p *program, run runs.Run) error {
	if c.Rank == nil {
		if !c.Failed {
			return exitError{exitUsage, hints.Errorf("`ddpbatch logs` prints the log of the run, and --rank prints the log of a rank", "run %q has no output of each rank: it uses the built-in trainer, has not started, or was started by an older version of ddpbatch", run.Record.Name)}
		}
		rank, err := rankoutput.FailedRank(run)
		if err != nil {
			return err
		}
		c.Rank = &rank
	}
	c.Events = true
	return c.print(ctx, p, p.runStore(), run)
}

// A prefixWriter begins each line with a prefix.
type prefixWriter struct {
	w      io.Writer
	prefix string
	inside bool // the last byte does not end a line
	buffer []byte
}

func (p *prefixWriter) Write(b []byte) (int, error) {
	p.buffer = p.buffer[:0]
	for rest := b; len(rest) > 0; {
		n := bytes.IndexByte(rest, '\n') + 1
		if n == 0 {
			n = len(rest)
		}
		if !p.inside {
			p.buffer = append(p.buffer, p.prefix...)
		}
		p.buffer = append(p.buffer, rest[:n]...)
		p.inside = rest[n-1] != '\n'
		rest = rest[n:]
	}
	_, err := p.w.Write(p.buffer)
	return len(b), err
}

// endLine ends the last line of a prefixWriter.
func endLine(w io.Writer) {
	if p, ok := w.(*prefixWriter); ok && p.inside {
		_, _ = p.Write([]byte("\n")) // p.Stdout records failed writes
	}
}

// A grepWriter writes only the lines that match a pattern. It splits lines longer than
// longestLine.
type grepWriter struct {
	w       io.Writer
	pattern *regexp.Regexp
	line    []byte
}

func (g *grepWriter) Write(b []byte) (int, error) {
	for rest := b; len(rest) > 0; {
		line, after, ended := bytes.Cut(rest, []byte("\n"))
		rest = after
		g.line = append(g.line, line...)
		if ended || len(g.line) > longestLine {
			if err := g.flush(); err != nil {
				return 0, err
			}
		}
	}
	return len(b), nil
}

// flush writes the current line if it matches.
func (g *grepWriter) flush() (err error) {
	if len(g.line) > 0 && g.pattern.Match(g.line) {
		_, err = g.w.Write(append(g.line, '\n'))
	}
	g.line = g.line[:0]
	return err
}
