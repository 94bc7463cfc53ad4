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
	mark       func() func() error // of the communicator
	run        func()              // created once, because a go statement with a method value allocates
	ctx        context.Context
	times      Times
	trace      *trace.Recorder // nil with one rank
	enqueued   int             // number of operations enqueued so far

	mu   sync.Mutex
	done int
	more sync.Cond
	err  error // of the first operation that failed; later operations are skipped
}

// An operation is a collective on a bucket.
type operation struct {
	kind       kind
	bucket     int
	slot       *slot // temporary memory, or nil
	add        bool  // scatter: add to the previous gradients
	after      func() error
	enqueuedAt time.Time // for the trace
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
	q.mark = s.comm.Mark
	q.run = func() {
		for o := range q.operations {
			if o.kind != end && q.err == nil {
				began := time.Now()
				err := s.perform(q.ctx, o)
				q.times.Busy += time.Since(began)
				q.trace.AddQueued(spans[o.kind], o.bucket, o.enqueuedAt, began)
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

// enqueue enqueues an operation and returns its sequence number.
func (q *queue) enqueue(o operation) int {
	if o.kind != end {
		o.after = q.mark()
	}
	o.enqueuedAt = q.trace.Now()
	q.operations <- o
	q.enqueued++
	return q.enqueued
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
	q.wait(q.enqueue(operation{kind: end}))
	return q.err
}

// exposed runs an operation that does not overlap computation, after all work enqueued on the
// device so far.
func (q *queue) exposed(f func() error) (err error) {
	began := time.Now()
	if after := q.mark(); after != nil {
		err = after()
	}
	if err == nil {
		err = f()
	}
	took := time.Since(began)
	q.times.Busy += took
	q.times.Exposed += took
	q.trace.Add(trace.ReduceNorm, 0, began)
	return err
}

// perform runs an operation.
func (s *Sharder) perform(ctx context.Context, o operation) (err error) {
	b := &s.buckets[o.bucket]
	what := "reduce"
	if o.after != nil {
		if err := o.after(); err != nil {
			return fmt.Errorf("wait for bucket %d of %d: %w", o.bucket, len(s.buckets), err)
		}
	}
	switch o.kind {
	case reduce:
		if !s.isSingleRank() {
			err = s.allReduce(ctx, b.grad)
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

// shard returns this rank's shard of a bucket.
func (s *Sharder) shard(whole device.Tensor) device.Tensor {
	n := whole.Len() / s.comm.Size()
	return whole.Slice(s.comm.Rank()*n, (s.comm.Rank()+1)*n)
}

// slotMemory returns the memory in o's slot for a bucket with shards of the given number of
// elements.
func (s *Sharder) slotMemory(o operation, part int) device.Tensor {
	return o.slot.memory.Slice(0, part*s.comm.Size())
}

// scatter reduce-scatters a bucket's gradients.
func (s *Sharder) scatter(ctx context.Context, b *bucket, o operation) error {
	if o.slot == nil {
		if s.compressesOnDevice() {
			return s.comm.ReduceScatter(ctx, s.shard(bf16View(b.grad)), bf16View(b.grad))
		}
		return s.reduceScatter(ctx, s.shard(b.grad), b.grad)
	}
	whole := s.slotMemory(o, b.gradPart.Len())
	if s.compressesOnDevice() {
		return s.comm.ReduceScatter(ctx, bf16View(b.gradPart), bf16View(whole))
	}
	if !o.add {
		return s.reduceScatter(ctx, b.gradPart, whole)
	}
	ownShard := s.shard(whole)
	if err := s.reduceScatter(ctx, ownShard, whole); err != nil {
		return err
	}
	part := b.gradPart.Floats()
	for i, v := range ownShard.Floats() {
		part[i] += v
	}
	return nil
}

// fetch all-gathers a bucket's values from the ranks that update them.
func (s *Sharder) fetch(ctx context.Context, b *bucket, o operation) error {
	if o.slot == nil {
		return s.comm.AllGather(ctx, b.value, s.shard(b.value))
	}
	return s.comm.AllGather(ctx, s.slotMemory(o, b.valuePart.Len()), b.valuePart)
}
