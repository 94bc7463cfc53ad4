// Package ddp trains one model on several ranks, with a full replica on each rank or with sharded
// state.
//
// All strategies store parameters and gradients in the same flat buckets, in the order in which the
// backward pass produces gradients, and divide each bucket into one shard per rank. A bucket is
// reduced as soon as its gradients are ready, while the backward pass continues. With Ψ float32
// parameters, Adam, and n ranks, a rank holds:
//
//	DDP    16Ψ bytes: all values, gradients, and optimizer state
//	ZeRO1  8Ψ + 8Ψ/n: optimizer state of its shards only
//	ZeRO2  4Ψ + 12Ψ/n: also gradients of its shards only, after the reduction
//	ZeRO3  16Ψ/n: also values of its shards only; others are gathered for each use
//
// In addition, ZeRO2 and ZeRO3 hold the few buckets that are in use. The stages are those in the
// ZeRO paper (Rajbhandari et al., SC 2020). ZeRO3 is PyTorch's FSDP with a bucket as the unit.
//
// It guarantees:
//
//   - The backward pass writes gradients directly into their bucket. Only the shards of ZeRO2 and
//     ZeRO3 are copied.
//   - Communication happens in the same fixed order on every rank.
//   - All strategies sum each element, and the norm of all gradients, in the same order. Their
//     results are bit-identical. The exception is gradient accumulation with ZeRO2 and ZeRO3: each
//     micro-batch is reduced separately, because accumulating locally would need the memory that
//     these strategies save. With NoSync in [Options] they accumulate locally.
//
// Gradients must already be divided by the number of ranks. This is safer against overflow than
// dividing the sum, and free if the loss is weighted.
//
// Gradients can be reduced in bfloat16 ([Options]): they and each sum are rounded, so ranks send
// half as many bytes. The guarantees above still hold, except for the rounding.
//
// It differs from PyTorch's reducer (Li et al., VLDB 2020) in that the order is known before the
// first step: there is no first iteration without overlap, and buckets are not rebuilt. It does not
// detect unused parameters: every parameter must become ready in every step. A parameter is never
// split between buckets; a parameter that is larger than a bucket gets a larger bucket.
package ddp

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/ddpbatch/ddpbatch/trainer/device"
	"github.com/ddpbatch/ddpbatch/trainer/nn"
	"github.com/ddpbatch/ddpbatch/trainer/trace"
)

// A Strategy defines which state of a model is sharded across ranks.
type Strategy int

// The strategies. Each shards more than the previous one.
const (
	DDP   Strategy = iota
	ZeRO1          // shards optimizer state
	ZeRO2          // also shards gradients
	ZeRO3          // also shards values
)

// strategies holds the names of the strategies.
var strategies = [...]string{"ddp", "zero1", "zero2", "zero3"}

// Strategies returns all strategies, the simplest first.
func Strategies() []Strategy { return []Strategy{DDP, ZeRO1, ZeRO2, ZeRO3} }

// String returns the strategy's name in a job file.
func (s Strategy) String() string { return strategies[s] }

// ParseStrategy returns the strategy with the given name. It also accepts PyTorch's name "fsdp" for
// ZeRO3.
func ParseStrategy(name string) (Strategy, error) {
	if name == "fsdp" {
		return ZeRO3, nil
	}
	if i := slices.Index(strategies[:], name); i >= 0 {
		return Strategy(i), nil
	}
	return 0, fmt.Errorf("unknown strategy %q", name)
}

// DeviceOperations holds the operations of a [Communicator] on device memory. Tensors are float32 or
// bfloat16 tensors of the device whose [Memory] the Sharder uses. The length of a sharded tensor is
// a multiple of Size, and shard r belongs to rank r. AllReduce and ReduceScatter must produce
// bit-identical sums; otherwise strategies do not produce bit-identical results.
//
// AllReduce, ReduceScatter, and AllGather either return when they have ended, with nil Work, or they
// return when the operation is on a stream of the device, with its Work.
type DeviceOperations interface {
	Rank() int
	Size() int
	// AllReduce replaces buf by the sum over all ranks.
	AllReduce(ctx context.Context, buf device.Tensor) (Work, error)
	// ReduceScatter writes this rank's shard of the sum of whole over all ranks to part, which may
	// be that shard of whole. The rest of whole is undefined afterwards.
	ReduceScatter(ctx context.Context, part, whole device.Tensor) (Work, error)
	// AllGather copies every rank's shard to its position in whole. Part may be in whole.
	AllGather(ctx context.Context, whole, part device.Tensor) (Work, error)
}

