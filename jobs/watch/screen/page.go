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
	openPage  = "\x1b[?1049h\x1b[?25l" // switch to the alternate screen and hide the cursor
	closePage = "\x1b[?25h\x1b[?1049l"
)

// ControlZ is the key of a [Page] for which callers must call Suspend. It does not raise a
// signal.
const ControlZ = 0x1a

// A Page uses the whole screen of a terminal, and delivers the keys that the user presses.
type Page struct {
	// Keys delivers each byte that is typed. It is nil if the input is not a terminal.
	Keys <-chan byte

	out, in *os.File
	before  *unix.Termios
}

// OpenPage takes over the terminal until Close. Keys do not need Return and are not echoed.
// Control-C still raises a signal.
func OpenPage(out, in *os.File) (*Page, error) {
	p := &Page{out: out, in: in}
	if state, err := unix.IoctlGetTermios(int(in.Fd()), unix.TCGETS); err == nil {
		p.before = state
		keys := make(chan byte)
		p.Keys = keys
		go func() {
			var b [1]byte
			for {
				// This goroutine still waits for a key when the page is closed. It ends with
				// the process.
				if n, err := in.Read(b[:]); n == 0 || err != nil {
					return
				}
				keys <- b[0]
			}
		}()
	}
	return p, p.take()
}

// take switches the terminal to the mode of the page.
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

// Suspend restores the terminal and stops the process group of this process, as Control-Z does
// for other programs. When the group continues, Suspend takes over the terminal again, and the
// caller must redraw it. The kernel does not stop an orphaned process group, because no
// process could continue it.
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

// underShell reports whether the parent starts process groups, as an interactive shell does.
// Then the kernel stops the group on SIGTSTP.
func underShell() bool {
	parent := os.Getppid()
	theirs, err := unix.Getsid(parent)
	ours, oerr := unix.Getsid(0)
	group, gerr := unix.Getpgid(parent)
	return errors.Join(err, oerr, gerr) == nil && theirs == ours && group != unix.Getpgrp()
}

// Size returns the maximum width and the maximum number of lines.
func (p *Page) Size() (width, height int) {
	width, height = size(int(p.out.Fd()))
	return max(width-1, 1), height
}

// Show replaces the page. Lines have the same restrictions as for [Bottom.Show].
func (p *Page) Show(lines []string) error {
	var out bytes.Buffer
	out.WriteString("\x1b[H")
	_, height := size(int(p.out.Fd()))
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

// Close restores the terminal.
func (p *Page) Close() error {
	_, err := p.out.WriteString(closePage)
	if p.before != nil {
		if serr := unix.IoctlSetTermios(int(p.in.Fd()), unix.TCSETS, p.before); err == nil {
			err = serr
		}
	}
	return err
}
