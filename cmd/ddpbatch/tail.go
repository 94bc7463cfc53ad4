package main

import (
	"bytes"
	"io"
	"os"
)

// A tail reads a growing log of a run.
type tail struct {
	open   func() (*os.File, error)
	prefix string // for each line; can be empty
	at     int64  // bytes copied so far
	rest   []byte // with a prefix, an incomplete last line
}

// copy copies the data that was appended to the log since the last call. If the file is
// shorter than before, it is a new file, and copy starts at its beginning.
func (t *tail) copy(w io.Writer) error {
	f, err := t.open()
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if info.Size() < t.at {
		t.at, t.rest = 0, nil
	}
	if _, err := f.Seek(t.at, io.SeekStart); err != nil {
		return err
	}
	if t.prefix == "" {
		n, err := io.Copy(w, f)
		t.at += n
		return err
	}
	for {
		text, err := io.ReadAll(io.LimitReader(f, tailBytes))
		t.at += int64(len(text))
		t.rest = append(t.rest, text...)
		for err == nil {
			end := bytes.IndexByte(t.rest, '\n')
			if end < 0 {
				break
			}
			_, err = w.Write(append([]byte(t.prefix), t.rest[:end+1]...))
			t.rest = t.rest[end+1:]
		}
		if err != nil || len(text) == 0 {
			return err
		}
		if len(t.rest) > longestLine {
			t.end(w)
		}
	}
}

const (
	tailBytes   = 1 << 20 // bytes to read at a time
	longestLine = 1 << 20 // longer lines are split
)

// end copies an incomplete last line and ends it.
func (t *tail) end(w io.Writer) {
	if len(t.rest) > 0 {
		// p.Stdout records failed writes.
		_, _ = w.Write(append(append([]byte(t.prefix), t.rest...), '\n'))
		t.rest = nil
	}
}
