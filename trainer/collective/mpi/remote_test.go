package mpi_test

import (
	"context"
	"encoding/gob"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"unsafe"

	"github.com/ddpbatch/ddpbatch/trainer/collective"
)

// remote is the test's end of a connection to an MPI process.
type remote struct {
	conn    net.Conn
	sending sync.Mutex // separate, because answers arrive while a question is being sent
	send    *gob.Encoder
	mu      sync.Mutex
	next    uint64
	waiting map[uint64]chan answer
	lost    error
	errs    []*collective.Error
}

func (r *remote) read(d *gob.Decoder) {
	for {
		var a answer
		err := d.Decode(&a)
		r.mu.Lock()
		if err != nil {
			r.lost = err
			for _, w := range r.waiting {
				close(w)
			}
			r.waiting = nil
			r.mu.Unlock()
			return
		}
		w := r.waiting[a.ID]
		delete(r.waiting, a.ID)
		r.mu.Unlock()
		w <- a
	}
}

// ask sends a question and returns a channel for the answer.
func (r *remote) ask(q question) (uint64, chan answer) {
	r.sending.Lock()
	defer r.sending.Unlock()
	w := make(chan answer, 1)
	r.mu.Lock()
	r.next++
	q.ID = r.next
	if r.lost != nil {
		close(w)
	} else {
		r.waiting[q.ID] = w
	}
	r.mu.Unlock()
	_ = r.send.Encode(q) // read detects the error
	return q.ID, w
}

// cancel cancels a call.
func (r *remote) cancel(id uint64, why error) {
	r.sending.Lock()
	defer r.sending.Unlock()
	_ = r.send.Encode(question{ID: id, What: "cancel", Why: why.Error()})
}

// err returns the error of an answer: the same error for the same failure.
func (r *remote) err(ctx context.Context, a answer, ok bool) error {
	if !ok {
		return io.ErrUnexpectedEOF
	}
	if a.Failure == nil {
		if a.Error == "" {
			return nil
		}
		return errors.New(a.Error)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.errs {
		if e.Error() == a.Error {
			return e
		}
	}
	e := &collective.Error{Op: a.Failure.Op, Sequence: a.Failure.Sequence, Peer: a.Failure.Peer, Err: errors.New(a.Failure.Text)}
	if cause := context.Cause(ctx); cause != nil && strings.Contains(a.Failure.Text, cause.Error()) {
		e.Err = cause
	}
	r.errs = append(r.errs, e)
	return e
}

// proxy is a communicator whose operations run in a process.
type proxy struct {
	*remote
	id         uint64
	rank, size int
	memory     [][]byte // represents the communicator's memory
}

func (p *proxy) Rank() int { return p.rank }
func (p *proxy) Size() int { return p.size }

func (p *proxy) Path(collective.Call) collective.Path { return collective.Path{Transport: "mpi"} }

func (p *proxy) Do(ctx context.Context, c collective.Call) error {
	return p.Start(ctx, c).Wait()
}

func (p *proxy) Start(ctx context.Context, c collective.Call) *collective.Request {
	q := question{What: "do", Comm: p.id, Call: c, Recv: len(c.Recv), Inner: inner(c.Send, c.Recv), Arena: p.holds(c.Send) && p.holds(c.Recv)}
	q.Call.Recv = nil
	id, answered := p.ask(q)
	stop := context.AfterFunc(ctx, func() { p.cancel(id, context.Cause(ctx)) })
	return collective.Begin(func() error {
		a, ok := <-answered
		stop()
		copy(c.Send, a.Send)
		copy(c.Recv, a.Recv)
		return p.err(ctx, a, ok)
	})
}

// inner returns the offset of the shorter buffer in the longer one, or -1 if they do not overlap.
func inner(a, b []byte) int {
	if len(a) < len(b) {
		a, b = b, a
	}
	if len(b) == 0 {
		return -1
	}
	offset := int(uintptr(unsafe.Pointer(&b[0])) - uintptr(unsafe.Pointer(&a[0])))
	if offset < 0 || offset+len(b) > len(a) {
		return -1
	}
	return offset
}

func (p *proxy) holds(b []byte) bool {
	for _, m := range p.memory {
		if inner(m, b) >= 0 && len(m) >= len(b) {
			return true
		}
	}
	return len(b) == 0
}

func (p *proxy) AllocBytes(_ context.Context, n int) ([]byte, error) {
	b := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(make([]uint64, n/8+1)))), n)
	p.memory = append(p.memory, b)
	return b, nil
}

func (p *proxy) Split(ctx context.Context, color, key int) (collective.Communicator, error) {
	id, answered := p.ask(question{What: "split", Comm: p.id, Color: color, Key: key})
	a, ok := <-answered
	if err := p.err(ctx, a, ok); err != nil || a.None {
		return nil, err
	}
	return &proxy{remote: p.remote, id: id, rank: a.Rank, size: a.Size}, nil
}

func (p *proxy) Close() error {
	_, answered := p.ask(question{What: "close", Comm: p.id})
	a, ok := <-answered
	return p.err(context.Background(), a, ok)
}
