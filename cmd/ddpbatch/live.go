package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/ddpbatch/ddpbatch/jobs/watch"
	"github.com/ddpbatch/ddpbatch/jobs/watch/screen"
)

// liveEvery is how often a live view looks at the run.
const liveEvery = time.Second

// live is the view of a run below what is printed meanwhile.
type live struct {
	bottom *screen.Bottom
	end    context.CancelFunc
	ended  chan struct{}
	undo   []func()
}

// terminal is standard output if that is a terminal on which a view can be drawn.
func (p *program) terminal() (*os.File, bool) {
	out := p.Stdout
	if c, ok := out.(*checked); ok {
		out = c.Writer
	}
	f, ok := out.(*os.File)
	return f, ok && screen.Is(f, p.lookup)
}

// view is how runs are drawn on this terminal.
func (p *program) view() watch.View {
	none, _ := p.lookup("NO_COLOR") // https://no-color.org
	locale := ""
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if value, _ := p.lookup(name); value != "" {
			locale = value
			break
		}
	}
	locale = strings.ToLower(locale)
	return watch.View{Color: none == "", Unicode: strings.Contains(locale, "utf-8") || strings.Contains(locale, "utf8")}
}

// startLive draws what status returns below what is printed until stop is called. It is
// nil where standard output is no terminal.
func (p *program) startLive(status func() watch.Status) *live {
	out, ok := p.terminal()
	if !ok {
		return nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	l := &live{bottom: screen.NewBottom(out), end: cancel, ended: make(chan struct{})}
	l.take(&p.Stdout)
	if f, ok := (*target(&p.Stderr)).(*os.File); ok && screen.Is(f, p.lookup) {
		l.take(&p.Stderr)
	}
	resized := make(chan os.Signal, 1)
	signal.Notify(resized, syscall.SIGWINCH)
	view := p.view()
	go func() {
		defer close(l.ended)
		defer signal.Stop(resized)
		tick := time.NewTicker(liveEvery)
		defer tick.Stop()
		s := status()
		for {
			l.bottom.Show(view.Lines(&s, l.bottom.Width(), time.Now()))
			select {
			case <-ctx.Done():
				return
			case <-resized:
			case <-tick.C:
				s = status()
			}
		}
	}()
	return l
}

// take has what is written to w appear above the view.
func (l *live) take(w *io.Writer) {
	w = target(w)
	before := *w
	*w = l.bottom
	l.undo = append(l.undo, func() { *w = before })
}

// target returns where a writer of this program writes to in the end.
func target(w *io.Writer) *io.Writer {
	switch under := (*w).(type) {
	case *checked:
		return &under.Writer
	case *kept:
		return &under.Writer
	}
	return w
}

// shows reports whether what is written to w appears above the view.
func (l *live) shows(w io.Writer) bool { return *target(&w) == io.Writer(l.bottom) }

// stop takes the view away.
func (l *live) stop() {
	if l == nil {
		return
	}
	l.end()
	<-l.ended
	for _, undo := range l.undo {
		undo()
	}
	_ = l.bottom.Close()
}
