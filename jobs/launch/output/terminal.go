package output

import (
	"fmt"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
)

// control calls do with the descriptor of f without changing the mode of f. f.Fd would set
// blocking mode, and a read could no longer be interrupted.
func control(f *os.File, do func(fd int) error) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	if cerr := conn.Control(func(fd uintptr) { err = do(int(fd)) }); cerr != nil {
		return cerr
	}
	return err
}

// termios returns the settings of a terminal. It returns an error if f is not a terminal.
func termios(f *os.File) (state *unix.Termios, err error) {
	err = control(f, func(fd int) error {
		state, err = unix.IoctlGetTermios(fd, unix.TCGETS)
		return err
	})
	return state, err
}

// openTerminal opens a pseudo-terminal with the size and the settings of f, but without output
// processing and echo. The terminal f itself converts "\n" to "\r\n".
func openTerminal(f *os.File, state *unix.Termios) (master, slave *os.File, err error) {
	master, err = os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, nil, err
	}
	number := 0
	err = control(master, func(fd int) error {
		if number, err = unix.IoctlGetInt(fd, unix.TIOCGPTN); err != nil {
			return err
		}
		return unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	})
	if err == nil {
		slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		master.Close()
		return nil, nil, err
	}
	raw := *state
	raw.Oflag &^= unix.OPOST
	raw.Lflag &^= unix.ECHO
	if err := control(slave, func(fd int) error { return unix.IoctlSetTermios(fd, unix.TCSETS, &raw) }); err != nil {
		master.Close()
		slave.Close()
		return nil, nil, err
	}
	copySize(f, master)
	return master, slave, nil
}

// copySize copies the size of a terminal to another terminal. It does nothing if the first one does not
// have a size.
func copySize(from, to *os.File) {
	_ = control(from, func(fd int) error {
		size, err := unix.IoctlGetWinsize(fd, unix.TIOCGWINSZ)
		if err != nil {
			return err
		}
		return control(to, func(fd int) error { return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, size) })
	})
}

// followSize copies the size whenever it changes, until stop is called.
func followSize(from, to *os.File) (stop func()) {
	resized, done := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(resized, unix.SIGWINCH)
	go func() {
		for {
			select {
			case <-resized:
				copySize(from, to)
			case <-done:
				return
			}
		}
	}()
	return func() {
		signal.Stop(resized)
		close(done)
	}
}
