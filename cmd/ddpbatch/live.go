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

// liveInterval is the interval between updates of a live view.
const liveInterval = time.Second

// live draws the status of a run below the printed lines.
type live struct {
	bottom  *screen.Bottom
	cancel  context.CancelFunc
	ended   chan struct{}
	restore []func() // of redirected streams
}

// terminal returns standard output and reports whether it is a terminal that can show a view.
func (p *program) terminal() (*os.File, bool) {
	f, ok := fileOf(p.Stdout)
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
	l := &live{bottom: screen.NewBottom(out), cancel: cancel, ended: make(chan struct{})}
	l.redirect(p.Stdout)
	if f, ok := fileOf(p.Stderr); ok && screen.Is(f, p.lookup) {
		l.redirect(p.Stderr)
	}
	resized := make(chan os.Signal, 1)
	signal.Notify(resized, syscall.SIGWINCH)
	view := p.view()
	go func() {
		defer close(l.ended)
		defer signal.Stop(resized)
		tick := time.NewTicker(liveInterval)
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

// redirect prints the output of w above the view until stop.
func (l *live) redirect(w io.Writer) {
	if s := streamOf(w); s != nil {
		l.restore = append(l.restore, s.redirect(l.bottom))
	}
}

// shows reports whether the output of w appears above the view.
func (l *live) shows(w io.Writer) bool { return targetOf(w) == io.Writer(l.bottom) }

// stop removes the view. It does nothing if l is nil.
func (l *live) stop() {
	if l == nil {
		return
	}
	l.cancel()
	<-l.ended
	for _, restore := range l.restore {
		restore()
	}
	_ = l.bottom.Close()
}
