package output

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"
)

const (
	// maxFollow is the maximum number of bytes that a Follower returns in one call, so that the
	// reader of a program that prints gigabytes stays cheap.
	maxFollow = 1 << 20
	// minChunk and maxChunk are the numbers of bytes of the first read and of later ones.
	minChunk, maxChunk = 8 << 10, 256 << 10
	// endChecks is how often a Follower reads the end of a tail file before it concludes that no
	// mark follows. A reader may see only the first part of a write.
	endChecks = 3
)

// A Follower reads the output of a rank, or of a node, while it is written. It continues in the tail
// files after the first half of the limit.
type Follower struct {
	open   Open
	base   string
	offset int64 // in the whole output
	tail   bool  // output of a tail file was read
}

// Follow returns a follower that starts with the first byte of an output. Base is the result of
// [RankBase] or [NodeBase].
func Follow(open Open, base string) *Follower { return &Follower{open: open, base: base} }

// followedPart is a file of an output that is being read.
type followedPart struct {
	file   *os.File
	header int64 // bytes before the output in the file
	offset int64 // of the first byte in the whole output
	end    int64 // of the output in the file; -1 if it is still written and ends with a mark
}

// Next returns the output since the last call: at most the last 1 MiB. Gap reports that output before
// b was not read: too much was written, or it has been overwritten. Output that does not exist yet is
// empty.
func (f *Follower) Next() (b []byte, gap bool, err error) {
	parts, err := f.openParts()
	defer func() {
		for _, p := range parts {
			p.file.Close()
		}
	}()
	if err != nil {
		return nil, false, err
	}
	offset := f.offset
	if !f.tail && len(parts) > 1 && parts[0].header == 0 {
		offset = min(offset, parts[0].end) // the note at the end of the first file may have been read as output
	}
	for _, p := range parts {
		if p.end >= 0 && offset >= p.offset+p.end-p.header {
			continue
		}
		if offset < p.offset {
			b, gap, offset = nil, true, p.offset
		}
		text, skipped, ok, err := p.read(offset)
		if err != nil {
			return nil, false, err
		}
		if !ok {
			break // it was replaced meanwhile
		}
		offset += skipped + int64(len(text))
		f.tail = f.tail || p.header > 0
		if skipped > 0 {
			b, gap = nil, true
		}
		b = append(b, text...)
	}
	if extra := len(b) - maxFollow; extra > 0 {
		b, gap = b[extra:], true
	}
	f.offset = offset
	return b, gap, nil
}

// openParts opens the files of the output, in order.
func (f *Follower) openParts() (parts []followedPart, err error) {
	names := Parts(f.base)
	for i, name := range names {
		file, err := f.open(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return parts, err
		}
		p := followedPart{file: file}
		if i > 0 {
			var ok bool
			if p.offset, p.header, ok = p.readHeader(); !ok { // it is being created
				file.Close()
				continue
			}
		}
		parts = append(parts, p)
	}
	slices.SortStableFunc(parts, func(a, b followedPart) int { return cmp.Compare(a.offset, b.offset) })
	for i := range parts {
		if err := parts[i].findEnd(i == len(parts)-1); err != nil {
			return parts, err
		}
	}
	return parts, nil
}

// readHeader reads the first line of a tail file.
func (p *followedPart) readHeader() (offset, length int64, ok bool) {
	b := make([]byte, len(tailHeader)+24)
	n, _ := p.file.ReadAt(b, 0)
	offset, rest, ok := parseHeader(b[:n])
	return offset, int64(n - len(rest)), ok
}

// findEnd sets the end of the output in the file. Last is true for the file that is written.
func (p *followedPart) findEnd(last bool) (err error) {
	if p.header > 0 && last {
		p.end = -1
		return nil
	}
	if p.header == 0 {
		p.end, err = endOfHead(p.file)
		return err
	}
	info, err := p.file.Stat()
	if err != nil {
		return err
	}
	p.end = info.Size()
	return nil
}

// read returns the last 1 MiB of the output from an offset, and how many bytes it skipped before. It
// returns false if the file got other content meanwhile.
func (p *followedPart) read(offset int64) (text []byte, skipped int64, ok bool, err error) {
	at := p.header + offset - p.offset
	if p.end >= 0 {
		if skipped = max(0, p.end-at-maxFollow); skipped > 0 {
			at += skipped
		}
		text = make([]byte, p.end-at)
		n, err := p.file.ReadAt(text, at)
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, 0, false, err
		}
		text = text[:n]
	} else {
		for range endChecks {
			var marked bool
			if text, skipped, marked, err = p.readMarked(at); err != nil || marked {
				break
			}
		}
	}
	if err == nil && p.header > 0 {
		now, _, valid := p.readHeader()
		if !valid || now != p.offset {
			return nil, 0, false, nil
		}
	}
	return text, skipped, err == nil, err
}

// readMarked reads a file from a position up to the mark at the end of the newest output, or up to
// the end of the file.
func (p *followedPart) readMarked(at int64) (text []byte, skipped int64, marked bool, err error) {
	searched := 0
	for chunk := minChunk; ; chunk = min(4*chunk, maxChunk) {
		begin := len(text)
		text = slices.Grow(text, chunk)[:begin+chunk]
		n, err := p.file.ReadAt(text[begin:], at+skipped+int64(begin))
		text = text[:begin+n]
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, 0, false, err
		}
		if i := bytes.Index(text[searched:], []byte(tailEnd)); i >= 0 {
			return text[:searched+i], skipped, true, nil
		}
		if err != nil {
			return text, skipped, false, nil
		}
		if drop := len(text) - maxFollow; drop >= maxFollow {
			text, skipped = append(text[:0], text[drop:]...), skipped+int64(drop)
		}
		searched = max(0, len(text)-len(tailEnd))
	}
}
