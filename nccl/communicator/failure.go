package communicator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ddpbatch/ddpbatch/nccl/libnccl"
	"github.com/ddpbatch/ddpbatch/trainer/collective"
)

// A ncclError is a failure of NCCL on this rank, with details for the user.
type ncclError struct {
	err  error
	with string
	hint string
}

// Error returns the cause, followed by NCCL's version, the GPU, and the interface.
func (f *ncclError) Error() string { return f.err.Error() + " (" + f.with + ")" }

// Unwrap returns the cause.
func (f *ncclError) Unwrap() error { return f.err }

// Hint returns the fix.
func (f *ncclError) Hint() string { return f.hint }

// describeSetup describes the configuration of this rank for error messages.
func (c *Comm) describeSetup() string {
	l := c.options.Library
	text := fmt.Sprintf("NCCL %v from %s, GPU %s", l.Version, l.File, c.options.GPU.ID())
	if c.options.Interface != "" {
		text += fmt.Sprintf(", NCCL_SOCKET_IFNAME=%s", c.options.Interface)
	}
	return text
}

const timeoutHint = "run with NCCL_DEBUG=INFO and NCCL_DEBUG_SUBSYS=INIT,NET,ENV: the last lines of each rank show what it waits for; check firewalls between the nodes, and that NCCL_SOCKET_IFNAME and NCCL_IB_HCA select a network that all nodes reach"

// explain adds details to the error of a failed initialization.
func (c *Comm) explain(err error, id libnccl.UniqueID) error {
	if err == nil {
		return nil
	}
	var host *collective.Error
	if errors.As(err, &host) {
		return err // another rank's failure
	}
	with, hint := c.describeSetup(), timeoutHint
	if at, ok := id.Addr(); ok {
		with += ", rank 0 listens on " + at.String()
	}
	var of *libnccl.Error
	if errors.As(err, &of) {
		hint = of.Hint()
	}
	return &ncclError{fmt.Errorf("initialize NCCL on rank %d (%s): %w", c.peers[c.Rank()].Rank, c.options.Host, err), with, hint}
}

// A timeoutError means that an operation has not ended within this time after the GPU reached it.
type timeoutError time.Duration

func (h timeoutError) Error() string {
	return fmt.Sprintf("not finished %s after its start on the GPU: another rank, NCCL, or the network hangs", time.Duration(h))
}

// failed records the failure of an operation, which is nil before the first one, on behalf of a lane, a
// check, or an alarm.
func (c *Comm) failed(o *operation, err error) {
	if o == nil {
		_ = c.fail("connect", 0, err)
		return
	}
	_ = c.fail(o.kind.String(), o.number, err)
}

// overdue implements [laneOwner]. With [Options.Check], the checks find the missing rank themselves.
func (c *Comm) overdue(*operation) {
	if c.alarms != nil {
		go c.alarms.raise()
	}
}

// fail records an error as final, causes the abort of NCCL's communicators, and notifies the
// other ranks. It returns the first error that was recorded.
func (c *Comm) fail(op string, number uint64, err error) error {
	if final := c.failure(); final != nil {
		return final
	}
	peer := c.peers[c.Rank()]
	var of *collective.Error
	var other *remoteError
	var by *libnccl.Error
	var stuck timeoutError
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
		err = &ncclError{err, c.describeSetup(), by.Hint()}
	case errors.As(err, &stuck):
		err = &ncclError{err, c.describeSetup(), timeoutHint}
	}
	final := c.record(&collective.Error{Op: op, Sequence: number, Peer: peer, Err: err})
	c.cancel(final)
	c.checks.notify(final)
	return final
}

// record stores the first error.
func (c *Comm) record(err error) error {
	c.failing.Lock()
	defer c.failing.Unlock()
	if c.broken == nil {
		c.broken = err
		c.lane.setFailure(err)
	}
	return c.broken
}

// failure returns the error that ended the communicator, or nil.
func (c *Comm) failure() error {
	c.failing.Lock()
	defer c.failing.Unlock()
	return c.broken
}

// A remoteError is a failure that another rank caused.
type remoteError struct {
	rank int
	err  error
}

func (o *remoteError) Error() string { return o.err.Error() }

func (o *remoteError) Unwrap() error { return o.err }

// notifyFailure makes a receive without a sender fail immediately, which notifies the other ranks.
func notifyFailure(c collective.Communicator, why error) {
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(why)
	_ = c.Do(ctx, collective.Receive(make([]byte, 1), (c.Rank()+1)%c.Size(), maxOperations))
}
