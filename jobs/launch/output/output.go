// Package output copies the output of ranks to files, to a log, and to the output of the launcher.
//
// A [Capture] copies the output of the program of one rank, in the process of the rank:
//
//   - Each rank has a file for each attempt. A file has at most a fixed size: the start and the end
//     of longer output, each with whole lines.
//   - Forwarded lines are whole: the output of several ranks is mixed only between lines, or inside
//     a line of more than 64 KiB. A line of more than 4 KiB may be mixed if the ranks share a pipe.
//     srun, which gets the output of ranks in a step, may mix lines of more than 1,024 bytes.
//     The start of a line, such as a prompt, is forwarded after a short delay.
//   - Memory is bounded for any output, such as binary data or endless lines: about 3 MiB for each
//     rank, and 6 MiB if a destination is slow.
//   - A destination that fails, such as a full disk, or that takes nothing, such as a file system
//     that does not respond, does not stop the program. It delays the program once for a few
//     seconds. Later output is dropped and counted, until the destination continues.
//   - If several ranks are below one program, as with torchrun, a socket identifies the process that
//     printed. The rank is the variable RANK of that process, or of a process above it.
//
// A [Copier] copies the output of all ranks on one machine, in the process of the launcher:
//
//   - Bytes pass unchanged, in the order in which they are read. The copier neither parses
//     them nor splits them into lines. So binary output and endless lines need no more memory
//     than text: one 32 KiB buffer per stream.
//   - If the launcher prints to a terminal, the ranks print to a pseudo-terminal of the same
//     size, so that colors and progress bars work. Otherwise they print to a pipe, as they do
//     under srun.
//   - A log that cannot be written, such as on a full disk, does not stop the program. The
//     same holds for a reader that closes its end. The log counts lost bytes, and records
//     their number when it can be written again.
//   - A terminal or pipe that is slow to read delays the program, as without the copy.
//
// The package does not sync files. The last output may be lost if the host fails.
package output

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const (
	bufferBytes = 32 << 10
	// closeGrace is how long [Copier.Close] waits for output of processes that the ranks left
	// behind, and that may never end.
	closeGrace = 500 * time.Millisecond
	// maxRest is how many bytes a copier reads after [Copier.Close] was called. It exceeds the
	// capacity of the largest pipe, unless an administrator raised fs.pipe-max-size.
	maxRest = 2 << 20
)

// A Log is a writer that never fails, although its destination may.
type Log struct {
	mu     sync.Mutex
	to     io.Writer
	warn   func(error)
	warned bool
	lost   int64 // consecutive bytes that could not be written
}

// NewLog returns a log that writes to w. It calls warn for the first write error.
func NewLog(w io.Writer, warn func(error)) *Log { return &Log{to: w, warn: warn} }

// Write writes b to the log. It always returns len(b) and no error.
func (l *Log) Write(b []byte) (int, error) {
	if err := l.write(b); err != nil {
		l.warn(err) // without the mutex: the message may be written to this log
	}
	return len(b), nil
}

// write returns the first error of the log, and nil for all later ones.
func (l *Log) write(b []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var n int
	var err error
	if l.lost > 0 {
		_, err = fmt.Fprintf(l.to, "\nddpbatch: %d bytes are missing here: the log could not be written\n", l.lost)
	}
	if err == nil {
		l.lost = 0
		n, err = l.to.Write(b)
	}
	if err == nil {
		return nil
	}
	l.lost += int64(len(b) - n)
	if l.warned {
		return nil
	}
	l.warned = true
	return err
}

// A Copier copies the output of other processes to a log and to another file.
type Copier struct {
	// Lost, if not nil, is called once if output cannot be forwarded. It is not called if the
	// reader has closed its end, because the reader does not want more output.
	Lost func(error)

	lost    sync.Once
	log     io.Writer
	streams []*stream
	undo    []func()
}

// NewCopier returns a copier that writes to log. Writes to log must not fail.
func NewCopier(log io.Writer) *Copier { return &Copier{log: log} }

// stream is a file that other processes write to.
type stream struct {
	write, read *os.File
	to          io.Writer
	log         io.Writer
	failed      func(error) // receives the errors of to
	closing     atomic.Bool
	done        chan struct{}
}

// Pipe returns a file for other processes to write to. The copier forwards its content to w.
func (c *Copier) Pipe(w io.Writer) (*os.File, error) {
	read, write, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("open a pipe for the output: %w", err)
	}
	return c.start(read, write, w), nil
}

// Like returns a file for other processes to write to: a pseudo-terminal if f is a terminal,
// or else a pipe. The copier forwards its content to f.
func (c *Copier) Like(f *os.File) (*os.File, error) {
	if state, err := termios(f); err == nil {
		if master, slave, err := openTerminal(f, state); err == nil {
			c.undo = append(c.undo, followSize(f, master))
			return c.start(master, slave, f), nil
		}
		// The system has no free pseudo-terminal, or this container does not support them.
	}
	return c.Pipe(f)
}

func (c *Copier) start(read, write *os.File, to io.Writer) *os.File {
	s := &stream{write: write, read: read, to: to, log: c.log, failed: c.reportLost, done: make(chan struct{})}
	c.streams = append(c.streams, s)
	go s.copy()
	return write
}

// reportLost calls Lost for the first error of a stream.
func (c *Copier) reportLost(err error) {
	if c.Lost != nil && !errors.Is(err, unix.EPIPE) {
		c.lost.Do(func() { c.Lost(err) })
	}
}

func (s *stream) copy() {
	defer close(s.done)
	buffer := make([]byte, bufferBytes)
	for rest := maxRest; rest > 0; {
		closing := s.closing.Load()
		if closing {
			// The time counts from here, because the last write may have waited for a reader.
			_ = s.read.SetReadDeadline(time.Now().Add(closeGrace))
		}
		n, err := s.read.Read(buffer)
		if closing {
			rest -= n
		}
		// The log comes first: a terminal may be stopped for hours. The program continues even
		// if its output cannot be forwarded.
		_, _ = s.log.Write(buffer[:n])
		if n > 0 {
			if _, err := s.to.Write(buffer[:n]); err != nil {
				s.failed(err)
			}
		}
		if err != nil && (closing || !errors.Is(err, os.ErrDeadlineExceeded)) {
			return // all writers have closed the file: EOF, or EIO of a terminal
		}
	}
}

// Close waits until all output is forwarded. The processes must have ended. The output of
// processes that they left behind is lost.
func (c *Copier) Close() {
	for _, s := range c.streams {
		s.write.Close()
		s.closing.Store(true)
		_ = s.read.SetReadDeadline(time.Now().Add(closeGrace))
	}
	for _, s := range c.streams {
		<-s.done
		s.read.Close()
	}
	for _, undo := range c.undo {
		undo()
	}
	c.streams, c.undo = nil, nil
}

// Hold keeps pipes readable that this process writes to, until release is called. A program
// that is asked to save after the death of the launcher can therefore still print. Without a
// reader, SIGPIPE would kill it at its first byte.
func Hold(files ...*os.File) (release func()) {
	var held []int
	for _, f := range files {
		info, err := f.Stat()
		if err != nil || info.Mode()&os.ModeNamedPipe == 0 {
			continue
		}
		conn, err := f.SyscallConn()
		if err != nil {
			continue
		}
		_ = conn.Control(func(fd uintptr) {
			path := fmt.Sprintf("/proc/self/fd/%d", fd)
			if reader, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0); err == nil {
				held = append(held, reader)
			}
		})
	}
	return func() {
		for _, fd := range held {
			unix.Close(fd)
		}
	}
}