// Communicator holds the collectives that this package needs.
type Communicator interface {
	DeviceOperations
	// Broadcast replaces buf, in host memory, by root's.
	Broadcast(ctx context.Context, buf []byte, root int) error
	// Alloc returns host memory that the other ranks of the node can read, or nil if there is no such
	// memory.
	Alloc(ctx context.Context, n int) ([]float32, error)
	// Mark returns a function that makes the communicator's next operation wait for all work
	// enqueued on the device so far, because the communicator runs concurrently with the device. Mark
	// is called on the device's goroutine, the returned function on the communicator's. If the device
	// is synchronous, Mark returns nil.
	Mark() func() error
	// LazyBytes estimates the device memory in bytes that the communicator will allocate later.
	LazyBytes() int64
	// Close releases what the communicator holds in addition to the communicators that it was created
	// from. If it returns an error, an operation may still use the device's memory.
	Close() error
}

// Work is an operation on a stream of the device. Its methods are called on the device's goroutine.
type Work interface {
	// Join makes work that is enqueued on the device from now on wait for the end of the operation.
	// The host does not wait.
	Join() error
	// Wait waits on the host until the operation has ended, and frees its resources. The results of
	// the operation are valid only if Wait returns no error.
	Wait(ctx context.Context) (WorkTimes, error)
}

// WorkTimes holds the times of an operation on a stream.
type WorkTimes struct {
	Ended         time.Time     // when the host noticed the end
	Busy, Exposed time.Duration // as in [Times], on the device
}

// A HostCommunicator has default methods of a [Communicator]: for a synchronous device, without
// shared memory, and with nothing to close. Communicators embed it and override what they need.
type HostCommunicator struct{}

// Alloc returns nil.
func (HostCommunicator) Alloc(context.Context, int) ([]float32, error) { return nil, nil }

// Mark returns nil.
func (HostCommunicator) Mark() func() error { return nil }

// LazyBytes returns 0.
func (HostCommunicator) LazyBytes() int64 { return 0 }

// Close does nothing.
func (HostCommunicator) Close() error { return nil }

// Memory holds the device operations that this package needs.
type Memory interface {
	Host() bool
	Alloc(t device.Type, n int) device.Tensor
	ChunkSquares(sums device.Tensor, pitch int, x device.Tensor, chunks int, add bool)
	Cast(dst, src device.Tensor)
	// The following methods are called only if the host cannot address the device's memory.
	Zero(t device.Tensor)
	Add(y, a, b device.Tensor)
	Copy(dst, src device.Tensor)
}

// Options configures a [Sharder].
type Options struct {
	Strategy Strategy
	// Extra is the number of scalars, at most 16, that are reduced together with the gradients.
	Extra int
	// FirstBucket and Bucket are the bucket sizes in bytes. If 0, [Options.Buckets] chooses them.
	FirstBucket, Bucket int
	// BF16 reduces gradients in bfloat16: half the bytes, and sums with 8 significant bits. With
	// one rank there is no reduction and no rounding.
	BF16 bool
	// NoSync makes ZeRO2 and ZeRO3 hold full gradients, like ZeRO1, and accumulate micro-batches on
	// each rank before the reduction: PyTorch FSDP's no_sync.
	NoSync bool
	// Rounded makes DDP hold a copy of all values in bfloat16 ([nn.Param.Rounded]), for models whose
	// matmuls round them. The other strategies ignore it.
	Rounded bool
	// Trace, unless nil, records communication and the time spent waiting for it.
	Trace *trace.Recorder
}

