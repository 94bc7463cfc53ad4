package main

import (
	"context"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/ddpbatch/ddpbatch/internal/format"
	"github.com/ddpbatch/ddpbatch/internal/printable"
	"github.com/ddpbatch/ddpbatch/jobs/runs"
	"github.com/ddpbatch/ddpbatch/jobs/watch"
	"github.com/ddpbatch/ddpbatch/jobs/watch/screen"
)

// topPollInterval is the interval between polls of the runs.
const topPollInterval = 2 * time.Second

type topCmd struct {
	Which []string `arg:"" optional:"" name:"run" help:"Run names, run directories, job files, job IDs, or directories of runs (default: all runs below runs/)."`
	Once  bool     `help:"Print the table once and exit (default if stdout is not a terminal)."`
	JSON  bool     `help:"Print the result as JSON, once."`
}

func (c *topCmd) Help() string {
	return `Shows a table of runs and updates it. Finished runs come last. ddpbatch checks the
runs on the screen every 2 s and all other runs every 15 s. It queries Slurm every 15 s
with one call for all runs. Press q to quit.

DONE is the fraction of completed steps, LEFT the estimated time to the end, WAITS the
fraction of a step in which ranks wait for communication, and SAVED the step of the
newest checkpoint.`
}

func (c *topCmd) Run(ctx context.Context, p *program) error {
	out, interactive := p.terminal()
	store := p.runStore()
	_, unreadable, err := c.runs(store)
	if err != nil {
		return err // before the table replaces the screen
	}
	p.noteUnreadable(unreadable)
	store.Note = nil // the notes are printed
	if c.Once || c.JSON || !interactive {
		view := c.view(ctx, store, store.NewPoller())
		switch {
		case view.all == nil && view.err != nil:
			return view.err
		case c.JSON:
			if err := p.printJSON(view.all); err != nil {
				return err
			}
		case len(view.all) == 0:
			p.note("%s", view.empty)
		default:
			for _, line := range watch.TopTable(view.all).Lines(columnsOf(p.Stdout)) {
				p.printf("%s\n", line)
			}
		}
		return view.err
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
	rows := func() int { _, height := page.Size(); return height }
	views := c.poll(ctx, p, rows)
	defer func() {
		leave()
		for range views { // until the last poll has ended
		}
	}()
	view := topView{all: []watch.Status{}}
	for {
		width, height := page.Size()
		if err := page.Show(c.page(width, height, view)); err != nil {
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
		case view = <-views:
			if view.all == nil && view.err != nil {
				return view.err
			}
		}
	}
}

// A topView is the status of the runs at one time.
type topView struct {
	all   []watch.Status
	empty string // message if there are no runs
	err   error
}

// poll polls the runs every topPollInterval until ctx is done. It runs in a separate goroutine,
// because a query to Slurm can be slow. It prints nothing, because warnings would corrupt the
// screen. Run prints warnings about unreadable runs before the table appears. Rows returns the
// height of the page.
func (c *topCmd) poll(ctx context.Context, p *program, rows func() int) <-chan topView {
	views := make(chan topView)
	store := p.runStore()
	store.Note = nil
	go func() {
		defer close(views)
		poller := store.NewPoller()
		tick := time.NewTicker(topPollInterval)
		defer tick.Stop()
		for {
			view := c.view(ctx, store, poller)
			sorted := watch.Sort(view.all)
			poller.SetVisible(sorted[:min(len(sorted), rows())])
			select {
			case views <- view:
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
	return views
}

// view polls the runs once.
func (c *topCmd) view(ctx context.Context, store *runs.Store, poller *runs.Poller) (v topView) {
	found, unreadable, err := c.runs(store)
	if err != nil {
		return topView{err: err}
	}
	v.all, v.err = poller.Poll(ctx, found)
	if len(c.Which) == 1 && len(v.all) == 1 && v.all[0].Elements != nil {
		v.all = v.all[0].Elements // the user named this sweep
	}
	if len(v.all) == 0 {
		v.empty = c.noRuns(store, len(unreadable))
	}
	return v
}

// page returns the lines to draw: heading, messages, and table.
func (c *topCmd) page(width, height int, view topView) []string {
	lines := []string{screen.Clip(watch.Heading(view.all, time.Now())+"  q leaves", width)}
	var messages []string
	if view.err != nil {
		messages = append(messages, strings.ReplaceAll(view.err.Error(), "\n", "; "))
	}
	if view.empty != "" {
		messages = append(messages, view.empty)
	}
	var wrapped []string
	for _, m := range messages {
		for _, line := range screen.Wrap(printable.Text(m), width, 2) {
			wrapped = append(wrapped, screen.Cut(line, width))
		}
	}
	// Messages about runs of other users must not hide the table.
	if most := max(2, height/3); len(wrapped) > most {
		more := format.Count(len(wrapped)-most+1, "more line")
		wrapped = append(wrapped[:most-1], screen.Clip(more+"; `ddpbatch status` prints all messages", width))
	}
	lines = append(append(append(lines, wrapped...), ""), watch.TopTable(view.all).Lines(width)...)
	if more := len(lines) - height; more > 0 {
		lines = append(lines[:height-1], screen.Clip(format.Count(more+1, "more line")+"; the terminal is too short", width))
	}
	return lines
}

// noRuns returns the message that there are no runs. If an argument contains a directory of
// runs, the message suggests it.
func (c *topCmd) noRuns(store *runs.Store, unreadable int) string {
	if len(c.Which) == 0 {
		return noRuns(store.Runs(), unreadable)
	}
	paths, inside := make([]string, len(c.Which)), ""
	for i, arg := range c.Which {
		paths[i] = store.Abs(arg)
		dir := filepath.Join(arg, runs.DefaultDir)
		if found, _, err := store.List(store.Abs(dir)); err == nil && len(found) > 0 {
			inside = "; name the directory of the runs: ddpbatch top " + shellQuote(dir)
		}
	}
	return noRuns(listed(paths), unreadable) + inside
}

// runs returns the runs that the arguments name, and an error for each run that is not readable.
// It reads a directory of runs again in each call, to include new runs.
func (c *topCmd) runs(store *runs.Store) (found []runs.Run, unreadable []error, err error) {
	if len(c.Which) == 0 {
		return store.List(store.Runs())
	}
	for _, arg := range c.Which {
		path := store.Abs(arg)
		if info, err := os.Stat(path); arg != "" && err == nil && info.IsDir() && !runs.IsRunDir(path) && !runs.IsRunDir(filepath.Join(store.Runs(), arg)) {
			inside, errs, err := store.List(path)
			if err != nil {
				return nil, nil, err
			}
			found, unreadable = append(found, inside...), append(unreadable, errs...)
			continue
		}
		run, err := store.Find(arg)
		if err != nil {
			return nil, nil, err
		}
		found = append(found, run)
	}
	return found, unreadable, nil
}
