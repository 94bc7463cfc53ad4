package output

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A Mode selects the output that is forwarded to the log of the run. The files of the ranks have
// all output in every mode.
type Mode string

// Values of Mode.
const (
	Merged  Mode = "merged"   // all ranks
	Labeled Mode = "labeled"  // all ranks; each line begins with the rank
	PerRank Mode = "per-rank" // none
	Rank0   Mode = "rank0"    // rank 0 only
)

const (
	// DefaultLimit is the default of [Options].Limit.
	DefaultLimit = 64 << 20
	// maxLine is the maximum length of a line that is not split, in bytes.
	maxLine = 64 << 10
	// batchDelay is the maximum pause between reads. It lets a pipe collect many lines, because
	// each read costs much more than the bytes that it returns.
	batchDelay = 25 * time.Millisecond
	// minBatchDelay is the shortest pause that is worth its own cost.
	minBatchDelay = 2 * time.Millisecond
	// maxCollect is the maximum time for which output is collected before it is written, while the
	// program prints much.
	maxCollect = 3 * batchDelay
	// minRead is the minimum free space in a block for another read: the output of a program in one
	// pause, see pace.
	minRead = 3 * blockBytes / 8
	// fileTimeout and outTimeout limit how long a file system, or the reader of the log, can delay a
	// program while it accepts nothing. Later output is dropped until the destination continues.
	fileTimeout = 5 * time.Second
	outTimeout  = 30 * time.Second
	// closeTimeout limits how long destinations can delay the end of a rank if the attempt has
	// failed, or if they have accepted nothing for a while.
	closeTimeout = 2 * time.Second
)

// lineDelay is how long the start of a line waits for its end, such as a prompt or a progress bar.
// Tests change it.
var lineDelay = 100 * time.Millisecond

// Options describe a capture.
type Options struct {
	Mode Mode
	// Rank is the rank of the program, or the node rank if Workers is set.
	Rank int
	// Base is the common part of the names of the files, for a component; see [ComponentBase].
	Base string
	// Workers reports that the program starts several ranks itself, as torchrun does. The ranks
	// are identified by the processes that print, except in the mode Merged.
	Workers bool
	// Dir creates the files. If it is nil, there are no files.
	Dir Dir
	// Limit is the maximum size of the output of a rank in Dir, in bytes.
	Limit int64
	// Stdout and Stderr receive the output that is forwarded.
	Stdout, Stderr *os.File
	// Shared reports that other ranks also write to Stdout and Stderr.
	Shared bool
	// Warn receives the first write error of each destination, and one warning if output is missing at
	// the end. It may be called concurrently.
	Warn func(message string)
}

// A Capture copies the output of the program of a rank to files and to the output of the launcher,
// in whole lines.
type Capture struct {
	// Stdout and Stderr are for the program.
	Stdout, Stderr *os.File

	o          Options
	out        map[*os.File]*sink
	streams    []*capturedStream
	undo       []func()
	mu         sync.Mutex
	files      map[int]*fileSink
	names      *workerNames
	texts      blocks // of all lanes
	laneNumber int
}

type fileSink struct {
	*sink
	file *rankFile
}

// agent replaces the rank for processes that do not belong to a rank, such as torchrun itself.
const agent = -1

// StartCapture starts to copy. The caller gives Stdout and Stderr to the program, and calls Close
// after its end.
func StartCapture(o Options) (*Capture, error) {
	if o.Limit <= 0 {
		o.Limit = DefaultLimit
	}
	c := &Capture{o: o, out: map[*os.File]*sink{}, files: map[int]*fileSink{}, names: newWorkerNames(), texts: newBlocks()}
	var err error
	if c.Stdout, err = c.add(o.Stdout); err == nil {
		c.Stderr = c.Stdout
		if !SameFile(o.Stdout, o.Stderr) { // a single stream keeps the order
			c.Stderr, err = c.add(o.Stderr)
		}
	}
	if err != nil {
		c.Close(context.Background())
		return nil, fmt.Errorf("capture the output of the program: %w", err)
	}
	return c, nil
}

