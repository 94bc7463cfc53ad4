package communicator

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/ddpbatch/ddpbatch/trainer/collective"
)

// checks go with every operation over the host's communicator, beside the GPU: when an
// operation begins ranks compare what they ask for, and so find out who is missing;
// until it has ended each rank waits for word of the next one that it has ended there,
// and instead of it hears of a failure of any.
type checks struct {
	comm  *Comm
	begun chan checked
	ended chan checked
	over  sync.WaitGroup
}

// checked is an operation with what becomes of its check.
type checked struct {
	*operation
	wrong  error // with the arguments on this rank
	result chan error
	heard  *collective.Request // the next rank has ended it
}

// most is the number of operations that can be begun before one has ended.
const most = 1024

func (c *Comm) startChecks() {
	k := &checks{comm: c, begun: make(chan checked, most), ended: make(chan checked, most)}
	c.checks, c.mailbox = k, newMailbox(c)
	k.over.Go(func() {
		for o := range k.begun {
			err := k.compare(o)
			if o.wrong != nil {
				err = o.wrong
			}
			if err != nil {
				c.failed(o.call.Kind, o.number, err)
			}
			o.result <- err
		}
	})
	k.over.Go(func() {
		for o := range k.ended {
			if err := k.leave(o); err != nil {
				c.failed(o.call.Kind, o.number, err)
			}
		}
	})
}

// off reports whether there is nothing to compare.
func (k *checks) off() bool { return !k.comm.options.Check || k.comm.Size() == 1 }

// add has an operation be checked; the result, which is wrong where that is not nil,
// comes once.
func (k *checks) add(o *operation, wrong error) <-chan error {
	c := checked{o, wrong, make(chan error, 1), nil}
	if k.off() {
		c.result <- wrong
		return c.result
	}
	k.begun <- c
	if wrong == nil {
		next := (k.comm.Rank() + 1) % k.comm.Size()
		c.heard = k.comm.hosts[1].Start(k.patient(), collective.Receive(make([]byte, 1), next, c.tag()))
		k.ended <- c
	}
	return c.result
}

// compare has all ranks compare the arguments of an operation.
func (k *checks) compare(o checked) error {
	if err := k.comm.failure(); err != nil {
		return err
	}
	ctx := collective.WithTimeout(k.comm.ctx, k.comm.options.Timeout)
	host, n := k.comm.hosts[0], k.comm.Size()
	ours := o.call.Signature(n)
	if o.wrong != nil {
		ours = collective.Signature{}
	}
	mine := []int64{int64(ours.Kind), int64(ours.Type), int64(ours.Op), int64(ours.Root), int64(ours.Bytes)}
	extremes := slices.Clone(mine)
	for _, v := range mine {
		extremes = append(extremes, -v)
	}
	if err := host.Do(ctx, collective.AllReduce(extremes, collective.Max)); err != nil {
		return err
	}
	same := true
	for i := range mine {
		same = same && extremes[i] == -extremes[len(mine)+i]
	}
	if same {
		return nil
	}
	all := make([]int64, n*len(mine))
	if err := host.Do(ctx, collective.AllGather(all, mine)); err != nil {
		return err
	}
	for r := range n {
		v := all[r*len(mine):][:len(mine)]
		if slices.Equal(v, mine) {
			continue
		}
		if v[0] == 0 {
			return &otherRank{r, errRefused}
		}
		theirs := collective.Signature{Kind: uint8(v[0]), Type: uint8(v[1]), Op: uint8(v[2]), Root: int32(v[3]), Bytes: uint64(v[4])}
		return &otherRank{r, collective.Diverged(o.number, ours, theirs)}
	}
	return nil
}

var errRefused = errors.New("that rank has refused its arguments: the ranks' programs have diverged")

// tag is of the word that an operation has ended; no two that are under way have one.
func (c checked) tag() int { return int(c.number % most) }

// patient is for what an operation's own deadline bounds.
func (k *checks) patient() context.Context { return collective.WithTimeout(k.comm.ctx, forever) }

// leave waits until an operation has ended here, says so, and hears so.
func (k *checks) leave(o checked) error {
	select {
	case <-o.done:
	case <-o.heard.Done():
		if err := o.heard.Wait(); err != nil {
			return err
		}
		<-o.done
	}
	if o.err != nil {
		return o.err
	}
	n := k.comm.Size()
	word := collective.Send(make([]byte, 1), (k.comm.Rank()+n-1)%n, o.tag())
	if err := k.comm.hosts[1].Do(k.patient(), word); err != nil {
		return err
	}
	return o.heard.Wait()
}

// tell has the other ranks learn of a failure, wherever they are.
func (k *checks) tell(why error) {
	if k.comm.Size() > 1 {
		go hurry(k.comm.hosts[1], why)
	}
}

// end waits, not for long, until the next rank is through with this rank's operations;
// false if it is not. Operations of this rank must have ended.
func (k *checks) end() bool {
	done := make(chan struct{})
	go func() { k.over.Wait(); close(done) }()
	select {
	case <-done:
		return true
	case <-time.After(patienceAtEnd / 2):
	case <-k.comm.ctx.Done():
	}
	return false
}
