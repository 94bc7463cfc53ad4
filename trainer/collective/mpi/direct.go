package mpi

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ddpbatch/ddpbatch/trainer/collective"
	"github.com/ddpbatch/ddpbatch/trainer/collective/element"
	"github.com/ddpbatch/ddpbatch/trainer/collective/mpi/libmpi"
)

// message sends or receives one message. A header with type and length precedes it, so that ends
// that do not match detect this before any buffer changes.
func (g *group) message(ctx context.Context, c *collective.Call) error {
	if err := c.Check(g.index, len(g.members)); err != nil {
		return err
	}
	if c.Tag > g.maxTag {
		return fmt.Errorf("tag %d is above %d, the largest of %s", c.Tag, g.maxTag, g.lib.Version)
	}
	buf := c.Send
	if c.Kind == collective.KindReceive {
		buf = c.Recv
	}
	head, err := g.memory.alloc(2 * 8)
	if err != nil {
		return err
	}
	local := collective.Signature{Kind: uint8(collective.KindSend), Type: uint8(c.Type), Bytes: uint64(len(buf))}
	fields := element.View[uint64](head[:2*8])
	fields[0], fields[1] = uint64(local.Type), local.Bytes
	if err := g.transfer(ctx, c, head[:2*8], true); err != nil {
		return err
	}
	remote := collective.Signature{Kind: local.Kind, Type: uint8(fields[0]), Bytes: fields[1]}
	g.memory.release(head)
	if remote != local {
		return &offenderError{c.Root, collective.Diverged(uint64(c.Tag), local, remote)}
	}
	return g.pieces(ctx, c, buf)
}

// pieces sends or receives all of buf through a window. Both ends use the same pieces.
func (g *group) pieces(ctx context.Context, c *collective.Call, buf []byte) error {
	if len(buf) == 0 {
		return nil
	}
	window, err := g.memory.alloc(min(len(buf), windowBytes))
	if err != nil {
		return err
	}
	for from := 0; from < len(buf); from += windowBytes {
		piece := buf[from:min(from+windowBytes, len(buf))]
		if c.Kind == collective.KindSend {
			copy(window, piece)
		}
		if err := g.transfer(ctx, c, window[:len(piece)], false); err != nil {
			return err // the window remains in use by MPI
		}
		if c.Kind == collective.KindReceive {
			copy(piece, window)
		}
	}
	g.memory.release(window)
	return nil
}

// transfer sends or receives bytes; awaitsRanks is the field of [waiting].
func (g *group) transfer(ctx context.Context, c *collective.Call, b []byte, awaitsRanks bool) error {
	r := new(libmpi.Handle)
	g.mu.Lock()
	err := g.checkClosed()
	if err != nil {
		g.mu.Unlock()
		return err
	}
	if c.Kind == collective.KindSend {
		err = g.lib.Isend(address(b), len(b), g.lib.Type(libmpi.Byte), c.Root, c.Tag, g.comm, r)
	} else {
		err = g.lib.Irecv(address(b), len(b), g.lib.Type(libmpi.Byte), c.Root, c.Tag, g.comm, r)
	}
	g.mu.Unlock()
	if err != nil {
		return err
	}
	var since time.Time
	trouble := func() error {
		if t := g.notes.abort; t != nil {
			return t
		}
		if err := g.checkClosed(); err != nil {
			return err
		}
		if _, ok := g.notes.closed[commRank{g.id, g.members[c.Root]}]; !ok {
			return nil
		}
		// Data that the rank sent before it closed may still be in transit.
		if since.IsZero() {
			since = time.Now()
		}
		if time.Since(since) < drainTimeout {
			return nil
		}
		return &offenderError{c.Root, errCommunicatorClosed}
	}
	err = g.wait(ctx, waiting{request: r, failureReason: trouble, awaitsRanks: awaitsRanks})
	var timeoutErr timeoutError
	if errors.As(err, &timeoutErr) {
		return &offenderError{c.Root, err}
	}
	return err
}