// SameFile reports whether a and b are the same file, pipe, or terminal.
func SameFile(a, b *os.File) bool {
	one, err := a.Stat()
	if err != nil {
		return false
	}
	other, err := b.Stat()
	return err == nil && os.SameFile(one, other)
}

// capturedStream is a file that a program writes to.
type capturedStream struct {
	write   *os.File
	master  *os.File // of a pseudo-terminal; nil otherwise
	fd      int      // to read from, non-blocking
	wake    int      // eventfd that interrupts the wait for output
	socket  bool
	to      *os.File
	pipe    int           // capacity of the pipe in bytes; 0 for a socket or a terminal
	lanes   map[int]*lane // by rank
	closing atomic.Bool
	done    chan struct{}
}

// add opens a file for the program whose content is forwarded to the given file: a
// pseudo-terminal, a socket, or a pipe.
func (c *Capture) add(to *os.File) (*os.File, error) {
	c.mu.Lock()
	if c.out[to] == nil {
		s := newSink(to, outTimeout, func(err error) {
			c.o.Warn(fmt.Sprintf("forward the output of the program: %v; the run continues without it", err))
		})
		s.shared, s.most = c.o.Shared, forwardBytes
		c.out[to] = s
	}
	c.mu.Unlock()
	s := &capturedStream{to: to, fd: -1, wake: -1, lanes: map[int]*lane{}, done: make(chan struct{})}
	if err := c.open(s); err != nil {
		s.close()
		return nil, err
	}
	c.streams = append(c.streams, s)
	go c.copy(s)
	return s.write, nil
}

// open opens the two ends of a stream.
func (c *Capture) open(s *capturedStream) (err error) {
	if s.wake, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return err
	}
	var ends [2]int
	if s.socket = c.o.Workers && c.o.Mode != Merged; s.socket {
		if ends, err = unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		// Each read then returns the process that has written.
		err = unix.SetsockoptInt(ends[0], unix.SOL_SOCKET, unix.SO_PASSCRED, 1)
	} else if state, terr := termios(s.to); terr == nil && s.openTerminal(state) == nil {
		c.undo = append(c.undo, followSize(s.to, s.master), pollSize(s.to, s.master))
		return nil
	} else if err = unix.Pipe2(ends[:], unix.O_CLOEXEC); err != nil {
		return err
	}
	s.fd, s.write = ends[0], os.NewFile(uintptr(ends[1]), "output")
	if !s.socket {
		s.pipe = setCapacity(s.write)
	}
	return errors.Join(err, unix.SetNonblock(s.fd, true))
}

// openTerminal opens a pseudo-terminal. It fails if none is free, or if this container does not
// support them.
func (s *capturedStream) openTerminal(state *unix.Termios) error {
	master, slave, err := openTerminal(s.to, state)
	if err != nil {
		return err
	}
	err = control(master, func(fd int) error {
		s.fd, err = unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
		return err
	})
	if err != nil {
		master.Close()
		slave.Close()
		return err
	}
	s.master, s.write = master, slave
	return nil
}

func (s *capturedStream) close() {
	for _, f := range []*os.File{s.write, s.master} {
		if f != nil {
			f.Close()
		}
	}
	for _, fd := range []int{s.fd, s.wake} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}

// pipeSizes are the capacities of a pipe to try. The kernel limits the pipes of all processes of a
// user (pipe-user-pages-soft in proc(5)).
var pipeSizes = []int{1 << 20, 256 << 10, 64 << 10}

// setCapacity increases the capacity of a pipe. It returns the capacity in bytes, or 4096 if it cannot
// set one.
func setCapacity(pipe *os.File) (capacity int) {
	for _, size := range pipeSizes {
		if control(pipe, func(fd int) error {
			_, err := unix.FcntlInt(uintptr(fd), unix.F_SETPIPE_SZ, size)
			return err
		}) == nil {
			return size
		}
	}
	return 4096
}

// sizeInterval is the interval at which the size of a terminal is compared. The kernel reports a
// new size only to the foreground process group, which the process of a rank is not in.
const sizeInterval = time.Second

