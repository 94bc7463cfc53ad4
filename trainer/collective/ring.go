package collective

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/ddpbatch/ddpbatch/trainer/wire"
)

// RingOptions describe this rank's place in a ring.
type RingOptions struct {
	Rank, Size int
	Secret     wire.Secret
	Next       Peer   // the rank after this one; the last one's is rank 0
	Source     net.IP // address to connect from; nil leaves it to the kernel
	// ConnectTimeout bounds Connect, Timeout every single operation.
	ConnectTimeout, Timeout time.Duration
}

// Ring is a [Communicator] over TCP in which each rank talks to its two
// neighbours only. All-reduce is the bandwidth-optimal reduce-scatter followed
// by all-gather (Patarasuk and Yuan, 2009): each rank sends 2(n-1)/n of the
// buffer whatever the number of ranks.
type Ring struct {
	o        RingOptions
	previous Peer
	in, out  *link

	mu       sync.Mutex
	sequence uint64
	broken   error
	scratch  []byte
}

// Connect builds the ring: it accepts the previous rank on listener, which it
// closes, and connects to the next one. Every rank must call it.
func Connect(ctx context.Context, listener net.Listener, o RingOptions) (*Ring, error) {
	if o.Size < 2 {
		listener.Close()
		return nil, fmt.Errorf("a ring of %d ranks has no neighbours", o.Size)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, o.ConnectTimeout,
		fmt.Errorf("the ring of ranks was not closed within %s", o.ConnectTimeout))
	defer cancel()
	r := &Ring{o: o, previous: Peer{Rank: (o.Rank - 1 + o.Size) % o.Size}}

	accepted := make(chan error, 1)
	go func() { accepted <- r.accept(ctx, listener) }()
	err := r.dial(ctx)
	if err != nil {
		cancel()
	}
	if aerr := <-accepted; err == nil {
		err = aerr
	}
	if err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

// edge names the directed connection, so that a rank cannot take another's place.
func edge(from, to int) string { return fmt.Sprintf("ring %d-%d", from, to) }

func (r *Ring) accept(ctx context.Context, listener net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	proven := make(chan *wire.Conn)
	refused := make(chan error, 1)
	go func() {
		for {
			raw, err := listener.Accept()
			if err != nil {
				refused <- err
				return
			}
			// Each on its own: a stranger that says nothing must not hold up
			// the real one behind it.
			go func() {
				c, err := wire.Server(raw, r.o.Secret, edge(r.previous.Rank, r.o.Rank))
				if err != nil {
					return
				}
				select {
				case proven <- c:
				case <-ctx.Done():
					c.Close()
				}
			}()
		}
	}()
	defer listener.Close()
	select {
	case c := <-proven:
		r.previous.Addr = c.RemoteAddr().String()
		r.in = newLink(c.Conn)
		return nil
	case err := <-refused:
		return fmt.Errorf("accept rank %d: %w", r.previous.Rank, err)
	case <-ctx.Done():
		return fmt.Errorf("rank %d did not connect: %w", r.previous.Rank, context.Cause(ctx))
	}
}

func (r *Ring) dial(ctx context.Context) error {
	d := net.Dialer{}
	if r.o.Source != nil {
		d.LocalAddr = &net.TCPAddr{IP: r.o.Source}
	}
	for {
		raw, err := d.DialContext(ctx, "tcp", r.o.Next.Addr)
		var c *wire.Conn
		if err == nil {
			c, err = wire.Client(raw, r.o.Secret, edge(r.o.Rank, r.o.Next.Rank))
		}
		if err == nil {
			r.out = newLink(c.Conn)
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("connect to rank %d at %s: %w (%w)", r.o.Next.Rank, r.o.Next.Addr, err, context.Cause(ctx))
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// Rank is this process's number.
func (r *Ring) Rank() int { return r.o.Rank }

// Size is the number of ranks.
func (r *Ring) Size() int { return r.o.Size }

// Close ends both connections.
func (r *Ring) Close() error {
	var errs []error
	for _, l := range []*link{r.in, r.out} {
		if l != nil {
			errs = append(errs, l.conn.Close())
		}
	}
	return errors.Join(errs...)
}

// operation runs body as the next operation of the sequence, under the timeout,
// and makes its failure final.
func (r *Ring) operation(ctx context.Context, op opcode, body func() (Peer, error)) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.broken != nil {
		return r.broken
	}
	deadline := time.Now().Add(r.o.Timeout)
	for _, l := range []*link{r.in, r.out} {
		if err := l.begin(op, r.sequence, deadline); err != nil {
			return err
		}
	}
	stop := context.AfterFunc(ctx, func() {
		now := time.Now()
		r.in.conn.SetDeadline(now)
		r.out.conn.SetDeadline(now)
	})
	peer, err := body()
	if !stop() && err != nil {
		err = context.Cause(ctx)
	} else if errors.Is(err, errTimeout) {
		err = fmt.Errorf("no answer within %s", r.o.Timeout)
	}
	if err != nil {
		r.broken = &Error{Op: op.String(), Sequence: r.sequence, Peer: peer, Err: err}
		// The neighbours must not wait for a rank that has given up.
		r.Close()
	}
	r.sequence++
	return r.broken
}

// AllReduce sums buf over all ranks, in ring order starting after the chunk's
// owner.
func (r *Ring) AllReduce(ctx context.Context, buf []float32) error {
	return r.operation(ctx, opAllReduce, func() (Peer, error) {
		return allReduce(r, buf)
	})
}

// AllReduceFloat64 is AllReduce in double precision.
func (r *Ring) AllReduceFloat64(ctx context.Context, buf []float64) error {
	return r.operation(ctx, opAllReduce64, func() (Peer, error) {
		return allReduce(r, buf)
	})
}

// allReduce is reduce-scatter and all-gather. In step s of the first, rank r
// sends chunk r-s and adds what comes to chunk r-s-1; after n-1 steps it owns
// the full sum of chunk r+1, which then goes round.
func allReduce[T float32 | float64](r *Ring, buf []T) (Peer, error) {
	n := r.o.Size
	chunk := func(i int) []T {
		i = ((i % n) + n) % n
		return buf[len(buf)*i/n : len(buf)*(i+1)/n]
	}
	for s := range n - 1 {
		into := chunk(r.o.Rank - s - 1)
		received := r.room(len(asBytes(into)))
		peer, err := r.swap(asBytes(chunk(r.o.Rank-s)), received, func(from, to int) {
			add(into[from/sizeOf[T]():to/sizeOf[T]()], received[from:to])
		})
		if err != nil {
			return peer, err
		}
	}
	for s := range n - 1 {
		peer, err := r.swap(asBytes(chunk(r.o.Rank+1-s)), asBytes(chunk(r.o.Rank-s)), nil)
		if err != nil {
			return peer, err
		}
	}
	return Peer{}, nil
}

// swap sends to the next rank while it receives from the previous one; arrived
// is called for each piece of received bytes as it comes.
func (r *Ring) swap(send, receive []byte, arrived func(from, to int)) (Peer, error) {
	sent := make(chan error, 1)
	go func() { sent <- r.out.send(send) }()
	rerr := r.in.receive(receive, arrived)
	if rerr != nil {
		// The writer may be stuck behind the same failure.
		r.out.conn.SetDeadline(time.Now())
	}
	serr := <-sent
	if rerr != nil {
		return r.previous, rerr
	}
	return r.o.Next, serr
}

// Broadcast passes root's buf along the ring, each rank forwarding pieces as
// they come.
func (r *Ring) Broadcast(ctx context.Context, buf []byte, root int) error {
	return r.operation(ctx, opBroadcast, func() (Peer, error) {
		last := r.o.Next.Rank == root
		if r.o.Rank == root {
			return r.o.Next, r.out.send(buf)
		}
		pieces := make(chan [2]int, len(buf)/pieceSize+1)
		forwarded := make(chan error, 1)
		go func() {
			var err error
			for p := range pieces {
				if err == nil && !last {
					err = r.out.sendPiece(buf[p[0]:p[1]])
				}
			}
			forwarded <- err
		}()
		err := r.in.receive(buf, func(from, to int) { pieces <- [2]int{from, to} })
		close(pieces)
		ferr := <-forwarded
		if err != nil {
			return r.previous, err
		}
		return r.o.Next, ferr
	})
}

// Barrier sends an empty piece round the ring twice: after the first round every
// rank has entered, after the second every rank knows.
func (r *Ring) Barrier(ctx context.Context) error {
	return r.operation(ctx, opBarrier, func() (Peer, error) {
		for range 2 {
			if r.o.Rank == 0 {
				if err := r.out.sendPiece(nil); err != nil {
					return r.o.Next, err
				}
			}
			if err := r.in.receivePiece(nil); err != nil {
				return r.previous, err
			}
			if r.o.Rank != 0 {
				if err := r.out.sendPiece(nil); err != nil {
					return r.o.Next, err
				}
			}
		}
		return Peer{}, nil
	})
}

// room returns n bytes of memory that lives until the next call.
func (r *Ring) room(n int) []byte {
	if cap(r.scratch) < n {
		// Eight-byte aligned, as the elements that it will hold need.
		r.scratch = asBytes(make([]float64, (n+7)/8))
	}
	return r.scratch[:n]
}
