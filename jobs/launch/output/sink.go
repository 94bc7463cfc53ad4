package output

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// maxPending is the maximum number of bytes that wait for a destination.
	maxPending = blockBytes
	// atomicBytes is PIPE_BUF of Linux: the kernel does not mix shorter writes of several
	// processes to one pipe.
	atomicBytes = 4096
	// forwardBytes and fileBytes are the maximum numbers of bytes of a write, so that a slow
	// destination shows that it takes output.
	forwardBytes = 64 << 10
	fileBytes    = 512 << 10
)

// A sink writes to a destination in its own goroutine, so that a destination that blocks, such as
// a file system that does not respond, cannot block a program. A slow destination delays the
// program. If a destination takes nothing for a while, the sink drops output until the destination
// continues, and writes the number of dropped bytes.
type sink struct {
	w       io.Writer
	timeout time.Duration // maximum delay by a destination that takes nothing
	shared  bool          // other processes write to the same pipe
	most    int           // maximum number of bytes of a write
	failed  func(error)   // receives the first write error, but not EPIPE

	producer sync.Mutex // held by write, which releases mu while it waits for space
	mu       sync.Mutex
	pending  []piece
	size     int    // bytes of memory of pending
	spare    []byte // a buffer for the next piece
	lost     int64  // bytes dropped since the last byte that was added
	unsaved  int64  // bytes that could not be written since the last byte that was written; for run only
	stalled  bool
	broken   bool // the reader of the destination has closed its end
	lane     int  // lane of the last output
	midLine  bool // the last output does not end a line
	closed   bool

	more     chan struct{} // a signal that there is output to write
	accepted chan struct{} // a signal that the destination has accepted output
	done     chan struct{} // closed when the goroutine has ended
}

func newSink(w io.Writer, timeout time.Duration, failed func(error)) *sink {
	s := &sink{w: w, timeout: timeout, failed: failed, most: fileBytes,
		more: make(chan struct{}, 1), accepted: make(chan struct{}, 1), done: make(chan struct{})}
	go s.run()
	return s
}

func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// A piece is output that waits for a destination.
type piece struct {
	b     []byte
	block *block // owner of b; nil if b belongs to the sink
}

// write adds output of a lane. Output of a different lane begins on a new line. If most of a block
// is added, the sink keeps the block instead of a copy. Block is nil if b belongs to the caller.
func (s *sink) write(lane int, b []byte, block *block) {
	if len(b) == 0 {
		return
	}
	if len(b) < blockBytes/2 {
		block = nil
	}
	s.producer.Lock()
	defer s.producer.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broken {
		return
	}
	if !s.waitForSpace(len(b) + 256) { // the line about dropped output is shorter than 256 bytes
		s.lost += int64(len(b))
		return
	}
	if s.lost > 0 {
		s.add(missing(s.lost))
		s.lost, s.midLine = 0, false
	}
	if s.midLine && lane != s.lane {
		s.add([]byte("\n"))
	}
	if block != nil {
		block.users.Add(1)
		s.pending, s.size = append(s.pending, piece{b, block}), s.size+blockBytes
	} else {
		s.add(b)
	}
	s.lane, s.midLine = lane, b[len(b)-1] != '\n'
	notify(s.more)
}

// add adds a copy of b.
func (s *sink) add(b []byte) {
	last := len(s.pending) - 1
	if last < 0 || s.pending[last].block != nil {
		s.pending, s.spare = append(s.pending, piece{b: s.spare[:0]}), nil
		last++
	}
	s.pending[last].b = append(s.pending[last].b, b...)
	s.size += len(b)
}

// missing returns the line that replaces lost output.
func missing(n int64) []byte {
	return fmt.Appendf(nil, "\nddpbatch: %d bytes are missing here: they could not be written\n", n)
}

