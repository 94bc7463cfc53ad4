package screen

import (
	"bytes"
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

const (
	openPage  = "\x1b[?1049h\x1b[?25l" // another screen, without a cursor
	closePage = "\x1b[?25h\x1b[?1049l"
)

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
		quiet := *state
		quiet.Lflag &^= unix.ICANON | unix.ECHO
		quiet.Cc[unix.VMIN], quiet.Cc[unix.VTIME] = 1, 0
		if err := unix.IoctlSetTermios(int(in.Fd()), unix.TCSETS, &quiet); err != nil {
			return nil, err
		}
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
	if _, err := out.WriteString(openPage); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
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
