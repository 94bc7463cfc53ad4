// Package screen shows lines that change on a terminal: a few at its bottom, below what
// is printed meanwhile ([Bottom]), or a whole page ([Page]); and fits texts into its width
// ([Wrap], [Cut], [Shorten]).
//
// It promises: what is printed above stays, in order and whole, as if there were nothing
// below; each change is one write, and lines are overwritten and not cleared, so nothing flickers;
// a terminal that was resized is drawn for its new width; and the terminal is as it was
// once Close returns. A program in the background prints, and draws nothing.
//
// It does not decide what is shown, nor in which colours, and it knows only the sequences
// that every terminal of the last decades does (ECMA-48: CUU, EL, ED, CUP, SGR; for a page
// xterm's 1049 and 25). Where there is no such terminal, Is says so.
package screen

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/ddpbatch/ddpbatch/internal/printable"
)

const (
	clearLine = "\x1b[K" // to its end
	clearRest = "\x1b[J" // of the screen
	plain     = "\x1b[0m"
)

// Is says whether a file is a terminal that lines can be drawn on. lookup is that of the
// environment.
func Is(f *os.File, lookup func(string) (string, bool)) bool {
	if term, ok := lookup("TERM"); !ok || term == "" || term == "dumb" {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// Size is the width and height of a terminal, 80 and 24 where it does not tell.
func Size(f *os.File) (width, height int) { return size(int(f.Fd())) }

func size(fd int) (width, height int) {
	w, err := unix.IoctlGetWinsize(fd, unix.TIOCGWINSZ)
	if err != nil || w.Col == 0 || w.Row == 0 {
		return 80, 24
	}
	return int(w.Col), int(w.Row)
}

// Columns is how wide lines on a file may be that are printed for people to read: as wide
// as the terminal that it is, and 0, without bound, where it is none.
func Columns(f *os.File) int {
	width := 0
	// Not by f.Fd, which has a pipe block from then on.
	if conn, err := f.SyscallConn(); err == nil {
		_ = conn.Control(func(fd uintptr) {
			if _, err := unix.IoctlGetTermios(int(fd), unix.TCGETS); err == nil {
				width, _ = size(int(fd))
			}
		})
	}
	return width
}

// inFront says whether this process may draw on a terminal: a job that the shell has
// put into the background would draw over its prompt. Without job control every process
// is in front.
func inFront(f *os.File) bool {
	group, err := unix.IoctlGetInt(int(f.Fd()), unix.TIOCGPGRP)
	return err != nil || group == unix.Getpgrp()
}

// Bottom keeps lines at the bottom of a terminal.
type Bottom struct {
	out *os.File

	mu    sync.Mutex
	lines []string
	shown []string // what is drawn
	rest  []byte   // the beginning of a line that is printed above
}

// NewBottom draws nothing yet.
func NewBottom(out *os.File) *Bottom { return &Bottom{out: out} }

// Width is how wide lines may be. The last column stays free: what a terminal does after
// it differs.
func (b *Bottom) Width() int {
	w, _ := Size(b.out)
	return max(w-1, 1)
}

// Show replaces the lines. Each is at most Width wide, and holds no control characters
// but SGR sequences.
func (b *Bottom) Show(lines []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lines = lines
	b.draw(nil)
}

// Write prints above the lines. What has no end of line yet is shown, and printed when
// the end comes.
func (b *Bottom) Write(text []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.rest = append(b.rest, text...)
	end := bytes.LastIndexByte(b.rest, '\n') + 1
	whole := b.rest[:end]
	err := b.draw(whole)
	b.rest = append([]byte(nil), b.rest[end:]...)
	return len(text), err
}

// Close takes the lines away. What is printed later goes on below what was printed
// before.
func (b *Bottom) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	text := b.rest
	if len(text) > 0 {
		text = append(text, '\n')
	}
	b.rest, b.lines = nil, nil
	return b.draw(text)
}

// draw prints whole lines above, and the present ones in the place of those before.
func (b *Bottom) draw(above []byte) error {
	if !inFront(b.out) {
		b.shown = nil // the shell has printed below
		_, err := b.out.Write(above)
		return err
	}
	if len(above)+len(b.shown)+len(b.lines) == 0 {
		return nil
	}
	var out bytes.Buffer
	width, height := Size(b.out)
	// Some terminals that become narrower wrap what stands there, others cut it off, as
	// xterm does, and none says which: going up by wrapped rows would overwrite what was
	// printed above on the one kind, and going up by lines leaves some of the old ones
	// on the other.
	if n := len(b.shown); n > 0 {
		out.WriteByte('\r')
		if n > 1 {
			fmt.Fprintf(&out, "\x1b[%dA", min(n, height)-1)
		}
	}
	if len(above) > 0 {
		// Cleared before: after a line that fills its row, clearing its rest would take
		// its last character.
		out.WriteString(clearRest)
		out.Write(bytes.ReplaceAll(above, []byte("\n"), []byte("\r\n")))
		if bytes.IndexByte(above, 0x1b) >= 0 {
			out.WriteString(plain) // it may have left a colour
		}
	}
	b.shown = nil
	if partial := printed(b.rest[bytes.LastIndexByte(b.rest, '\n')+1:]); partial != "" && len(b.lines) > 0 {
		b.shown = append(b.shown, Clip(partial, max(width-1, 1)))
	}
	b.shown = append(b.shown, b.lines...)
	if most := height - 1; len(b.shown) > most && most > 0 {
		b.shown = b.shown[len(b.shown)-most:]
	}
	for i, line := range b.shown {
		if i > 0 {
			out.WriteString("\r\n")
		}
		out.WriteString(line + clearLine)
	}
	out.WriteString(clearRest)
	_, err := b.out.Write(out.Bytes())
	return err
}

// printed is what stands on the terminal after a line that may have gone back to its
// start, without what steers.
func printed(line []byte) string {
	text := strings.TrimRight(string(line), "\r")
	text = text[strings.LastIndexByte(text, '\r')+1:]
	return printable.Text(strings.ReplaceAll(text, "\t", " "))
}
