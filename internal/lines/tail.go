package lines

import (
	"bytes"
	"io"
	"os"
)

// A Tail copies a growing log.
type Tail struct {
	Open   func() (*os.File, error)
	Prefix string // for each line; can be empty

	at   int64  // bytes copied so far
	rest []byte // with a prefix, an incomplete last line
}

// Copy copies the data that was appended to the log since the last call. If the file is shorter
// than before, it is a new file, and Copy starts at its beginning. With a prefix, an incomplete last
// line waits for its end.
func (t *Tail) Copy(w io.Writer) error {
	f, err := t.Open()
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
	if t.Prefix == "" {
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
			_, err = w.Write(append([]byte(t.Prefix), t.rest[:end+1]...))
			t.rest = t.rest[end+1:]
		}
		if err == nil && len(t.rest) > maxLine {
			err = t.End(w)
		}
		if err != nil || len(text) == 0 {
			return err
		}
	}
}

// tailBytes is the number of bytes to read at a time.
const tailBytes = 1 << 20

// End copies an incomplete last line and ends it. Without a prefix, it does nothing.
func (t *Tail) End(w io.Writer) (err error) {
	if len(t.rest) > 0 {
		_, err = w.Write(append(append([]byte(t.Prefix), t.rest...), '\n'))
		t.rest = nil
	}
	return err
}
