// Package screen displays changing lines on a terminal: a few lines at the bottom, below other
// output ([Bottom]), or a whole page ([Page]). It also fits text to the width of the terminal
// ([Wrap], [Cut], [Shorten]).
//
// The package guarantees:
//
//   - Output above the lines stays complete and in order, as if the lines did not exist.
//   - Each change is a single write, and lines are overwritten without being cleared. So they
//     do not flicker.
//   - After the terminal is resized, lines are drawn for the new width.
//   - Close restores the terminal.
//   - A program in the background prints its output, but does not draw lines.
//
// The package does not decide what to display, nor in which colors. It uses only sequences
// that all common terminals support (ECMA-48: CUU, EL, ED, CUP, SGR; for a page, xterm's 1049
// and 25). [Is] reports whether a file is such a terminal.
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
	clearLine = "\x1b[K" // to the end of the line
	clearRest = "\x1b[J" // to the end of the screen
	plain     = "\x1b[0m"
)

// Is reports whether lines can be drawn on f. It is false if f is not a terminal, or if TERM
// is unset, empty, or "dumb". Lookup reads the environment.
func Is(f *os.File, lookup func(string) (string, bool)) bool {
	if term, ok := lookup("TERM"); !ok || term == "" || term == "dumb" {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// size returns the width and the height of a terminal, or 80 and 24 if they are unknown.
func size(fd int) (width, height int) {
	w, err := unix.IoctlGetWinsize(fd, unix.TIOCGWINSZ)
	if err != nil || w.Col == 0 || w.Row == 0 {
		return 80, 24
	}
	return int(w.Col), int(w.Row)
}

// Columns returns the maximum width of human-readable lines on f: the width of the terminal,
// or 0 for no limit if f is not a terminal.
func Columns(f *os.File) int {
	width := 0
	// Do not use f.Fd: it would set a pipe to blocking mode.
	if conn, err := f.SyscallConn(); err == nil {
		_ = conn.Control(func(fd uintptr) {
			if _, err := unix.IoctlGetTermios(int(fd), unix.TCGETS); err == nil {
				width, _ = size(int(fd))
			}
		})
	}
	return width
}

// inFront reports whether this process may draw on the terminal f. A job in the background of
// the shell would draw over the prompt. Without job control, every process is in the
// foreground.
func inFront(f *os.File) bool {
	group, err := unix.IoctlGetInt(int(f.Fd()), unix.TIOCGPGRP)
	return err != nil || group == unix.Getpgrp()
}

// Bottom displays lines at the bottom of a terminal.
type Bottom struct {
	out *os.File

	mu    sync.Mutex
	lines []string
	shown []string // lines on the terminal
	rest  []byte   // incomplete last line of the output above
}

// NewBottom returns a Bottom without lines. It draws nothing.
func NewBottom(out *os.File) *Bottom { return &Bottom{out: out} }

// Width returns the maximum width of lines. The last column stays unused, because terminals
// differ in what they do after they have filled it.
func (b *Bottom) Width() int {
	w, _ := size(int(b.out.Fd()))
	return max(w-1, 1)
}

// Show replaces the lines. Each line must be at most Width columns wide, and must not contain
// control characters other than SGR sequences.
func (b *Bottom) Show(lines []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lines = lines
	b.draw(nil)
}

// Write prints text above the lines. It prints an incomplete last line when its end arrives. Until
// then, it displays that line if there are lines below it.
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

// Close removes the lines. Later output continues below the earlier output.
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

// draw prints complete lines above, and replaces the lines on the terminal with the current
// ones.
func (b *Bottom) draw(above []byte) error {
	if !inFront(b.out) {
		b.shown = nil // the shell has printed below the lines
		_, err := b.out.Write(above)
		return err
	}
	if len(above)+len(b.shown)+len(b.lines) == 0 {
		return nil
	}
	var out bytes.Buffer
	width, height := size(int(b.out.Fd()))
	// When a terminal becomes narrower, some terminals wrap existing lines, and others, such
	// as xterm, truncate them. A program cannot detect which. Moving up by wrapped rows would
	// overwrite the output above on terminals that truncate. Moving up by lines leaves some
	// old lines on terminals that wrap.
	if n := len(b.shown); n > 0 {
		out.WriteByte('\r')
		if n > 1 {
			fmt.Fprintf(&out, "\x1b[%dA", min(n, height)-1)
		}
	}
	if len(above) > 0 {
		// Clear before printing. After a line that fills its row, clearing to the end of the
		// line would erase the last character.
		out.WriteString(clearRest)
		out.Write(bytes.ReplaceAll(above, []byte("\n"), []byte("\r\n")))
		if bytes.IndexByte(above, 0x1b) >= 0 {
			out.WriteString(plain) // the output may have left a color set
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

// printed returns the visible part of an incomplete line, without control characters. It
// considers only the text after the last carriage return.
func printed(line []byte) string {
	text := strings.TrimRight(string(line), "\r")
	text = text[strings.LastIndexByte(text, '\r')+1:]
	return printable.Text(strings.ReplaceAll(text, "\t", " "))
}
