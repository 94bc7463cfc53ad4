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

func (t *Times) add(busy, exposed time.Duration) {
	t.Busy += busy
	t.Exposed += exposed
}

// TakeTimes returns the times of steps since its last call. The times of operations on a stream count
// when [Sharder.Wait] has returned. Call it between steps.
func (s *Sharder) TakeTimes() Times {
	t := s.queue.steps
	s.queue.steps = Times{}
	return t
}

// StepWork holds the operations of a step that are on a stream of the device.
type StepWork []queuedWork

// TakeWork returns the operations of the step that Finish has ended. It reuses the memory of an earlier
// StepWork, for which Wait has returned.
func (s *Sharder) TakeWork(reuse StepWork) StepWork {
	w := s.queue.works
	s.queue.works = reuse[:0]
	return w
}

// Wait waits until the operations of a step have ended. The results of a step are valid only if Wait
// returns no error.
func (s *Sharder) Wait(ctx context.Context, w StepWork) error {
	err := s.waitFor(ctx, w)
	s.queue.endStep()
	return err
}

// A queue runs operations concurrently with the computation, in the order in which they were
// enqueued. The order is the same on every rank, because it depends only on the program.
type queue struct {
	operations chan operation
	mark       func() func() error // of the communicator
	run        func()              // created once, because a go statement with a method value allocates
	ctx        context.Context
	times      Times           // since the last step or evaluation
	steps      Times           // of steps
	trace      *trace.Recorder // nil with one rank
	enqueued   int             // number of operations enqueued so far
	joined     int             // the last operation on a stream that the device waits for
	hash       uint64          // of the operations since the last call of TakeHash

	mu    sync.Mutex
	done  int // number of operations that have ended or are on a stream
	more  sync.Cond
	works []queuedWork // operations on a stream, in order
	err   error        // of the first operation that failed; later operations are skipped
}

// queuedWork is an operation on a stream.
type queuedWork struct {
	Work
	number     int  // sequence number
	kind       kind // exchange: it was not in the queue
	bucket     int
	enqueuedAt time.Time
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
	exchange // all-gather of the records
)

// spans maps operations to their names in a trace.
var spans = [end]trace.Kind{reduce: trace.Reduce, scatter: trace.Scatter, fetch: trace.Gather}

// start prepares the queue. It creates q.run once, because creating a function in each step would
// allocate memory.
func (q *queue) start(s *Sharder) {
	// A model enqueues at most a fetch and a reduction per bucket, then waits.
	q.operations = make(chan operation, 2*len(s.buckets)+1)
	q.more.L = &q.mu
	q.hash = hashBasis
	q.mark = s.comm.Mark
	q.run = func() {
		for o := range q.operations {
			q.mu.Lock()
			failed := q.err != nil
			q.mu.Unlock()
			var work Work
			var err error
			if o.kind != end && !failed {
				began := time.Now()
				if work, err = s.perform(q.ctx, o); work == nil {
					q.times.Busy += time.Since(began)
					q.trace.AddQueued(spans[o.kind], o.bucket, o.enqueuedAt, began, q.trace.Now())
				}
			}
			q.mu.Lock()
			q.done++
			if work != nil {
				q.works = append(q.works, queuedWork{work, q.done, o.kind, o.bucket, o.enqueuedAt})
			}
			if err != nil {
				q.err = err
			}
			q.more.Broadcast()
			q.mu.Unlock()
			if o.kind == end {
				return
			}
		}
	}
}

// Hash is a hash of the operations of a rank, in two integers below 1<<10, so that their sums over
// 1<<14 ranks are exact in float32.
type Hash [2]float32

// TakeHash returns the hash of the operations since its last call. It is equal on all ranks if they run
// the same operations.
func (s *Sharder) TakeHash() Hash {
	const bits = 10
	h := s.queue.hash
	s.queue.hash = hashBasis
	return Hash{float32(h >> (64 - bits)), float32(h << bits >> (64 - bits))}
}

// The constants of FNV-1a, applied to words instead of bytes.
const (
	hashBasis = 14695981039346656037
	hashPrime = 1099511628211
)

// begin starts the goroutine that runs the operations.
func (q *queue) begin(ctx context.Context) {
	q.ctx = ctx
	go q.run()
}

