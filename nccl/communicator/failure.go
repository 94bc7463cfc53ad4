package communicator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ddpbatch/ddpbatch/nccl/libnccl"
	"github.com/ddpbatch/ddpbatch/trainer/collective"
)

// fault is what befell NCCL on this rank, with what a person must know of it.
type fault struct {
	err  error
	with string
	hint string
}

// Error is the cause, then NCCL's version, the GPU and the interface.
func (f *fault) Error() string { return f.err.Error() + " (" + f.with + ")" }

// Unwrap returns the cause.
func (f *fault) Unwrap() error { return f.err }

// Hint says what to do about it.
func (f *fault) Hint() string { return f.hint }

// setting is what of this rank's setting matters for a failure.
func (c *Comm) setting() string {
	l := c.options.Library
	text := fmt.Sprintf("NCCL %v from %s, GPU %s", l.Version, l.File, c.options.GPU.ID())
	if c.options.Interface != "" {
		text += fmt.Sprintf(", NCCL_SOCKET_IFNAME=%s", c.options.Interface)
	}
	return text
}

const hangHint = "run with NCCL_DEBUG=INFO and NCCL_DEBUG_SUBSYS=INIT,NET,ENV: the last lines of each rank tell what it waits for; firewalls between the nodes and an interface that the others cannot reach (NCCL_SOCKET_IFNAME, NCCL_IB_HCA; compare \"ddpbatch netif\") are the most frequent causes"

// explain says what an initialisation that failed had to do with.
func (c *Comm) explain(err error, id libnccl.UniqueID) error {
	if err == nil {
		return nil
	}
	var host *collective.Error
	if errors.As(err, &host) {
		return err // another rank's failure
	}
	with, hint := c.setting(), hangHint
	if at, ok := id.Addr(); ok {
		with += ", rank 0 listens on " + at.String()
	}
	var of *libnccl.Error
	if errors.As(err, &of) {
		hint = of.Hint()
	}
	return &fault{fmt.Errorf("initialise NCCL on rank %d (%s): %w", c.peers[c.Rank()].Rank, c.options.Host, err), with, hint}
}

// hang is an operation that does not end, so long after the GPU has come to it.
type hang time.Duration

func (h hang) Error() string {
	return fmt.Sprintf("no end within %s, although the GPU has come to it: another rank, NCCL or the network hangs", time.Duration(h))
}

// failed is told by lanes.
func (c *Comm) failed(kind collective.Kind, number uint64, err error) {
	_ = c.fail(kind.String(), number, err)
}

// fail makes an error final, has NCCL's communicators be aborted and the other ranks
// be told; it returns what was final first.
func (c *Comm) fail(op string, number uint64, err error) error {
	if final := c.failure(); final != nil {
		return final
	}
	peer := c.peers[c.Rank()]
	var of *collective.Error
	var other *otherRank
	var by *libnccl.Error
	var stuck hang
	switch {
	case errors.As(err, &of): // from the host's communicator
		peer, err = of.Peer, of.Err
		for _, p := range c.peers {
			if p.Rank == peer.Rank {
				peer = p
			}
		}
	case errors.As(err, &other):
		peer, err = c.peers[other.rank], other.err
	case errors.As(err, &by):
		err = &fault{err, c.setting(), by.Hint()}
	case errors.As(err, &stuck):
		err = &fault{err, c.setting(), hangHint}
	}
	final := c.record(&collective.Error{Op: op, Sequence: number, Peer: peer, Err: err})
	c.cancel(final)
	c.checks.tell(final)
	return final
}

// record keeps the first error.
func (c *Comm) record(err error) error {
	c.failing.Lock()
	defer c.failing.Unlock()
	if c.broken == nil {
		c.broken = err
		c.lane.give(err)
		c.mailbox.give(err)
	}
	return c.broken
}

// failure is what has ended the communicator.
func (c *Comm) failure() error {
	c.failing.Lock()
	defer c.failing.Unlock()
	return c.broken
}

// otherRank is a failure that another rank is the cause of.
type otherRank struct {
	rank int
	err  error
}

func (o *otherRank) Error() string { return o.err.Error() }

func (o *otherRank) Unwrap() error { return o.err }

// hurry has a message that nobody sends fail at once: its failure tells the other ranks.
func hurry(c collective.Communicator, why error) {
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(why)
	_ = c.Do(ctx, collective.Receive(make([]byte, 1), (c.Rank()+1)%c.Size(), most))
}