// pollSize copies the size of a terminal regularly, until stop is called.
func pollSize(from, to *os.File) (stop func()) {
	tick, done := time.NewTicker(sizeInterval), make(chan struct{})
	go func() {
		for {
			select {
			case <-tick.C:
				copySize(from, to)
			case <-done:
				return
			}
		}
	}()
	return func() {
		tick.Stop()
		close(done)
	}
}

// wait waits for output, at most for the given time, or without a limit if it is negative. It
// reports whether the stream can be read. It calls poll(2), because Go's poller wakes this process
// for each write of the program even if no goroutine waits for it.
func (s *capturedStream) wait(timeout time.Duration) (readable bool) {
	milliseconds := -1
	if timeout >= 0 {
		milliseconds = int(timeout.Milliseconds()) + 1
	}
	fds := []unix.PollFd{{Fd: int32(s.fd), Events: unix.POLLIN}, {Fd: int32(s.wake), Events: unix.POLLIN}}
	if _, err := unix.Poll(fds, milliseconds); err != nil {
		return false // EINTR
	}
	if fds[1].Revents != 0 {
		var count [8]byte
		_, _ = unix.Read(s.wake, count[:])
	}
	return fds[0].Revents != 0
}

// receive reads the available output, and returns the process that wrote it. The process is 0 if
// it is unknown.
func (s *capturedStream) receive(b, extra []byte) (n, pid int, err error) {
	if !s.socket {
		n, err = readNow(s.fd, b)
	} else {
		var length int
		n, length, _, _, err = unix.Recvmsg(s.fd, b, extra, unix.MSG_CMSG_CLOEXEC)
		if messages, e := unix.ParseSocketControlMessage(extra[:max(length, 0)]); e == nil {
			for i := range messages {
				if cred, e := unix.ParseUnixCredentials(&messages[i]); e == nil {
					pid = int(cred.Pid)
				}
			}
		}
	}
	switch {
	case err == unix.EAGAIN || err == unix.EINTR:
		return 0, 0, nil
	case err == nil && n == 0:
		err = io.EOF
	}
	return max(n, 0), pid, err
}