// enqueue enqueues an operation and returns its sequence number.
func (q *queue) enqueue(o operation) int {
	if o.kind != end {
		o.after = q.mark()
		q.hash = (q.hash ^ uint64(o.kind)<<32 ^ uint64(o.bucket)) * hashPrime
	}
	o.enqueuedAt = q.trace.Now()
	q.operations <- o
	q.enqueued++
	return q.enqueued
}

// wait waits until operation n has ended or was skipped. If it is on a stream, only the device waits
// for it.
func (q *queue) wait(n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	began := time.Time{}
	if q.done < n {
		began = time.Now()
		for q.done < n {
			q.more.Wait()
		}
	}
	i := len(q.works) - 1
	for i >= 0 && q.works[i].number > n {
		i--
	}
	if i >= 0 {
		// Operations on a stream are in order, so the device need not wait for earlier ones.
		if w := &q.works[i]; w.number > q.joined && q.err == nil {
			q.err = w.Join()
			q.joined = w.number
		}
	} else if !began.IsZero() {
		q.times.Exposed += time.Since(began)
		q.trace.Add(trace.Wait, 0, began)
	}
}

// end waits for all operations and returns the first error.
func (q *queue) end() error {
	q.wait(q.enqueue(operation{kind: end}))
	return q.err
}

// endStep adds the times to the times of steps.
func (q *queue) endStep() {
	q.steps.add(q.times.Busy, q.times.Exposed)
	q.times = Times{}
}

// waitFor waits until operations on a stream have ended, and adds their times.
func (s *Sharder) waitFor(ctx context.Context, works []queuedWork) error {
	q := &s.queue
	for i := range works {
		w := &works[i]
		t, err := w.Wait(ctx)
		if err != nil {
			return s.describe(w.kind, w.bucket, err)
		}
		q.times.add(t.Busy, t.Exposed)
		if w.kind != exchange {
			q.trace.AddQueued(spans[w.kind], w.bucket, w.enqueuedAt, t.Ended.Add(-t.Busy), t.Ended)
		}
	}
	return nil
}

// describe adds the operation to its error.
func (s *Sharder) describe(k kind, bucket int, err error) error {
	what := "reduce"
	switch k {
	case exchange:
		return fmt.Errorf("exchange the gradient norm and the loss: %w", err)
	case fetch:
		what = "gather"
	}
	return fmt.Errorf("%s bucket %d of %d: %w", what, bucket, len(s.buckets), err)
}

// exposed runs an operation that does not overlap computation, after all work enqueued on the
// device so far.
func (q *queue) exposed(f func() (Work, error)) (err error) {
	began := time.Now()
	if after := q.mark(); after != nil {
		err = after()
	}
	if err != nil {
		return err
	}
	work, err := f()
	if work != nil {
		q.works = append(q.works, queuedWork{Work: work, number: q.enqueued, kind: exchange})
		q.joined = q.enqueued
		return work.Join()
	}
	took := time.Since(began)
	q.times.add(took, took)
	q.trace.Add(trace.ReduceNorm, 0, began)
	return err
}

// perform runs an operation, or puts it on a stream.
func (s *Sharder) perform(ctx context.Context, o operation) (w Work, err error) {
	b := &s.buckets[o.bucket]
	if o.after != nil {
		if err := o.after(); err != nil {
			return nil, fmt.Errorf("wait for bucket %d of %d: %w", o.bucket, len(s.buckets), err)
		}
	}
	switch o.kind {
	case reduce:
		if !s.isSingleRank() {
			w, err = s.allReduce(ctx, b.grad)
		}
	case scatter:
		w, err = s.scatter(ctx, b, o)
	case fetch:
		w, err = s.fetch(ctx, b, o)
	}
	if err != nil {
		return nil, s.describe(o.kind, o.bucket, err)
	}
	return w, nil
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
func (s *Sharder) scatter(ctx context.Context, b *bucket, o operation) (Work, error) {
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
	ownShard := s.shard(whole) // in host memory, so the operation has ended when it returns
	if _, err := s.reduceScatter(ctx, ownShard, whole); err != nil {
		return nil, err
	}
	part := b.gradPart.Floats()
	for i, v := range ownShard.Floats() {
		part[i] += v
	}
	return nil, nil
}

// fetch all-gathers a bucket's values from the ranks that update them.
func (s *Sharder) fetch(ctx context.Context, b *bucket, o operation) (Work, error) {
	if o.slot == nil {
		return s.comm.AllGather(ctx, b.value, s.shard(b.value))
	}
	return s.comm.AllGather(ctx, s.slotMemory(o, b.valuePart.Len()), b.valuePart)
}