// A Sharder holds this rank's part of a model's parameters and gradients.
type Sharder struct {
	Strategy Strategy

	comm    Communicator
	memory  Memory
	layout  layout
	buckets []bucket
	parts   []*nn.Param
	queue   queue
	bf16    bool
	noSync  bool
	scratch device.Tensor // with bf16: scratch buffer for the largest bucket, with half as many float32 elements

	extra   device.Tensor // this rank's scalars
	records device.Tensor // by rank: sum of the squares of its shards' gradients, then scalars
	pending []int         // number of gradients that each bucket still waits for
	next    int           // next bucket to reduce
	rounds  int           // number of times that all buckets were reduced in this step

	grads  slots // for ZeRO2 and ZeRO3
	values slots // for ZeRO3
	ahead  lookahead
	stale  bool // ZeRO1 and ZeRO2: values of other ranks' shards predate the last update

	unrounded bool // the rounded copies of the values are not current
}

// bucket is this rank's part of a bucket.
type bucket struct {
	value, grad         device.Tensor // the full bucket, if this rank has memory for it
	rounded             device.Tensor // value in bfloat16, or empty
	valuePart, gradPart device.Tensor // the shard that this rank updates
	fetched             int           // operation after which value is valid
	summed              int           // operation after which gradPart is valid, with ZeRO2 and ZeRO3
	gradSlot, valueSlot *slot         // slots that hold value and grad temporarily
}

// New creates a Sharder for params, which are in registration order. With one rank there is nothing
// to shard, and every strategy is DDP.
//
// New sets Data and Grad of the parameters whose memory is permanent. [Sharder.Owner] sets the
// others when they are used.
func New(comm Communicator, m Memory, params []*nn.Param, o Options) *Sharder {
	if o.Extra > lineElements {
		panic(fmt.Sprintf("ddp: %d scalars, want at most %d", o.Extra, lineElements))
	}
	s := &Sharder{Strategy: o.Strategy, noSync: o.NoSync, comm: comm, memory: m, layout: newLayout(params, comm.Size(), o),
		extra: m.Alloc(device.Float32, o.Extra), records: m.Alloc(device.Float64, comm.Size()*(1+o.Extra))}
	if comm.Size() == 1 {
		s.Strategy = DDP
	}
	s.buckets = make([]bucket, len(s.layout.spans))
	s.pending = make([]int, len(s.buckets))
	s.allocBuckets(o.Rounded && s.Strategy == DDP)
	if s.bf16 = o.BF16 && comm.Size() > 1; s.bf16 {
		s.scratch = s.allocShared(s.layout.largest() / 2)
	}
	if comm.Size() > 1 {
		s.queue.trace = o.Trace
	}
	s.queue.start(s)
	s.grads.memory, s.values.memory = m, m
	s.ahead.after = map[[2]int]int{}
	return s
}

// allocBuckets assigns permanent memory to buckets and parameters.
func (s *Sharder) allocBuckets(rounded bool) {
	wholeValues, wholeGrads := s.Strategy < ZeRO3, !s.ReducesEachBatch()
	size := func(whole bool) int {
		if whole {
			return s.layout.elements
		}
		return s.layout.elements / s.comm.Size()
	}
	values, grads := s.allocShared(size(wholeValues)), s.allocShared(size(wholeGrads))
	s.unrounded = rounded
	take := func(from *device.Tensor, n int) device.Tensor {
		t := from.Slice(0, n)
		*from = from.Slice(n, from.Len())
		return t
	}
	for i, span := range s.layout.spans {
		b, chunk := &s.buckets[i], span.Elements/s.comm.Size()
		shardOf := func(t device.Tensor) device.Tensor {
			if s.Strategy == DDP {
				return t
			}
			return t.Slice(s.comm.Rank()*chunk, (s.comm.Rank()+1)*chunk)
		}
		if wholeValues {
			b.value = take(&values, span.Elements)
			b.valuePart = shardOf(b.value)
			if rounded {
				b.rounded = s.memory.Alloc(device.BFloat16, span.Elements) // a separate tensor, so that its address is aligned
			}
			s.assignValues(i)
		} else {
			b.valuePart = take(&values, chunk)
		}
		if wholeGrads {
			b.grad = take(&grads, span.Elements)
			b.gradPart = shardOf(b.grad)
			s.assignGrads(i)
		} else {
			b.gradPart = take(&grads, chunk)
		}
		n := b.valuePart.Len()
		s.parts = append(s.parts, &nn.Param{Name: fmt.Sprintf("bucket %d", i), Shape: []int{n}, Data: b.valuePart, Rounded: b.rounded, Grad: b.gradPart, Pieces: s.pieces(i, n)})
	}
}

