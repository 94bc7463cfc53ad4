package data

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"io/fs"

	"github.com/ddpbatch/ddpbatch/internal/ctxio"
	"github.com/ddpbatch/ddpbatch/internal/hints"
)

const (
	// A compressed file may expand to freeExpansion bytes, or to maxExpansion times its size if
	// that is more. Deflate reaches a ratio of 1,032 for a file of equal bytes. Real data stay
	// below 100: sparse one-hot rows as CSV have about 90.
	freeExpansion = 64 << 20
	maxExpansion  = 200
)

// content is the decompressed content of a file. Reading it fails when its context ends.
type content struct {
	io.Closer
	from       io.Reader
	read       int64
	size       int64 // bytes of the content, -1 for a compressed file
	compressed int64 // bytes of a compressed file
}

// openContent opens the file at path.
func openContent(ctx context.Context, path string) (*content, error) {
	raw, _, err := openFile(path)
	if err != nil {
		return nil, err
	}
	return newContent(ctx, raw, path)
}

// newContent returns the content of a file, decompressed if it begins with gzip's magic number,
// whatever its name. Closing it closes raw.
func newContent(ctx context.Context, raw fs.File, path string) (*content, error) {
	fail := func(err error) (*content, error) {
		raw.Close()
		return nil, fmt.Errorf("read %q: %w", path, stripPath(err))
	}
	info, err := raw.Stat()
	if err != nil {
		return fail(err)
	}
	c := &content{Closer: raw, size: info.Size()}
	buffered := bufio.NewReaderSize(ctxio.Reader(ctx, raw), 1<<16)
	c.from = buffered
	if head, _ := buffered.Peek(2); bytes.Equal(head, []byte{0x1f, 0x8b}) {
		if c.from, err = gzip.NewReader(buffered); err != nil {
			return fail(err)
		}
		c.size, c.compressed = -1, info.Size()
	}
	return c, nil
}

// Read implements [io.Reader].
func (c *content) Read(b []byte) (int, error) {
	n, err := c.from.Read(b)
	c.read += int64(n)
	if err := c.checkSize(c.read); err != nil {
		return 0, err
	}
	return n, err
}

// checkSize returns an error if n bytes of content exceed the limit.
func (c *content) checkSize(n int64) error {
	if limit := max(freeExpansion, maxExpansion*c.compressed); c.size < 0 && n > limit {
		return hints.Errorf(fmt.Sprintf("the limit is %d times the file's size; if the content is as intended, decompress the file with gunzip", maxExpansion),
			"the compressed file of %d bytes expands to more than %d bytes", c.compressed, limit)
	}
	return nil
}
