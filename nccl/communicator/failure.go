package communicator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ddpbatch/ddpbatch/nccl/libnccl"
	"github.com/ddpbatch/ddpbatch/trainer/collective"
)

// A fault is a failure of NCCL on this rank, with details for the user.
type fault struct {
	err  error
	with string
	hint string
}

// Error returns the cause, followed by NCCL's version, the GPU, and the interface.
func (f *fault) Error() string { return f.err.Error() + " (" + f.with + ")" }

// Unwrap returns the cause.
func (f *fault) Unwrap() error { return f.err }

// Hint returns the fix.
func (f *fault) Hint() string { return f.hint }

// setting describes the configuration of this rank for error messages.
func (c *Comm) setting() string {
	l := c.options.Library
	text := fmt.Sprintf("NCCL %v from %s, GPU %s", l.Version, l.File, c.options.GPU.ID())
	if c.options.Interface != "" {
		text += fmt.Sprintf(", NCCL_SOCKET_IFNAME=%s", c.options.Interface)
	}
	return text
}

const hangHint = "run with NCCL_DEBUG=INFO and NCCL_DEBUG_SUBSYS=INIT,NET,ENV: the last lines of each rank tell what it waits for; firewalls between the nodes and an interface that the others cannot reach (NCCL_SOCKET_IFNAME, NCCL_IB_HCA; compare \"ddpbatch netif\") are the most frequent causes"

// explain adds details to the error of a failed initialization.
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

// A hang means that an operation has not ended within this time after the GPU reached it.
type hang time.Duration

func (h hang) Error() string {
	return fmt.Sprintf("no end within %s, although the GPU has come to it: another rank, NCCL or the network hangs", time.Duration(h))
}

// failed records a failure on behalf of a lane or a check.
func (c *Comm) failed(kind collective.Kind, number uint64, err error) {
	_ = c.fail(kind.String(), number, err)
}

// fail records an error as final, causes the abort of NCCL's communicators, and notifies the
// other ranks. It returns the first error that was recorded.
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
	case errors.As(err, &of): // from the host communicator
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

// record stores the first error.
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

// failure returns the error that ended the communicator, or nil.
func (c *Comm) failure() error {
	c.failing.Lock()
	defer c.failing.Unlock()
	return c.broken
}

// An otherRank is a failure that another rank caused.
type otherRank struct {
	rank int
	err  error
}

func (o *otherRank) Error() string { return o.err.Error() }

func (o *otherRank) Unwrap() error { return o.err }

// hurry makes a receive without a sender fail immediately, which notifies the other ranks.
func hurry(c collective.Communicator, why error) {
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(why)
	_ = c.Do(ctx, collective.Receive(make([]byte, 1), (c.Rank()+1)%c.Size(), most))
}