// allocShared allocates n elements, if possible in memory that the other ranks of the node can
// read, so that collectives need no copy. If allocating shared memory fails, it uses private
// memory: the first collective then fails as well and reports the error.
func (s *Sharder) allocShared(n int) device.Tensor {
	if s.memory.Host() {
		if v, err := s.comm.Alloc(context.Background(), n); err == nil && v != nil {
			return device.Host(v)
		}
	}
	return s.memory.Alloc(device.Float32, n)
}

// assignValues points Data of a bucket's parameters to the bucket's value.
func (s *Sharder) assignValues(bucket int) {
	for _, p := range s.layout.params(bucket) {
		offset := s.layout.positions[p].offset
		p.Data = s.buckets[bucket].value.Slice(offset, offset+p.Len())
		if rounded := s.buckets[bucket].rounded; rounded.Len() > 0 {
			p.Rounded = rounded.Slice(offset, offset+p.Len())
		}
	}
}

// assignGrads points Grad of a bucket's parameters to the bucket's grad.
func (s *Sharder) assignGrads(bucket int) {
	for _, p := range s.layout.params(bucket) {
		offset := s.layout.positions[p].offset
		p.Grad = s.buckets[bucket].grad.Slice(offset, offset+p.Len())
	}
}

// Parts returns the arrays that this rank updates, as parameters for an optimizer: one array per
// bucket, with its values and the gradients of the last step. Their Pieces locate the model's
// parameters in them. With [DDP] every piece is a whole parameter.
func (s *Sharder) Parts() []*nn.Param { return s.parts }

// Owner returns s as the owner for [nn.Pass], or nil if all memory is permanent.
func (s *Sharder) Owner() nn.Owner {
	if s.Strategy == DDP {
		return nil
	}
	return s
}

// ReducesEachBatch reports whether gradients are sharded and therefore reduced after each
// micro-batch. Then every Backward must call Ready, and none may accumulate.
func (s *Sharder) ReducesEachBatch() bool { return s.Strategy >= ZeRO2 && !s.noSync }

// Extra returns this rank's scalars, in device memory, that are reduced with the last bucket. Set
// them before the last Backward of a step. If ReducesEachBatch is true, they are reduced with every
// micro-batch, and the results are added: a scalar that must count once must be 0 in the others.
func (s *Sharder) Extra() device.Tensor { return s.extra }

// Records returns a record per rank for [device.StepDecision.Reduce], valid after Finish: the sum of
// the squares of gradients, and the scalars. Their sums, in the order of the ranks, are bit-identical
// on every rank. The sum of squares is in float64, and finite if all gradients are finite.
func (s *Sharder) Records() device.Tensor { return s.records }

// Start begins an optimizer step, which Finish ends, or an evaluation, which Stop ends. Until then,
// the communicator belongs to the Sharder. Start begins to gather values that other ranks have
// updated.
func (s *Sharder) Start(ctx context.Context) {
	s.next, s.rounds = 0, 0
	s.grads.before = s.grads.last
	s.expectGrads()
	s.queue.begin(ctx)
	s.refresh()
}

// Stop waits until all operations have ended. Their times do not count as times of a step.
func (s *Sharder) Stop(ctx context.Context) error {
	err := s.queue.end()
	if err == nil {
		err = s.waitFor(ctx, s.queue.works)
	}
	s.queue.works = s.queue.works[:0]
	s.queue.times = Times{}
	return err
}

// MarkWritten reports to the Sharder that the parts' values have changed, but not their rounded
// copies. It is not necessary before the first Start.
func (s *Sharder) MarkWritten() {
	s.unrounded = s.buckets[0].rounded.Len() > 0
	s.MarkUpdated()
}

// MarkUpdated reports to the Sharder that the optimizer has changed the parts' values, and their
// rounded copies.
func (s *Sharder) MarkUpdated() {
	switch s.Strategy {
	case ZeRO1, ZeRO2:
		s.stale = true
	case ZeRO3:
		s.reshard()
	}
}

// Sync updates every parameter's Data that is in permanent memory. After Start alone, Data may
// still be stale. With ZeRO3 no Data is permanent.
func (s *Sharder) Sync(ctx context.Context) error {
	if !s.stale {
		return nil
	}
	s.queue.begin(ctx)
	s.refresh()
	return s.Stop(ctx)
}
