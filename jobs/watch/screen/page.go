package screen

import (
	"bytes"
	"errors"
	"os"
	"os/signal"
	"time"

	"golang.org/x/sys/unix"
)

const (
	openPage  = "\x1b[?1049h\x1b[?25l" // another screen, without a cursor
	closePage = "\x1b[?25h\x1b[?1049l"
)

// ControlZ is a key of a [Page], and no signal: what asks for it calls Suspend.
const ControlZ = 0x1a

// Page is a whole screen of a terminal, and the keys that are pressed meanwhile.
type Page struct {
	// Keys has each byte that is typed. It is nil where in is no terminal.
	Keys <-chan byte

	out, in *os.File
	before  *unix.Termios
}

// OpenPage takes the terminal, until Close. Keys need no Return meanwhile, and are not
// shown; Control-C is a signal as ever.
func OpenPage(out, in *os.File) (*Page, error) {
	p := &Page{out: out, in: in}
	if state, err := unix.IoctlGetTermios(int(in.Fd()), unix.TCGETS); err == nil {
		p.before = state
		keys := make(chan byte)
		p.Keys = keys
		go func() {
			var b [1]byte
			for {
				// It is left waiting for a key when the page is closed, and ends with the process.
				if n, err := in.Read(b[:]); n == 0 || err != nil {
					return
				}
				keys <- b[0]
			}
		}()
	}
	return p, p.take()
}

// take puts the terminal into the page's mode.
func (p *Page) take() error {
	if p.before != nil {
		quiet := *p.before
		quiet.Lflag &^= unix.ICANON | unix.ECHO
		quiet.Cc[unix.VMIN], quiet.Cc[unix.VTIME], quiet.Cc[unix.VSUSP] = 1, 0, 0
		if err := unix.IoctlSetTermios(int(p.in.Fd()), unix.TCSETS, &quiet); err != nil {
			return err
		}
	}
	if _, err := p.out.WriteString(openPage); err != nil {
		return errors.Join(err, p.Close())
	}
	return nil
}

// Suspend gives the terminal back and stops this process and those of its group, as
// Control-Z does elsewhere; once they go on it takes the terminal again, of which nothing
// is drawn then. The kernel stops no group that nobody could have go on.
func (p *Page) Suspend() error {
	if err := p.Close(); err != nil {
		return err
	}
	on := make(chan os.Signal, 1)
	signal.Notify(on, unix.SIGCONT)
	defer signal.Stop(on)
	if err := unix.Kill(0, unix.SIGTSTP); err != nil {
		return errors.Join(err, p.take())
	}
	// It takes a moment until all threads have stopped.
	var stopped <-chan time.Time
	if !underShell() {
		stopped = time.After(time.Second)
	}
	select {
	case <-on:
	case <-stopped:
	}
	return p.take()
}

// underShell says whether the parent is one that starts groups of processes, as a shell at
// a prompt does: then the group does stop.
func underShell() bool {
	parent := os.Getppid()
	theirs, err := unix.Getsid(parent)
	ours, oerr := unix.Getsid(0)
	group, gerr := unix.Getpgid(parent)
	return errors.Join(err, oerr, gerr) == nil && theirs == ours && group != unix.Getpgrp()
}

// Size is the width that lines may have, and how many there may be.
func (p *Page) Size() (width, height int) {
	width, height = Size(p.out)
	return max(width-1, 1), height
}

// Show replaces the page. Lines are as for [Bottom.Show].
func (p *Page) Show(lines []string) error {
	var out bytes.Buffer
	out.WriteString("\x1b[H")
	_, height := Size(p.out)
	for i, line := range lines[:min(len(lines), height)] {
		if i > 0 {
			out.WriteString("\r\n")
		}
		out.WriteString(line + clearLine)
	}
	out.WriteString(clearRest)
	_, err := p.out.Write(out.Bytes())
	return err
}

// Close gives the terminal back as it was.
func (p *Page) Close() error {
	_, err := p.out.WriteString(closePage)
	if p.before != nil {
		if serr := unix.IoctlSetTermios(int(p.in.Fd()), unix.TCSETS, p.before); err == nil {
			err = serr
		}
	}
	return err
}
