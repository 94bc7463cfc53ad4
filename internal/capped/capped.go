// Package capped limits the memory for data of unknown size: a buffer for the output of programs
// that may print without end, a reader for parsers that store a whole value, and JSON arrays in files
// that another user may own.
package capped

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// A Buffer stores the first Limit bytes written to it and discards the rest. The [bytes.Buffer] is
// not embedded, because io.Copy would use its ReadFrom, which ignores the limit.
type Buffer struct {
	Limit int

	buf bytes.Buffer
	cut bool
}

// Write stores the part of p that fits. It never returns an error, so the program continues.
func (b *Buffer) Write(p []byte) (int, error) {
	n, _ := b.buf.Write(p[:min(len(p), b.Limit-b.buf.Len())])
	b.cut = b.cut || n < len(p)
	return len(p), nil
}

// IsCut reports whether the buffer has discarded bytes.
func (b *Buffer) IsCut() bool { return b.cut }

// Bytes returns the stored bytes, which are valid until the next write.
func (b *Buffer) Bytes() []byte { return b.buf.Bytes() }

// String returns the stored bytes as text.
func (b *Buffer) String() string { return b.buf.String() }

// A Reader limits the size of each value that a parser reads from R. The parser may read ahead by one
// buffer.
type Reader struct {
	R     io.Reader
	Limit int    // bytes of a value
	What  string // name of a value, for the error

	n int // bytes read since the last call of Next
}

// Next begins the next value.
func (r *Reader) Next() { r.n = 0 }

// Read reads from R. It returns an error after more than Limit bytes of a value.
func (r *Reader) Read(b []byte) (int, error) {
	if r.n > r.Limit {
		return 0, fmt.Errorf("no end of a %s within %d bytes", r.What, r.Limit)
	}
	n, err := r.R.Read(b)
	r.n += n
	return n, err
}

// DecodeList decodes a JSON array, for an UnmarshalJSON method. It returns nil for null, and an error
// for more than limit elements. An element needs only 3 bytes in a file, such as "{},", and may need
// hundreds of bytes in memory.
func DecodeList[T any](text []byte, limit int) (list []T, err error) {
	all := json.NewDecoder(bytes.NewReader(text))
	if t, err := all.Token(); err != nil || t == nil {
		return nil, err
	} else if t != json.Delim('[') {
		return nil, errors.New("not an array")
	}
	list = []T{}
	for all.More() {
		if len(list) == limit {
			return nil, fmt.Errorf("an array has more than %d elements", limit)
		}
		var element T
		if err := all.Decode(&element); err != nil {
			return nil, err
		}
		list = append(list, element)
	}
	return list, nil
}
