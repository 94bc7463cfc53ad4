// Package ctxio ties reads of files to a context.
//
// A program that verifies a checkpoint of terabytes, or reads data from a slow file system,
// must still stop when it is told to. The readers of this package read in pieces and check
// the context between them. They do not interrupt a read that the kernel waits for.
package ctxio

import (
	"context"
	"io"
)

// pieceBytes is the most that is read between two checks: less than a millisecond from the
// page cache.
const pieceBytes = 1 << 20

// Reader returns a reader of r that fails with the cause of the context once that has ended.
func Reader(ctx context.Context, r io.Reader) io.Reader { return reader{ctx, r} }

type reader struct {
	ctx context.Context
	r   io.Reader
}

func (r reader) Read(b []byte) (int, error) {
	if r.ctx.Err() != nil {
		return 0, context.Cause(r.ctx)
	}
	return r.r.Read(b[:min(len(b), pieceBytes)])
}

// ReaderAt is [Reader] for an [io.ReaderAt].
func ReaderAt(ctx context.Context, r io.ReaderAt) io.ReaderAt { return readerAt{ctx, r} }

type readerAt struct {
	ctx context.Context
	r   io.ReaderAt
}

func (r readerAt) ReadAt(b []byte, at int64) (n int, err error) {
	for {
		if r.ctx.Err() != nil {
			return n, context.Cause(r.ctx)
		}
		piece := b[n:min(len(b), n+pieceBytes)]
		read, err := r.r.ReadAt(piece, at+int64(n))
		if n += read; err != nil || n == len(b) {
			return n, err
		}
	}
}
