package communicator

import (
	"context"
	"slices"
	"sync"

	"github.com/ddpbatch/ddpbatch/trainer/collective"
)

// checks verify every operation over the host communicator, concurrently with the GPU, for
// debugging. When an operation starts, the ranks compare its arguments and so detect missing ranks.
// While it runs, each rank waits for a message that the next rank has finished it. A failure of any
// rank arrives instead of that message.
type checks struct {
	comm  *Comm
	begun chan checked
	ended chan checked
	done  sync.WaitGroup
}

// A checked is an operation with the state of its check.
type checked struct {
	*operation
	result   chan error
	nextDone *collective.Request // receives the message that the next rank has finished the operation
}

// maxOperations limits the number of operations whose checks are in progress.
const maxOperations = 1024

func (c *Comm) startChecks() {
	k := &checks{comm: c, begun: make(chan checked, maxOperations), ended: make(chan checked, maxOperations)}
	c.checks = k
	k.done.Go(func() {
		for o := range k.begun {
			err := k.compare(o)
			if err != nil {
				c.failed(o.operation, err)
			}
			o.result <- err
		}
	})
	k.done.Go(func() {
		for o := range k.ended {
			if err := k.waitForNext(o); err != nil {
				c.failed(o.operation, err)
			}
		}
	})
}

// isDisabled reports whether no comparison is necessary.
func (k *checks) isDisabled() bool { return !k.comm.options.Check || k.comm.Size() == 1 }

// add starts the check of an operation. The returned channel receives one result.
func (k *checks) add(o *operation) <-chan error {
	c := checked{o, make(chan error, 1), nil}
	if k.isDisabled() {
		c.result <- nil
		return c.result
	}
	k.begun <- c
	next := (k.comm.Rank() + 1) % k.comm.Size()
	c.nextDone = k.comm.hosts[1].Start(k.untimed(), collective.Receive(make([]byte, 1), next, c.tag()))
	k.ended <- c
	return c.result
}

// compare compares the arguments of an operation on all ranks.
func (k *checks) compare(o checked) error {
	if err := k.comm.failure(); err != nil {
		return err
	}
	ctx := collective.WithTimeout(k.comm.ctx, k.comm.options.Timeout)
	host, n := k.comm.hosts[0], k.comm.Size()
	signature := o.signature()
	encoded := encodeSignature(signature)
	extremes := slices.Clone(encoded)
	for _, v := range encoded {
		extremes = append(extremes, -v)
	}
	if err := host.Do(ctx, collective.AllReduce(extremes, collective.Max)); err != nil {
		return err
	}
	same := true
	for i := range encoded {
		same = same && extremes[i] == -extremes[len(encoded)+i]
	}
	if same {
		return nil
	}
	all := make([]int64, n*len(encoded))
	if err := host.Do(ctx, collective.AllGather(all, encoded)); err != nil {
		return err
	}
	for r := range n {
		v := all[r*len(encoded):][:len(encoded)]
		if slices.Equal(v, encoded) {
			continue
		}
		return &remoteError{r, collective.Diverged(o.number, signature, decodeSignature(v))}
	}
	return nil
}

// tag returns the tag of the end-of-operation message. It is unique among the operations in
// progress.
func (c checked) tag() int { return int(c.number % maxOperations) }

// untimed returns a context for messages that the operation's own deadline limits.
func (k *checks) untimed() context.Context {
	return collective.WithTimeout(k.comm.ctx, collective.NoTimeout)
}

// waitForNext waits until an operation has ended on this rank, notifies the previous rank, and waits
// for the next rank's message.
func (k *checks) waitForNext(o checked) error {
	select {
	case <-o.done:
	case <-o.nextDone.Done():
		if err := o.nextDone.Wait(); err != nil {
			return err
		}
		<-o.done
	}
	if o.err != nil {
		return o.err
	}
	n := k.comm.Size()
	message := collective.Send(make([]byte, 1), (k.comm.Rank()+n-1)%n, o.tag())
	if err := k.comm.hosts[1].Do(k.untimed(), message); err != nil {
		return err
	}
	return o.nextDone.Wait()
}

// notify notifies the other ranks of a failure, even while they wait for something else.
func (k *checks) notify(why error) {
	if k.comm.Size() > 1 {
		go notifyFailure(k.comm.hosts[1], why)
	}
}

// waitAll waits a few seconds until the next rank has finished this rank's operations, and reports
// whether it has. All operations of this rank must have ended.
func (k *checks) waitAll() bool { return k.comm.waitForGroup(&k.done) }
