// Package capped provides a buffer for the output of programs that may print without end.
package capped

import "bytes"

// A Buffer stores the first Limit bytes written to it and discards the rest. The [bytes.Buffer] is
// not embedded, because io.Copy would use its ReadFrom, which ignores the limit.
type Buffer struct {
	Limit int

	buf bytes.Buffer
}

// Write stores the part of p that fits. It never returns an error, so the program continues.
func (b *Buffer) Write(p []byte) (int, error) {
	b.buf.Write(p[:min(len(p), b.Limit-b.buf.Len())])
	return len(p), nil
}

// Bytes returns the stored bytes, which are valid until the next write.
func (b *Buffer) Bytes() []byte { return b.buf.Bytes() }

// String returns the stored bytes as text.
func (b *Buffer) String() string { return b.buf.String() }
