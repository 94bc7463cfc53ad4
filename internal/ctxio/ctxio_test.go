package ctxio_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"

	"github.com/ddpbatch/ddpbatch/internal/ctxio"
)

// endless is a file without end that stops the context after some reads.
type endless struct {
	reads, last int
	stop        func()
}

func (e *endless) Read(b []byte) (int, error) {
	if e.reads++; e.reads == e.last {
		e.stop()
	}
	return len(b), nil
}

func (e *endless) ReadAt(b []byte, _ int64) (int, error) { return e.Read(b) }

// TestReadersStopWithTheContext checks that a long read returns the cause of its context.
func TestReadersStopWithTheContext(t *testing.T) {
	reason := errors.New("asked to stop")
	for _, c := range []struct {
		name string
		read func(context.Context, *endless) error
	}{
		{"Reader", func(ctx context.Context, e *endless) error {
			_, err := io.Copy(io.Discard, ctxio.Reader(ctx, e))
			return err
		}},
		{"Reader with a large buffer", func(ctx context.Context, e *endless) error {
			_, err := io.ReadFull(ctxio.Reader(ctx, e), make([]byte, 64<<20))
			return err
		}},
		{"ReaderAt with a large buffer", func(ctx context.Context, e *endless) error {
			_, err := ctxio.ReaderAt(ctx, e).ReadAt(make([]byte, 64<<20), 0)
			return err
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			e := &endless{last: 3, stop: func() { cancel(reason) }}
			if err := c.read(ctx, e); !errors.Is(err, reason) {
				t.Errorf("got %v, want %v", err, reason)
			}
			if e.reads != e.last {
				t.Errorf("got %d reads, want %d: none after the stop", e.reads, e.last)
			}
		})
	}
}

// TestReadersReadAll checks that readers return all data and the end of the file.
func TestReadersReadAll(t *testing.T) {
	content := bytes.Repeat([]byte("0123456789abcdef"), 200_000) // more than one piece
	got, err := io.ReadAll(ctxio.Reader(t.Context(), bytes.NewReader(content)))
	if err != nil || !bytes.Equal(got, content) {
		t.Errorf("Reader: %d bytes of %d, %v", len(got), len(content), err)
	}
	at := ctxio.ReaderAt(t.Context(), bytes.NewReader(content))
	if n, err := at.ReadAt(got[:len(content)-5], 5); n != len(content)-5 || err != nil || !bytes.Equal(got[:n], content[5:]) {
		t.Errorf("ReaderAt: %d bytes, %v", n, err)
	}
	if n, err := at.ReadAt(got, 5); n != len(content)-5 || err != io.EOF {
		t.Errorf("ReaderAt behind the end: %d bytes, %v", n, err)
	}
}
