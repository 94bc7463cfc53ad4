package trainlog

import (
	"bytes"
	"io"
	"os"
)

// maxRead is the number of bytes that [Follower.Read] reads at most, so that a program that
// prints gigabytes costs little. Lines in between are skipped.
const maxRead = 1 << 20

// A Follower reads the lines that are appended to a file.
type Follower struct {
	next    func() (b []byte, gap bool, err error)
	open    func() (*os.File, error)
	offset  int64
	partial []byte // start of a line that is not complete yet
	skip    bool   // the current line is incomplete or too long
	gap     bool   // see Gap
	buffer  []byte
	maxRead int64
}

// Follow returns a follower that starts to read at offset. It calls open for each read, because
// other nodes may write to the file.
func Follow(open func() (*os.File, error), offset int64) *Follower {
	return &Follower{open: open, offset: offset, maxRead: maxRead}
}

// FollowFunc returns a follower of text that next returns in parts. The result gap reports that
// text before b is missing.
func FollowFunc(next func() (b []byte, gap bool, err error)) *Follower {
	return &Follower{next: next}
}

// Read calls line for each complete line since the last call. Carriage returns end lines also,
// because progress bars use them. If more than 1 MiB was written, Read skips to the last 1 MiB.
// A file that does not exist yet has no lines. If the file became shorter, Read starts over.
func (f *Follower) Read(line func(string)) error {
	if f.next != nil {
		b, gap, err := f.next()
		if f.gap = gap; gap {
			f.partial, f.skip = nil, true
		}
		f.split(b, line)
		return err
	}
	file, err := f.open()
	if err != nil {
		if os.IsNotExist(err) {
			return nil
		}
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	size := info.Size()
	if size < f.offset {
		f.restart()
	}
	if f.gap = false; size-f.maxRead > f.offset {
		f.offset, f.partial, f.skip, f.gap = size-f.maxRead, nil, true, true
	}
	n := size - f.offset
	if n == 0 {
		return nil
	}
	if int64(cap(f.buffer)) < n {
		f.buffer = make([]byte, n)
	}
	b := f.buffer[:n]
	read, err := file.ReadAt(b, f.offset)
	if err != nil && err != io.EOF {
		return err
	}
	f.offset += int64(read)
	f.split(b[:read], line)
	if cap(f.buffer) > 64<<10 {
		f.buffer = nil // a burst of output; the next read is usually small
	}
	return nil
}

// restart makes the next Read start at the beginning of the file.
func (f *Follower) restart() { f.offset, f.partial, f.skip = 0, nil, false }

// Gap reports whether the last successful [Follower.Read] skipped text.
func (f *Follower) Gap() bool { return f.gap }

func (f *Follower) split(b []byte, line func(string)) {
	for len(b) > 0 {
		end := bytes.IndexAny(b, "\r\n")
		if end < 0 {
			if len(f.partial)+len(b) > maxLine {
				f.partial, f.skip = nil, true
			}
			if !f.skip {
				f.partial = append(f.partial, b...)
			}
			return
		}
		if !f.skip && len(f.partial)+end > 0 {
			line(string(f.partial) + string(b[:end]))
		}
		f.partial, f.skip = f.partial[:0], false
		b = b[end+1:]
	}
}
