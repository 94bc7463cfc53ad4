package main

import (
	"fmt"
	"io"
	"os"
	"sync"
)

// A stream is a standard stream of the program. It records the first failed write, such as a full
// disk behind "> FILE", so that callers do not need to check each write. It can be redirected
// while other goroutines write to it.
type stream struct {
	name string // for errors

	mu  sync.Mutex
	to  io.Writer
	err error
}

func (s *stream) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, err := s.to.Write(b)
	if err != nil && s.err == nil {
		s.err = fmt.Errorf("write to %s: %w", s.name, err)
	}
	return n, err
}

// writeError returns the error of the first failed write, or nil.
func (s *stream) writeError() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// target returns the writer that the stream writes to now.
func (s *stream) target() io.Writer {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.to
}

// redirect makes the stream write to another writer. It returns a function that restores the
// previous one.
func (s *stream) redirect(to io.Writer) (restore func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.to
	s.to = to
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.to = before
	}
}

// targetOf returns the writer that receives what is written to w.
func targetOf(w io.Writer) io.Writer {
	switch w := w.(type) {
	case *stream:
		return w.target()
	case *teeWriter:
		return targetOf(w.Writer)
	}
	return w
}

// streamOf returns the stream that w writes to, or nil.
func streamOf(w io.Writer) *stream {
	switch w := w.(type) {
	case *stream:
		return w
	case *teeWriter:
		return streamOf(w.Writer)
	}
	return nil
}

// fileOf returns the file that receives what is written to w. It returns false if w does not
// write to a file.
func fileOf(w io.Writer) (*os.File, bool) {
	f, ok := targetOf(w).(*os.File)
	return f, ok
}
