// Package ddp keeps replicas of a model in step: it lays all gradients out in a
// few buckets, in the order in which the backward pass makes them, and averages
// each bucket over all ranks while the backward pass goes on.
//
// It promises: the gradient of every parameter lives inside a bucket from the
// start, so nothing is copied; buckets are reduced in one fixed order on every
// rank; when Finish returns, every rank holds the same averaged bits.
//
// It differs from PyTorch's reducer (Li et al., VLDB 2020) in that the order is
// known before the first step: there is no first iteration without overlap and
// no rebuilding. It does not find unused parameters: every parameter must
// become ready in every step.
package ddp

import (
	"context"
	"fmt"

	"github.com/ddpbatch/ddpbatch/trainer/collective"
	"github.com/ddpbatch/ddpbatch/trainer/nn"
)

// Bucket sizes in bytes, as PyTorch's: a small first one so that communication
// starts early, then large ones.
const (
	FirstBucketBytes = 1 << 20
	BucketBytes      = 25 << 20
)

// Reducer averages gradients over the ranks of a communicator.
type Reducer struct {
	comm    collective.Communicator
	scale   float32
	extra   []float32
	buckets []bucket
	of      []int // bucket of each parameter
	pending []int // parameters that each bucket still waits for in this step
	next    int   // the bucket to be launched next

	launched chan int
	results  chan error
}

type bucket struct {
	data   []float32
	params int
}

// New lays out the gradients of params (in registration order), assigns each
// one's Grad, and returns a reducer that is ready for a first step. extra is the
// number of scalars that are summed along with the gradients.
func New(comm collective.Communicator, params []*nn.Param, extra int) *Reducer {
	return newReducer(comm, params, extra, FirstBucketBytes, BucketBytes)
}

// newReducer fills buckets from the last parameter to the first and closes one
// as soon as it has reached its size, as PyTorch's compute_bucket_assignment
// does; the extra scalars go at the end of the last.
func newReducer(comm collective.Communicator, params []*nn.Param, extra, first, rest int) *Reducer {
	r := &Reducer{comm: comm, scale: 1 / float32(comm.Size()), of: make([]int, len(params))}
	total := extra
	for _, p := range params {
		total += len(p.Data)
	}
	memory := make([]float32, total)
	start, used, count, limit := 0, 0, 0, first
	closeBucket := func() {
		r.buckets = append(r.buckets, bucket{memory[start:used:used], count})
		start, count, limit = used, 0, rest
	}
	for i := len(params) - 1; i >= 0; i-- {
		n := len(params[i].Data)
		params[i].Grad = memory[used : used+n : used+n]
		used += n
		count++
		r.of[i] = len(r.buckets)
		if 4*(used-start) >= limit && i > 0 {
			closeBucket()
		}
	}
	r.extra = memory[used:]
	used = total
	closeBucket()
	r.pending = make([]int, len(r.buckets))
	r.launched = make(chan int, len(r.buckets))
	r.results = make(chan error, 1)
	return r
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
	r.next = 0
	go func() {
		var err error
		for range r.buckets {
			i := <-r.launched
			if i < 0 {
				break
			}
			if err == nil {
				if err = r.comm.AllReduce(ctx, r.buckets[i].data); err != nil {
					err = fmt.Errorf("average bucket %d of %d: %w", i, len(r.buckets), err)
				}
			}
		}
		r.results <- err
	}()
}

// Ready says that the gradient of parameter i is final on this rank. The bucket
// that it completes is reduced once all buckets before it have been launched.
// Gradients are divided before they are summed, which is safer against overflow.
func (r *Reducer) Ready(i int) {
	b := r.of[i]
	r.pending[b]--
	if r.pending[b] < 0 {
		panic(fmt.Sprintf("ddp: internal error: parameter %d was ready twice in one step", i))
	}
	for r.next < len(r.buckets) && r.pending[r.next] == 0 {
		grads := r.buckets[r.next].data
		if r.next == len(r.buckets)-1 {
			grads = grads[:len(grads)-len(r.extra)]
		}
		for j := range grads {
			grads[j] *= r.scale
		}
		r.launched <- r.next
		r.next++
	}
}

// Finish waits until every bucket is averaged. After an error the gradients are
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
	return <-r.results
}
