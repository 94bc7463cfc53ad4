package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/ddpbatch/ddpbatch/internal/format"
	"github.com/ddpbatch/ddpbatch/internal/printable"
	"github.com/ddpbatch/ddpbatch/jobs/watch"
	"github.com/ddpbatch/ddpbatch/jobs/watch/screen"
)

// topEvery is the interval between checks of the run directories.
const topEvery = 2 * time.Second

type topCmd struct {
	Which []string `arg:"" optional:"" name:"run" help:"Run names, run directories, job files, job IDs, or directories of runs (default: all runs below runs/)."`
	Once  bool     `help:"Print the table once and exit (default if stdout is not a terminal)."`
	JSON  bool     `help:"Print the result as JSON, once."`
}

func (c *topCmd) Help() string {
	return `Shows a table of runs and updates it. Finished runs come last. ddpbatch reads the run
directories every 2 s, and queries Slurm every 15 s with one call for all runs. Press
q to quit.

DONE is the fraction of completed steps, LEFT the estimated time to the end, WAITS the
fraction of a step in which ranks wait for communication, and SAVED the step of the
newest checkpoint.`
}

func (c *topCmd) Run(ctx context.Context, p *program) error {
	out, interactive := p.terminal()
	if c.Once || c.JSON || !interactive {
		all, err := c.look(ctx, p, p.lookout())
		switch {
		case all == nil && err != nil:
			return err
		case c.JSON:
			if err := p.printJSON(all); err != nil {
				return err
			}
		case len(all) == 0:
			p.note("%s", c.noRuns(p))
		default:
			for _, line := range watch.Table(all, columnsOf(p.Stdout)) {
				p.printf("%s\n", line)
			}
		}
		return err
	}
	if _, err := c.runs(p); err != nil {
		return err // report the error before the table replaces the screen
	}
	ctx, stop := interruptible(ctx)
	defer stop()
	return c.follow(ctx, p, out)
}

// follow redraws the table until the user presses q or interrupts.
func (c *topCmd) follow(ctx context.Context, p *program, out *os.File) error {
	in, ok := p.Stdin.(*os.File)
	if !ok {
		in = out
	}
	page, err := screen.OpenPage(out, in)
	if err != nil {
		return err
	}
	defer page.Close()
	resized := make(chan os.Signal, 1)
	signal.Notify(resized, syscall.SIGWINCH)
	defer signal.Stop(resized)
	ctx, leave := context.WithCancel(ctx)
	looks := c.looks(ctx, p)
	defer func() {
		leave()
		for range looks { // until the last look has ended
		}
	}()
	now := topLook{all: []watch.Status{}}
	for {
		width, height := page.Size()
		if err := page.Show(c.page(width, height, now)); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case key := <-page.Keys:
			switch key {
			case 'q', 'Q':
				return nil
			case screen.ControlZ:
				if err := page.Suspend(); err != nil {
					return err
				}
			}
		case <-resized:
		case now = <-looks:
			if now.all == nil && now.err != nil {
				return now.err
			}
		}
	}
}

// topLook is the status of the runs at one time.
type topLook struct {
	all   []watch.Status
	empty string // message if there are no runs
	err   error
}

// looks checks the runs every topEvery until ctx is done. It runs in a separate goroutine,
// because a query to Slurm can be slow. It prints nothing, because warnings would corrupt the
// screen. Run prints warnings about unreadable runs before the table appears.
func (c *topCmd) looks(ctx context.Context, p *program) <-chan topLook {
	looks := make(chan topLook)
	quiet := *p
	quiet.Stderr = io.Discard
	go func() {
		defer close(looks)
		look := quiet.lookout()
		tick := time.NewTicker(topEvery)
		defer tick.Stop()
		for {
			l := c.lookOnce(ctx, &quiet, look)
			select {
			case looks <- l:
			case <-ctx.Done():
				return
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	}()
	return looks
}

// lookOnce checks the runs once. It resets the count of unreadable run directories first.
func (c *topCmd) lookOnce(ctx context.Context, quiet *program, look *lookout) (l topLook) {
	quiet.leftOut = 0
	if l.all, l.err = c.look(ctx, quiet, look); len(l.all) == 0 {
		l.empty = c.noRuns(quiet)
	}
	return l
}

// page returns the lines to draw: heading, messages, and table.
func (c *topCmd) page(width, height int, look topLook) []string {
	lines := []string{screen.Clip(watch.Heading(look.all, time.Now())+"  q leaves", width)}
	var messages []string
	if look.err != nil {
		messages = append(messages, strings.ReplaceAll(look.err.Error(), "\n", "; "))
	}
	if look.empty != "" {
		messages = append(messages, look.empty)
	}
	for _, m := range messages {
		for _, line := range screen.Wrap(printable.Text(m), width, 2) {
			lines = append(lines, screen.Cut(line, width))
		}
	}
	lines = append(append(lines, ""), watch.Table(look.all, width)...)
	if more := len(lines) - height; more > 0 {
		lines = append(lines[:height-1], screen.Clip(format.Count(more+1, "more line")+"; the terminal is too low", width))
	}
	return lines
}

func (c *topCmd) look(ctx context.Context, p *program, look *lookout) ([]watch.Status, error) {
	runs, err := c.runs(p)
	if err != nil {
		return nil, err
	}
	all, err := look.look(ctx, runs)
	if len(c.Which) == 1 && len(all) == 1 && all[0].Elements != nil {
		all = all[0].Elements // the user named this sweep
	}
	return all, err
}

// noRuns returns the message that there are no runs. If an argument contains a directory of
// runs, the message suggests it.
func (c *topCmd) noRuns(p *program) string {
	if len(c.Which) == 0 {
		return p.noRuns(p.abs(runsFolder))
	}
	quiet := *p
	quiet.Stderr = io.Discard
	paths, inside := make([]string, len(c.Which)), ""
	for i, arg := range c.Which {
		paths[i] = p.abs(arg)
		folder := filepath.Join(arg, runsFolder)
		if found, err := quiet.runs(p.abs(folder)); err == nil && len(found) > 0 {
			inside = "; name the directory that holds them: ddpbatch top " + folder
		}
	}
	return p.noRuns(listed(paths)) + inside
}

// runs returns the runs that the arguments name. It reads a directory of runs again in each
// call, to include new runs.
func (c *topCmd) runs(p *program) ([]knownRun, error) {
	if len(c.Which) == 0 {
		return p.runs(p.abs(runsFolder))
	}
	var runs []knownRun
	for _, arg := range c.Which {
		path := p.abs(arg)
		if info, err := os.Stat(path); arg != "" && err == nil && info.IsDir() && !isRun(path) && !isRun(p.abs(filepath.Join(runsFolder, arg))) {
			inside, err := p.runs(path)
			if err != nil {
				return nil, err
			}
			runs = append(runs, inside...)
			continue
		}
		run, err := p.findRun(arg)
		if err != nil {
			return nil, err
		}
		runs = append(runs, run)
	}
	return runs, nil
}