// readNow reads from a non-blocking file. Unlike unix.Read, it does not prepare for a call that
// blocks, which costs more CPU time than the read itself: the Go runtime then watches the thread.
func readNow(fd int, b []byte) (n int, err error) {
	r, _, errno := unix.RawSyscall(unix.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
	if errno != 0 {
		return 0, errno
	}
	return int(r), nil
}

// copy reads a stream until its end.
func (c *Capture) copy(s *capturedStream) {
	defer close(s.done)
	defer c.flush(s, time.Time{})
	extra := make([]byte, unix.CmsgSpace(unix.SizeofUcred))
	free := newBlocks()
	current, filled := free.take(), 0
	var first time.Time // time of the first read into the block
	last := time.Now()  // time of the last read, or of the end of the wait before it
	busy := false       // the program prints much
	grace := closeGrace // remaining time to wait for output, after closing
	for rest := maxRest; rest > 0; {
		closing := s.closing.Load()
		// After much output, a read without a wait before it costs less. In the worst case, it
		// returns nothing.
		if !busy || closing && filled == 0 {
			timeout := time.Duration(-1)
			if oldest := c.oldestStart(s); closing {
				timeout = max(0, grace)
			} else if !oldest.IsZero() {
				timeout = max(0, time.Until(oldest.Add(lineDelay)))
			}
			began := time.Now()
			readable := s.wait(timeout)
			if closing {
				grace -= time.Since(began)
			}
			if !readable {
				if closing && grace <= 0 {
					return
				}
				c.flush(s, time.Now().Add(-lineDelay))
				continue
			}
			if now := time.Now(); now.Sub(began) > minBatchDelay {
				last = now // there was no output before
			}
		}
		n, pid, err := s.receive(current.b[filled:], extra)
		filled += n
		now := time.Now()
		var pause time.Duration
		if pause, busy = s.pace(n, now.Sub(last)); closing {
			pause, busy = 0, false
		}
		last = now
		if first.IsZero() && n > 0 {
			first = now
		}
		if filled > 0 && (!busy || err != nil || len(current.b)-filled < minRead || now.Sub(first) >= maxCollect) {
			c.laneOf(s, pid).add(current.b[:filled], current)
			if current.users.Load() > 1 {
				current.release()
				current = free.take()
			}
			filled, first = 0, time.Time{}
		}
		if err != nil {
			return // all writers have closed the file: EOF, or EIO of a terminal
		}
		if s.socket {
			c.flush(s, time.Now().Add(-2*lineDelay)) // lanes that wait while others print
		}
		if closing {
			rest -= n
		}
		time.Sleep(pause)
	}
}

// pace returns the pause after a read of n bytes, in which the pipe collects output, and whether the
// program prints much. The program has printed the bytes in the given time. In the pause, it fills
// 3/8 of the pipe if it continues to print as fast. Lines of 2 to 4 KiB fill only half of each page,
// so a read of half of the capacity can be a full pipe. Its next pause is shorter, until the pipe is
// no longer full.
func (s *capturedStream) pace(n int, printed time.Duration) (pause time.Duration, busy bool) {
	switch {
	case s.pipe == 0 || n == 0:
		return 0, false
	case n < s.pipe/16:
		return batchDelay, false
	}
	pause = min(batchDelay, time.Duration(float64(printed)*float64(s.pipe)*3/float64(8*n)))
	if pause < minBatchDelay {
		pause = 0
	}
	return pause, true
}

// oldestStart returns when the oldest start of a line of a stream began to wait. It returns the
// zero time if no start waits.
func (c *Capture) oldestStart(s *capturedStream) (oldest time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range s.lanes {
		if len(l.start) > 0 && (oldest.IsZero() || l.since.Before(oldest)) {
			oldest = l.since
		}
	}
	return oldest
}

// flush emits the starts of lines of a stream that wait since the given time or earlier. The zero
// time emits all.
func (c *Capture) flush(s *capturedStream, before time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range s.lanes {
		if len(l.start) > 0 && (before.IsZero() || !l.since.After(before)) {
			l.emit(l.start, nil)
			l.start = l.start[:0]
		}
	}
}

// A lane assembles the lines of one rank on one stream.
type lane struct {
	number int
	file   *fileSink // nil without files
	out    *sink     // nil if the output is not forwarded
	label  []byte    // begins each forwarded line; can be empty
	start  []byte    // start of a line
	since  time.Time // when start began to wait
	text   []byte    // buffer for a few labeled lines
	texts  blocks    // buffers for many labeled lines
	inside bool      // the last forwarded output does not end a line
}

// laneOf returns the lane of a process on a stream.
func (c *Capture) laneOf(s *capturedStream, pid int) *lane {
	rank := c.o.Rank
	if c.o.Workers {
		rank = agent
		if s.socket {
			rank = c.names.rankOf(pid)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if l := s.lanes[rank]; l != nil {
		return l
	}
	c.laneNumber++
	l := &lane{number: c.laneNumber, file: c.fileOf(rank), texts: c.texts}
	switch mode := c.o.Mode; {
	case rank == agent, mode == Merged, mode == Rank0 && rank == 0:
		l.out = c.out[s.to]
	case mode == Labeled:
		l.out, l.label = c.out[s.to], fmt.Appendf(nil, "[rank %d] ", rank)
	}
	s.lanes[rank] = l
	return l
}

// NameWorker sets the rank of a worker, so that its output is attributed to it even if the worker
// ends before its output is read.
func (c *Capture) NameWorker(pid, rank int) { c.names.name(pid, rank) }

// fileOf returns the file of a rank, or nil without files. The caller holds mu.
func (c *Capture) fileOf(rank int) *fileSink {
	if c.o.Dir == nil {
		return nil
	}
	if f := c.files[rank]; f != nil {
		return f
	}
	base := RankBase(rank)
	if rank == agent {
		base = NodeBase(c.o.Rank)
	}
	if c.o.Base != "" {
		base = c.o.Base
	}
	file := &rankFile{dir: c.o.Dir, base: base, limit: c.o.Limit}
	f := &fileSink{newSink(file, fileTimeout, func(err error) {
		c.o.Warn(fmt.Sprintf("write the output of %s: %v; the run continues without it", base, err))
	}), file}
	c.files[rank] = f
	return f
}

// add adds output in a block to a lane.
func (l *lane) add(b []byte, block *block) {
	end := lastLineEnd(b)
	switch {
	case end == 0 && len(l.start)+len(b) < maxLine:
		if len(l.start) == 0 {
			l.since = time.Now()
		}
		l.start = append(l.start, b...)
		return
	case end == 0:
		l.emit(l.start, nil)
		l.emit(b, block)
		l.start = l.start[:0]
		return
	}
	if len(l.start) > 0 {
		first := lineEnd(b)
		l.start = append(l.start, b[:first]...)
		l.emit(l.start, nil)
		b, end, l.start = b[first:], end-first, l.start[:0]
	}
	l.emit(b[:end], block)
	if end < len(b) {
		l.start, l.since = append(l.start, b[end:]...), time.Now()
	}
}

// emit passes output to the destinations. Source is the owner of b, or nil.
func (l *lane) emit(b []byte, source *block) {
	if len(b) == 0 {
		return
	}
	if l.file != nil {
		l.file.write(l.number, b, source)
	}
	if l.out == nil {
		return
	}
	if len(l.label) == 0 {
		l.out.write(l.number, b, source)
		return
	}
	for len(b) > 0 {
		b = b[l.emitLabeled(b):]
	}
}

// emitLabeled forwards lines at the start of b with labels. It returns the number of bytes of b that it
// has forwarded. Labels can multiply the size of short lines, so this may be only a part.
func (l *lane) emitLabeled(b []byte) (done int) {
	var owner *block
	text, most := l.text[:0], blockBytes/4
	if len(b) >= blockBytes/4 {
		owner = l.texts.take()
		defer owner.release()
		text, most = owner.b[:0], len(owner.b)
	}
	for done < len(b) {
		n := lineEnd(b[done:])
		if len(text) > 0 && len(text)+len(l.label)+n > most {
			break
		}
		if !l.inside {
			text = append(text, l.label...)
		}
		text = append(text, b[done:done+n]...)
		done += n
		l.inside = b[done-1] != '\n'
	}
	if owner != nil {
		if cap(text) > cap(owner.b) { // a line and its label did not fit
			owner = nil
		}
		l.out.write(l.number, text, owner)
		return done
	}
	l.out.write(l.number, text, nil)
	l.text = text
	return done
}

// warnAtEnd warns, but does not wait long for a reader of the warning.
func (c *Capture) warnAtEnd(message string) {
	warned := make(chan struct{})
	go func() {
		defer close(warned)
		c.o.Warn(message)
	}()
	select {
	case <-warned:
	case <-time.After(closeTimeout):
	}
}

// Close waits until all output is written. The program must have ended. The output of processes
// that it left behind is lost. If a destination takes nothing for a while, Close warns and drops the
// rest. It waits only for a short time after ctx is done.
func (c *Capture) Close(ctx context.Context) {
	for _, s := range c.streams {
		s.write.Close()
		s.closing.Store(true)
		_, _ = unix.Write(s.wake, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	}
	for _, s := range c.streams {
		<-s.done
	}
	for _, undo := range c.undo {
		undo()
	}
	for _, s := range c.streams {
		s.close()
	}
	var waiting sync.WaitGroup          // concurrent, so that the delays are not summed
	var forwarded, written atomic.Int32 // destinations that have not taken all output
	for _, s := range c.out {
		waiting.Go(func() {
			if !s.close(ctx, outTimeout) {
				forwarded.Add(1)
			}
		})
	}
	for _, f := range c.files {
		waiting.Go(func() {
			if f.close(ctx, fileTimeout) {
				f.file.close()
			} else { // its goroutine still uses the file
				written.Add(1)
			}
		})
	}
	waiting.Wait()
	if forwarded.Load() > 0 {
		c.warnAtEnd("the end of the output of the program was not forwarded, because nothing reads it")
	} else if written.Load() > 0 {
		c.warnAtEnd("the end of the output of the program is missing in its file, because the file system does not respond")
	}
	c.streams, c.undo = nil, nil
}
