// Package terminal emulates a terminal for tests of programs that draw: a pseudo-terminal of the
// kernel, and a screen that behaves like xterm.
//
// It supports the control sequences that this project writes. Any other sequence fails the test. It
// does not support colors, and a resize does not rewrap lines.
package terminal

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// A Terminal is an emulated terminal.
type Terminal struct {
	// TTY is the program's side of the pseudo-terminal.
	TTY *os.File

	t      testing.TB
	master *os.File
	ended  chan struct{}

	mu       sync.Mutex
	width    int
	height   int
	screen   [][]rune
	row, col int
	scrolled []string // lines that have scrolled off the screen
	other    [][]rune // the other one of the main and the alternate screen
	raw      strings.Builder
}

// New opens a terminal, which is closed at the end of the test.
func New(t testing.TB, width, height int) *Terminal {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	tty, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	x := &Terminal{TTY: tty, t: t, master: master, ended: make(chan struct{})}
	x.Resize(width, height)
	go x.read()
	t.Cleanup(func() {
		x.Type("\n") // a reader that still waits for a key would keep the terminal open
		tty.Close()
		<-x.ended
		master.Close()
	})
	return x
}

// Resize changes the size. Lines longer than the new width are truncated.
func (x *Terminal) Resize(width, height int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if err := unix.IoctlSetWinsize(int(x.master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: uint16(height), Col: uint16(width)}); err != nil {
		x.t.Fatal(err)
	}
	x.width, x.height = width, height
	for len(x.screen) > height {
		x.scroll()
	}
	for len(x.screen) < height {
		x.screen = append(x.screen, nil)
	}
	for i := range x.screen {
		x.screen[i] = x.screen[i][:min(len(x.screen[i]), width)]
	}
}

// Type sends keys to the program.
func (x *Terminal) Type(keys string) {
	if _, err := x.master.WriteString(keys); err != nil {
		x.t.Error(err)
	}
}

// Screen returns the text on the screen, without empty lines at its end.
func (x *Terminal) Screen() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return text(x.screen)
}

// All returns all printed lines: lines that have scrolled off the screen, and the screen.
func (x *Terminal) All() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return strings.TrimLeft(strings.Join(append(append([]string(nil), x.scrolled...), text(x.screen)), "\n"), "\n")
}

// Raw returns all bytes that the program has written.
func (x *Terminal) Raw() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.raw.String()
}

// Await waits until the screen contains want. The timeout is long, for busy machines.
func (x *Terminal) Await(want string) {
	x.t.Helper()
	for end := time.Now().Add(10 * time.Minute); !strings.Contains(x.Screen(), want); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			x.t.Fatalf("the screen does not show %q:\n%s", want, x.Screen())
		}
	}
}

func text(screen [][]rune) string {
	lines := make([]string, len(screen))
	for i, line := range screen {
		lines[i] = strings.TrimRight(string(line), " ")
	}
	return strings.TrimRight(strings.Join(lines, "\n"), "\n")
}

// read processes the output until all writers have closed the other side.
func (x *Terminal) read() {
	defer close(x.ended)
	var rest []byte
	buffer := make([]byte, 4096)
	for {
		n, err := x.master.Read(buffer)
		x.mu.Lock()
		x.raw.Write(buffer[:n])
		rest = x.do(append(rest, buffer[:n]...))
		x.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// do processes output and returns an incomplete sequence at its end.
func (x *Terminal) do(b []byte) (rest []byte) {
	for len(b) > 0 {
		switch c := b[0]; {
		case c == 0x1b:
			n := x.sequence(b)
			if n == 0 {
				return b
			}
			b = b[n:]
			continue
		case c == '\r':
			x.col = 0
		case c == '\n':
			x.newline()
		case c < ' ':
			x.t.Errorf("control character %#x", c)
		default:
			if !utf8.FullRune(b) {
				return b
			}
			r, n := utf8.DecodeRune(b)
			x.put(r)
			b = b[n:]
			continue
		}
		b = b[1:]
	}
	return nil
}

func (x *Terminal) newline() {
	if x.row++; x.row == x.height {
		x.scroll()
		x.screen = append(x.screen, nil)
	}
}

// scroll removes the top line from the screen.
func (x *Terminal) scroll() {
	x.scrolled = append(x.scrolled, strings.TrimRight(string(x.screen[0]), " "))
	x.screen = x.screen[1:]
	x.row = max(x.row-1, 0)
}

func (x *Terminal) put(r rune) {
	if x.col == x.width {
		x.col = 0
		x.newline()
	}
	line := x.screen[x.row]
	for len(line) <= x.col {
		line = append(line, ' ')
	}
	line[x.col] = r
	x.screen[x.row] = line
	x.col++
}

// sequence processes an escape sequence and returns its length, or 0 if it is incomplete.
func (x *Terminal) sequence(b []byte) int {
	if len(b) < 2 {
		return 0
	}
	if b[1] != '[' {
		x.t.Errorf("unknown sequence %q", b[:2])
		return 2
	}
	end := 2
	for end < len(b) && (b[end] < 0x40 || b[end] > 0x7e) {
		end++
	}
	if end == len(b) {
		return 0
	}
	arguments, kind := string(b[2:end]), b[end]
	n, err := strconv.Atoi(arguments)
	if err != nil {
		n = 1
	}
	switch {
	case kind == 'm':
	case kind == 'A':
		x.row = max(x.row-n, 0)
	case kind == 'K' && arguments == "":
		x.screen[x.row] = x.screen[x.row][:min(len(x.screen[x.row]), x.col)]
	case kind == 'J' && arguments == "":
		x.screen[x.row] = x.screen[x.row][:min(len(x.screen[x.row]), x.col)]
		for i := x.row + 1; i < x.height; i++ {
			x.screen[i] = nil
		}
	case kind == 'H' && arguments == "":
		x.row, x.col = 0, 0
	case arguments == "?25" && (kind == 'h' || kind == 'l'):
	case arguments == "?1049" && kind == 'h':
		x.other, x.screen = x.screen, make([][]rune, x.height)
	case arguments == "?1049" && kind == 'l':
		x.screen = x.other
	default:
		x.t.Errorf("unknown sequence %q", b[:end+1])
	}
	return end + 1
}
