package main

import (
	"bytes"
	"io"
	"os"
)

// tail is a log of a run that grows.
type tail struct {
	open   func() (*os.File, error)
	prefix string // before each line, if there is one
	at     int64  // what has been copied
	rest   []byte // with a prefix: the beginning of a line whose end is not there yet
}

// copy copies what was appended since the last call. A file that has become shorter is a
// new file, and copy starts at its beginning.
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
	tailBytes   = 1 << 20 // of a log that are in memory at once, beside one line
	longestLine = 1 << 20 // a longer one is told in parts
)

// end copies a last line that has no end.
func (t *tail) end(w io.Writer) {
	if len(t.rest) > 0 {
		// Writes that fail are noticed by the program's output.
		_, _ = w.Write(append(append([]byte(t.prefix), t.rest...), '\n'))
		t.rest = nil
	}
}
