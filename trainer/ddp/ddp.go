// Package ddp keeps replicas of a model in step: it lays all gradients out in a
// few buckets, in the order in which the backward pass makes them, and adds up
// each bucket over all ranks while the backward pass goes on.
//
// It promises: the gradient of every parameter lives inside a bucket from the
// start, so nothing is copied; buckets are reduced in one fixed order on every
// rank; when Finish returns, every rank holds the same bits. They are sums: the
// gradients must come divided by the number of ranks, which is safer against
// overflow than dividing the sum, and costs nothing where the loss is weighted.
//
// It differs from PyTorch's reducer (Li et al., VLDB 2020) in that the order is
// known before the first step: there is no first iteration without overlap and
// no rebuilding. It does not find unused parameters: every parameter must
// become ready in every step. Gradients must lie in memory that the host can
// address.
package ddp

import (
	"context"
	"fmt"
	"time"

	"github.com/ddpbatch/ddpbatch/trainer/collective"
	"github.com/ddpbatch/ddpbatch/trainer/device"
	"github.com/ddpbatch/ddpbatch/trainer/nn"
)

// Bucket sizes in bytes, as PyTorch's: a small first one so that communication
// starts early, then large ones.
const (
	FirstBucketBytes = 1 << 20
	BucketBytes      = 25 << 20
)

// Reducer adds up gradients over the ranks of a communicator.
type Reducer struct {
	comm    collective.Communicator
	extra   []float32
	buckets []bucket
	of      []int // bucket of each parameter
	pending []int // parameters that each bucket still waits for in this step
	next    int   // the bucket to be launched next

	ctx      context.Context // of the present step
	run      func()          // reduce, made once since a go statement of a method allocates
	launched chan int
	results  chan error
	times    Times
}

// Times is how long communication took, all steps since it was last asked for
// together.
type Times struct {
	// Busy is the time in all-reduces, and Exposed the part of it after the end of
	// the backward pass, when nothing else was done. They hold the waiting for slower
	// ranks too.
	Busy, Exposed time.Duration
}

// TakeTimes returns the times since it was last called, between steps.
func (r *Reducer) TakeTimes() Times {
	t := r.times
	r.times = Times{}
	return t
}

type bucket struct {
	data   []float32
	params int
}

// New lays out the gradients of params (in registration order) in m's memory,
// assigns each one's Grad, and returns a reducer that is ready for a first step.
// extra is the number of scalars that are summed along with the gradients.
func New(comm collective.Communicator, m device.Memory, params []*nn.Param, extra int) *Reducer {
	return newReducer(comm, m, params, extra, FirstBucketBytes, BucketBytes)
}

// line is the elements of a cache line, where gradients begin: what fills up to
// the next is zero, and stays so.
const line = 16

// newReducer fills buckets from the last parameter to the first and closes one
// as soon as it has reached its size, as PyTorch's compute_bucket_assignment
// does; the extra scalars go at the end of the last.
func newReducer(comm collective.Communicator, m device.Memory, params []*nn.Param, extra, first, rest int) *Reducer {
	r := &Reducer{comm: comm, of: make([]int, len(params))}
	total := extra
	for _, p := range params {
		total += (p.Len() + line - 1) / line * line
	}
	memory := alloc(comm, m, total)
	start, used, count, limit := 0, 0, 0, first
	closeBucket := func() {
		r.buckets = append(r.buckets, bucket{memory.Slice(start, used).Floats(), count})
		start, count, limit = used, 0, rest
	}
	for i := len(params) - 1; i >= 0; i-- {
		n := params[i].Len()
		params[i].Grad = memory.Slice(used, used+n)
		used += (n + line - 1) / line * line
		count++
		r.of[i] = len(r.buckets)
		if 4*(used-start) >= limit && i > 0 {
			closeBucket()
		}
	}
	r.extra = memory.Slice(used, total).Floats()
	used = total
	closeBucket()
	r.pending = make([]int, len(r.buckets))
	r.launched = make(chan int, len(r.buckets))
	r.results = make(chan error, 1)
	r.run = r.reduce
	return r
}

// alloc returns memory for n gradients, if possible where the other ranks of the node can
// read it: nothing is copied then. If that fails, so does the first sum, which tells it.
func alloc(comm collective.Communicator, m device.Memory, n int) device.Tensor {
	if m.Host() {
		if v, err := collective.Alloc[float32](context.Background(), comm, n); err == nil && v != nil {
			return device.Host(v)
		}
	}
	return m.Alloc(device.Float32, n)
}

// Extra are the scalars that travel with the last bucket: set them between
// Start and the end of the backward pass, read their sums over all ranks after
// Finish.
func (r *Reducer) Extra() []float32 { return r.extra }

// Start begins a step. From now on until Finish the communicator belongs to the
// reducer.
func (r *Reducer) Start(ctx context.Context) {
	for i, b := range r.buckets {
		r.pending[i] = b.params
	}
	r.next, r.ctx = 0, ctx
	go r.run()
}

// reduce adds up the buckets of a step as they are launched.
func (r *Reducer) reduce() {
	var err error
	for range r.buckets {
		i := <-r.launched
		if i < 0 {
			break
		}
		if err == nil {
			began := time.Now()
			if err = r.comm.AllReduce(r.ctx, r.buckets[i].data); err != nil {
				err = fmt.Errorf("add up bucket %d of %d: %w", i, len(r.buckets), err)
			}
			r.times.Busy += time.Since(began)
		}
	}
	r.results <- err
}

// Ready says that the gradient of parameter i is final on this rank. The bucket
// that it completes is reduced once all buckets before it have been launched.
func (r *Reducer) Ready(i int) {
	b := r.of[i]
	r.pending[b]--
	if r.pending[b] < 0 {
		panic(fmt.Sprintf("ddp: internal error: parameter %d was ready twice in one step", i))
	}
	for r.next < len(r.buckets) && r.pending[r.next] == 0 {
		r.launched <- r.next
		r.next++
	}
}

// Finish waits until every bucket is added up. After an error the gradients are
// worthless and the communicator is broken.
func (r *Reducer) Finish() error {
	if r.next != len(r.buckets) {
		r.launched <- -1
		err := <-r.results
		if err == nil {
			err = fmt.Errorf("%d of %d buckets did not become ready", len(r.buckets)-r.next, len(r.buckets))
		}
		return err
	}
	began := time.Now()
	err := <-r.results
	r.times.Exposed += time.Since(began)
	return err
}
