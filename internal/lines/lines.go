// Package lines copies logs line by line. A [Tail] copies the data that is appended to a file, a [Prefixer]
// begins each line with a prefix, and a [Filter] copies only the lines that match a pattern.
//
// Memory is limited: Tail and Filter split lines of more than about 1 MiB. The package does not wait
// for new lines: the caller decides when to call [Tail.Copy] again.
package lines

import (
	"bytes"
	"io"
	"regexp"
)

// maxLine is the maximum length in bytes of a line that is stored. Longer lines are split.
const maxLine = 1 << 20

// A Prefixer begins each line with a prefix.
type Prefixer struct {
	W      io.Writer
	Prefix string

	inside bool // the last byte does not end a line
	buffer []byte
}

// Write writes b with the prefixes in one call.
func (p *Prefixer) Write(b []byte) (int, error) {
	p.buffer = p.buffer[:0]
	for rest := b; len(rest) > 0; {
		n := bytes.IndexByte(rest, '\n') + 1
		if n == 0 {
			n = len(rest)
		}
		if !p.inside {
			p.buffer = append(p.buffer, p.Prefix...)
		}
		p.buffer = append(p.buffer, rest[:n]...)
		p.inside = rest[n-1] != '\n'
		rest = rest[n:]
	}
	_, err := p.W.Write(p.buffer)
	return len(b), err
}

// EndLine ends an incomplete last line.
func (p *Prefixer) EndLine() (err error) {
	if p.inside {
		_, err = p.Write([]byte("\n"))
	}
	return err
}

// A Filter writes only the lines that match a pattern.
type Filter struct {
	W       io.Writer
	Pattern *regexp.Regexp

	line []byte // incomplete
}

// Write writes the complete lines that match. An incomplete last line waits for its end.
func (f *Filter) Write(b []byte) (int, error) {
	for rest := b; len(rest) > 0; {
		line, after, ended := bytes.Cut(rest, []byte("\n"))
		rest = after
		f.line = append(f.line, line...)
		if ended || len(f.line) > maxLine {
			if err := f.Flush(); err != nil {
				return 0, err
			}
		}
	}
	return len(b), nil
}

// Flush writes an incomplete last line if it matches, and ends it.
func (f *Filter) Flush() (err error) {
	if len(f.line) > 0 && f.Pattern.Match(f.line) {
		_, err = f.W.Write(append(f.line, '\n'))
	}
	f.line = f.line[:0]
	return err
}
