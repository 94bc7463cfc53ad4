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

// liveEvery is the interval between updates of a live view.
const liveEvery = time.Second

// live draws the status of a run below the printed lines.
type live struct {
	bottom *screen.Bottom
	end    context.CancelFunc
	ended  chan struct{}
	undo   []func()
}

// terminal returns standard output and reports whether it is a terminal that can show a view.
func (p *program) terminal() (*os.File, bool) {
	out := p.Stdout
	if c, ok := out.(*checked); ok {
		out = c.Writer
	}
	f, ok := out.(*os.File)
	return f, ok && screen.Is(f, p.lookup)
}

// view returns the options for drawing on this terminal.
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

// startLive draws the result of status below the printed lines until stop is called. It
// returns nil if standard output is not a terminal.
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

// take redirects w until stop, so that its output appears above the view.
func (l *live) take(w *io.Writer) {
	w = target(w)
	before := *w
	*w = l.bottom
	l.undo = append(l.undo, func() { *w = before })
}

// target returns the innermost writer that w wraps.
func target(w *io.Writer) *io.Writer {
	switch under := (*w).(type) {
	case *checked:
		return &under.Writer
	case *teeWriter:
		return &under.Writer
	}
	return w
}

// shows reports whether the output of w appears above the view.
func (l *live) shows(w io.Writer) bool { return *target(&w) == io.Writer(l.bottom) }

// stop removes the view. It does nothing if l is nil.
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