// waitForSpace waits until n more bytes fit. It reports false if the destination takes nothing for
// too long.
func (s *sink) waitForSpace(n int) bool {
	fits := func() bool { return s.size+n <= maxPending || s.size == 0 }
	if fits() || s.stalled {
		return fits()
	}
	timer := time.NewTimer(s.timeout)
	defer timer.Stop()
	for !fits() {
		s.mu.Unlock()
		select {
		case <-s.accepted:
			timer.Reset(s.timeout)
			s.mu.Lock()
		case <-timer.C:
			s.mu.Lock()
			s.stalled = !fits()
			return !s.stalled
		}
	}
	return true
}

func (s *sink) run() {
	defer close(s.done)
	var pieces []piece
	for {
		s.mu.Lock()
		for len(s.pending) == 0 {
			if s.closed {
				lost := s.lost
				s.mu.Unlock()
				if s.unsaved += lost; s.unsaved > 0 {
					_ = s.put(nil)
				}
				return
			}
			s.mu.Unlock()
			<-s.more
			s.mu.Lock()
		}
		pieces, s.pending, s.size = s.pending, pieces[:0], 0
		s.mu.Unlock()
		for i, p := range pieces {
			s.putAll(p.b)
			pieces[i] = piece{}
			if p.block != nil {
				p.block.release()
				continue
			}
			s.mu.Lock()
			s.spare = p.b
			s.mu.Unlock()
		}
	}
}

// putAll writes b in several writes.
func (s *sink) putAll(b []byte) {
	for rest := b; len(rest) > 0; {
		n := len(rest)
		if n > s.most {
			if n = lastLineEnd(rest[:s.most]); n == 0 {
				n = s.most
			}
		}
		if s.shared && n > atomicBytes {
			if n = lastLineEnd(rest[:atomicBytes]); n == 0 {
				n = lineEnd(rest)
			}
		}
		err := s.put(rest[:n])
		rest = rest[n:]
		s.mu.Lock()
		s.broken = s.broken || errors.Is(err, unix.EPIPE)
		s.stalled = false
		broken := s.broken
		s.mu.Unlock()
		notify(s.accepted)
		if err != nil && !broken && s.failed != nil {
			s.failed(err)
			s.failed = nil
		}
	}
}

// put writes b, after a line about earlier output that could not be written.
func (s *sink) put(b []byte) error {
	if s.unsaved > 0 {
		if _, err := s.w.Write(missing(s.unsaved)); err != nil {
			s.unsaved += int64(len(b))
			return err
		}
		s.unsaved = 0
	}
	n, err := s.w.Write(b)
	s.unsaved += int64(len(b) - n)
	return err
}

// lastLineEnd returns the number of bytes to the end of the last complete line of b, or 0. It
// searches b in pieces from the end, because the search for the first newline is much faster.
func lastLineEnd(b []byte) int {
	const piece = 1024
	for end := len(b); end > 0; end -= piece {
		part := b[max(0, end-piece):end]
		if bytes.IndexByte(part, '\n') >= 0 {
			return max(0, end-piece) + bytes.LastIndexByte(part, '\n') + 1
		}
	}
	return 0
}

// lineEnd returns the number of bytes to the end of the first line of b.
func lineEnd(b []byte) int {
	if at := bytes.IndexByte(b, '\n'); at >= 0 {
		return at + 1
	}
	return len(b)
}

// close waits until the output is written. It gives up if the destination takes nothing for the
// given time, or soon after ctx is done. It reports whether the goroutine has ended.
func (s *sink) close(ctx context.Context, timeout time.Duration) (ended bool) {
	s.mu.Lock()
	s.closed = true
	if s.stalled { // it has taken nothing for a while
		timeout = min(timeout, closeTimeout)
	}
	s.mu.Unlock()
	notify(s.more)
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	canceled := ctx.Done()
	var limit <-chan time.Time
	for {
		select {
		case <-s.done:
			return true
		case <-s.accepted:
			timer.Reset(timeout)
		case <-timer.C:
			return false
		case <-canceled:
			canceled, limit = nil, time.After(closeTimeout)
		case <-limit:
			return false
		}
	}
}
