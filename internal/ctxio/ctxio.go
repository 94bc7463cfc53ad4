// Package ctxio provides readers that stop when a context ends.
//
// A program must stop on request even while it verifies a checkpoint of terabytes, or reads from
// a slow file system. The readers of this package read in pieces and check the context between
// them. They do not interrupt a system call.
package ctxio

import (
	"context"
	"io"
)

// pieceBytes is the maximum size of a read between two checks. Reading it from the page cache
// takes less than a millisecond.
const pieceBytes = 1 << 20

// Reader returns a reader of r that returns the cause of ctx after ctx has ended.
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

// ReaderAt returns a reader of r that returns the cause of ctx after ctx has ended.
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
