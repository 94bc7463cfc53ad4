package ddp

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/ddpbatch/ddpbatch/trainer/device"
	"github.com/ddpbatch/ddpbatch/trainer/trace"
)

// Times holds communication times, summed over all steps since the last call of TakeTimes.
type Times struct {
	// Busy is the time in collectives. Exposed is the part of it that does not overlap computation.
	// Both include waiting for slower ranks and, with bfloat16, rounding and widening.
	Busy, Exposed time.Duration
}

// TakeTimes returns the times since its last call. Call it between steps.
func (s *Sharder) TakeTimes() Times {
	t := s.queue.times
	s.queue.times = Times{}
	return t
}

// A queue runs operations concurrently with the computation, in the order in which they were
// enqueued. The order is the same on every rank, because it depends only on the program.
type queue struct {
	operations chan operation
	mark       func() func() error // of a Follower, else nil
	run        func()              // created once, because a go statement with a method value allocates
	ctx        context.Context
	times      Times
	trace      *trace.Recorder // nil with one rank
	asked      int             // number of operations enqueued so far

	mu   sync.Mutex
	done int
	more sync.Cond
	err  error // of the first operation that failed; later operations are skipped
}

// An operation is a collective on a bucket.
type operation struct {
	kind   kind
	bucket int
	slot   *slot // temporary memory, or nil
	add    bool  // scatter: add to the previous gradients
	after  func() error
	asked  time.Time // for the trace
}

type kind int

const (
	reduce  kind = iota // all-reduce of gradients
	scatter             // reduce-scatter of gradients
	fetch               // all-gather of values
	end
)

// spans maps operations to their names in a trace.
var spans = [end]trace.Kind{reduce: trace.Reduce, scatter: trace.Scatter, fetch: trace.Gather}

func (q *queue) start(s *Sharder) {
	// A model enqueues at most a fetch and a reduction per bucket, then waits.
	q.operations = make(chan operation, 2*len(s.buckets)+1)
	q.more.L = &q.mu
	if f, ok := s.comm.(Follower); ok {
		q.mark = f.Mark
	}
	q.run = func() {
		for o := range q.operations {
			if o.kind != end && q.err == nil {
				began := time.Now()
				err := s.perform(q.ctx, o)
				q.times.Busy += time.Since(began)
				q.trace.AddAsked(spans[o.kind], o.bucket, o.asked, began)
				if err != nil {
					q.mu.Lock()
					q.err = err
					q.mu.Unlock()
				}
			}
			q.mu.Lock()
			q.done++
			q.more.Broadcast()
			q.mu.Unlock()
			if o.kind == end {
				return
			}
		}
	}
}

// begin starts the goroutine that runs the operations.
func (q *queue) begin(ctx context.Context) {
	q.ctx = ctx
	go q.run()
}

// ask enqueues an operation and returns its sequence number.
func (q *queue) ask(o operation) int {
	if q.mark != nil && o.kind != end {
		o.after = q.mark()
	}
	o.asked = q.trace.Now()
	q.operations <- o
	q.asked++
	return q.asked
}

// wait returns when operation n has ended or was skipped.
func (q *queue) wait(n int) {
	q.mu.Lock()
	if q.done < n {
		began := time.Now()
		for q.done < n {
			q.more.Wait()
		}
		q.times.Exposed += time.Since(began)
		q.trace.Add(trace.Wait, 0, began)
	}
	q.mu.Unlock()
}

// end waits for all operations and returns the first error.
func (q *queue) end() error {
	q.wait(q.ask(operation{kind: end}))
	return q.err
}

// exposed runs an operation that does not overlap computation.
func (q *queue) exposed(f func() error) error {
	began := time.Now()
	err := f()
	took := time.Since(began)
	q.times.Busy += took
	q.times.Exposed += took
	q.trace.Add(trace.Exchange, 0, began)
	return err
}

// perform runs an operation.
func (s *Sharder) perform(ctx context.Context, o operation) (err error) {
	b := &s.buckets[o.bucket]
	what := "add up"
	if o.after != nil {
		if err := o.after(); err != nil {
			return fmt.Errorf("wait for bucket %d of %d: %w", o.bucket, len(s.buckets), err)
		}
	}
	switch o.kind {
	case reduce:
		if !s.alone() {
			err = s.reduceAll(ctx, b.grad)
		}
	case scatter:
		err = s.scatter(ctx, b, o)
	case fetch:
		what = "gather"
		err = s.fetch(ctx, b, o)
	}
	if err != nil {
		return fmt.Errorf("%s bucket %d of %d: %w", what, o.bucket, len(s.buckets), err)
	}
	return nil
}

// mine returns this rank's shard of a bucket.
func (s *Sharder) mine(whole device.Tensor) device.Tensor {
	n := whole.Len() / s.comm.Size()
	return whole.Slice(s.comm.Rank()*n, (s.comm.Rank()+1)*n)
}

// lent returns the memory in o's slot for a bucket with shards of the given number of elements.
func (s *Sharder) lent(o operation, part int) device.Tensor {
	return o.slot.memory.Slice(0, part*s.comm.Size())
}

// scatter reduce-scatters a bucket's gradients.
func (s *Sharder) scatter(ctx context.Context, b *bucket, o operation) error {
	if o.slot == nil {
		if s.beside() {
			return s.comm.ReduceScatter(ctx, s.mine(packed(b.grad)), packed(b.grad))
		}
		return s.reduceMine(ctx, s.mine(b.grad), b.grad)
	}
	whole := s.lent(o, b.gradPart.Len())
	if s.beside() {
		return s.comm.ReduceScatter(ctx, packed(b.gradPart), packed(whole))
	}
	if !o.add {
		return s.reduceMine(ctx, b.gradPart, whole)
	}
	mine := s.mine(whole)
	if err := s.reduceMine(ctx, mine, whole); err != nil {
		return err
	}
	part := b.gradPart.Floats()
	for i, v := range mine.Floats() {
		part[i] += v
	}
	return nil
}

// fetch all-gathers a bucket's values from the ranks that update them.
func (s *Sharder) fetch(ctx context.Context, b *bucket, o operation) error {
	if o.slot == nil {
		return s.comm.AllGather(ctx, b.value, s.mine(b.value))
	}
	return s.comm.AllGather(ctx, s.lent(o, b.valuePart.Len()), b.valuePart)
}
