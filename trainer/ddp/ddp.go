// Package ddp trains one model on many ranks: with a whole replica on each, or with
// what a rank keeps divided among them.
//
// All strategies lay parameters and gradients out in the same flat buckets, in the
// order in which the backward pass makes gradients, and divide each bucket into one
// chunk for each rank. A bucket is added up over ranks as soon as its gradients are
// there, while the backward pass goes on. With Ψ parameters in float32, Adam and n
// ranks, a rank keeps
//
//	DDP    16Ψ bytes: all values, gradients and state
//	ZeRO1  8Ψ + 8Ψ/n: the state of its chunks only
//	ZeRO2  4Ψ + 12Ψ/n: and of gradients its chunks, after they were added up
//	ZeRO3  16Ψ/n: and of values its chunks; others are fetched for the time of use
//
// and for ZeRO2 and ZeRO3 the few buckets that are being worked on. The stages are
// those of ZeRO (Rajbhandari et al., SC 2020); ZeRO3 is PyTorch's FSDP with a bucket
// for a unit.
//
// It promises: gradients are written where they are added up, so nothing is copied
// but the chunks of ZeRO2 and ZeRO3; operations are in one fixed order on every rank;
// each element is added up in the same order by every strategy, and so is the norm
// of all gradients: they all train the same bits. That does not hold for ZeRO2 and
// ZeRO3 where the gradients of several batches are added up: each is added up over ranks
// by itself, since to keep the sum of batches takes the memory that they save; with
// [Options] NoSync they do keep it.
//
// Gradients must come divided by the number of ranks, which is safer against
// overflow than dividing the sum, and costs nothing where the loss is weighted.
//
// Gradients can be added up in bfloat16 ([Options]): rounded before, and each sum, so
// half the bytes are sent. All of this holds then too, but for what is rounded.
//
// It differs from PyTorch's reducer (Li et al., VLDB 2020) in that the order is
// known before the first step: there is no first iteration without overlap and
// no rebuilding. It does not find unused parameters: every parameter must
// become ready in every step. A parameter that is larger than a bucket makes a larger
// one: it is never divided where it is used.
package ddp

import (
	"context"
	"fmt"
	"slices"

	"github.com/ddpbatch/ddpbatch/trainer/device"
	"github.com/ddpbatch/ddpbatch/trainer/nn"
	"github.com/ddpbatch/ddpbatch/trainer/trace"
)

// Strategy is how a model is spread over ranks.
type Strategy int

// The strategies, each dividing more.
const (
	DDP   Strategy = iota
	ZeRO1          // optimiser state is divided
	ZeRO2          // and gradients
	ZeRO3          // and values
)

// strategies are their names.
var strategies = [...]string{"ddp", "zero1", "zero2", "zero3"}

// Strategies are all strategies, the simplest first.
func Strategies() []Strategy { return []Strategy{DDP, ZeRO1, ZeRO2, ZeRO3} }

// String is the strategy's name in a job file.
func (s Strategy) String() string { return strategies[s] }

// ParseStrategy finds a strategy by its name, ZeRO3 also by PyTorch's, "fsdp".
func ParseStrategy(name string) (Strategy, error) {
	if name == "fsdp" {
		return ZeRO3, nil
	}
	if i := slices.Index(strategies[:], name); i >= 0 {
		return Strategy(i), nil
	}
	return 0, fmt.Errorf("unknown strategy %q", name)
}

// Communicator is what this package asks of the ranks' connection. Tensors are of the
// device whose [Memory] the Sharder has, in float32 or bfloat16. The length of one that
// is divided is a multiple of Size, and part r belongs to rank r. The sum of an element
// must have the same bits by AllReduce and by ReduceScatter, if strategies are to have
// the same bits.
type Communicator interface {
	Rank() int
	Size() int
	// AllReduce replaces buf by the sum over all ranks.
	AllReduce(ctx context.Context, buf device.Tensor) error
	// ReduceScatter puts this rank's part of the sum of whole over all ranks into part,
	// which may be that part of whole. The rest of whole holds nothing of meaning then.
	ReduceScatter(ctx context.Context, part, whole device.Tensor) error
	// AllGather puts every rank's part into its place in whole; part may be there.
	AllGather(ctx context.Context, whole, part device.Tensor) error
	// AllReduceFloat64 is AllReduce of numbers on the host.
	AllReduceFloat64(ctx context.Context, buf []float64) error
	// Broadcast replaces buf, memory of the host, by root's.
	Broadcast(ctx context.Context, buf []byte, root int) error
}

// Follower is a Communicator that works beside the device and not in the order in which
// that was asked for its operations.
type Follower interface {
	Communicator
	// Mark returns what has the next operation of the communicator come after all that
	// the device has been asked for until now. It is called where the device is asked,
	// and what it returns where the communicator is.
	Mark() func() error
}

// Memory is what this package asks of a device.
type Memory interface {
	Host() bool
	Alloc(t device.Type, n int) device.Tensor
	SumSquares(x device.Tensor) float64
	// What follows is asked only of one whose memory the host cannot address.
	Write(dst device.Tensor, src []float32)
	Read(dst []float32, src device.Tensor)
	Zero(t device.Tensor)
	Add(y, a, b device.Tensor)
	Copy(dst, src device.Tensor)
	Cast(dst, src device.Tensor)
}

// Options say how to spread a model.
type Options struct {
	Strategy Strategy
	// Extra is the number of scalars, at most 16, that are added up along with the
	// gradients.
	Extra int
	// FirstBucket and Bucket are the sizes of buckets in bytes, 0 for those of
	// [Options.Buckets].
	FirstBucket, Bucket int
	// BF16 has gradients added up in bfloat16: half the bytes, and sums of 8 bits. With
	// one rank nothing is added up, or rounded.
	BF16 bool
	// NoSync has ZeRO2 and ZeRO3 keep gradients whole, as ZeRO1 does, and add those of
	// several batches up on each rank first: PyTorch FSDP's no_sync.
	NoSync bool
	// Trace, unless nil, records operations and the waiting for them.
	Trace *trace.Recorder
}

// Sharder holds what this rank keeps of a model's parameters and gradients.
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
	half    device.Tensor // with bf16: room for the largest bucket, in half as many elements

	extra   []float32
	totals  []float64 // sum of squares of each rank's gradients, then extra
	norm    float64
	pending []int // gradients that each bucket still waits for
	next    int   // the bucket to be added up next
	rounds  int   // times that all buckets were, in this step

	grads  slots // of ZeRO2 and ZeRO3
	values slots // of ZeRO3
	ahead  lookahead
	stale  bool // ZeRO1 and ZeRO2: values of other ranks are older than the last update
}

// bucket is what this rank has of one.
type bucket struct {
	value, grad         device.Tensor // all of it, where there is memory for it
	valuePart, gradPart device.Tensor // what is updated here
	fetched             int           // the operation after which value is there
	summed              int           // likewise gradPart, of ZeRO2 and ZeRO3
	gradSlot, valueSlot *slot         // what value and grad are lent
}

// New lays out params (in registration order). With one rank there is nothing to
// divide, and every strategy is DDP.
//
// Memory that this rank keeps is assigned to the parameters' Data and Grad here, the
// rest by [Sharder.Owner].
func New(comm Communicator, m Memory, params []*nn.Param, o Options) *Sharder {
	if o.Extra > lineElements {
		panic(fmt.Sprintf("ddp: %d scalars, want at most %d", o.Extra, lineElements))
	}
	s := &Sharder{Strategy: o.Strategy, noSync: o.NoSync, comm: comm, memory: m, extra: make([]float32, o.Extra),
		totals: make([]float64, comm.Size()+o.Extra), layout: newLayout(params, comm.Size(), o)}
	if comm.Size() == 1 {
		s.Strategy = DDP
	}
	s.buckets = make([]bucket, len(s.layout.spans))
	s.pending = make([]int, len(s.buckets))
	s.place()
	if s.bf16 = o.BF16 && comm.Size() > 1; s.bf16 {
		s.half = s.common(s.layout.largest() / 2)
	}
	if comm.Size() > 1 {
		s.queue.trace = o.Trace
	}
	s.queue.start(s)
	s.grads.memory, s.values.memory = m, m
	s.ahead.after = map[[2]int]int{}
	return s
}

// place gives buckets and parameters the memory that stays theirs.
func (s *Sharder) place() {
	wholeValues, wholeGrads := s.Strategy < ZeRO3, !s.EachBatch()
	size := func(whole bool) int {
		if whole {
			return s.layout.elements
		}
		return s.layout.elements / s.comm.Size()
	}
	values, grads := s.common(size(wholeValues)), s.common(size(wholeGrads))
	take := func(from *device.Tensor, n int) device.Tensor {
		t := from.Slice(0, n)
		*from = from.Slice(n, from.Len())
		return t
	}
	for i, span := range s.layout.spans {
		b, chunk := &s.buckets[i], span.Elements/s.comm.Size()
		mine := func(t device.Tensor) device.Tensor {
			if s.Strategy == DDP {
				return t
			}
			return t.Slice(s.comm.Rank()*chunk, (s.comm.Rank()+1)*chunk)
		}
		if wholeValues {
			b.value = take(&values, span.Elements)
			b.valuePart = mine(b.value)
			s.lendValues(i)
		} else {
			b.valuePart = take(&values, chunk)
		}
		if wholeGrads {
			b.grad = take(&grads, span.Elements)
			b.gradPart = mine(b.grad)
			s.lendGrads(i)
		} else {
			b.gradPart = take(&grads, chunk)
		}
		s.parts = append(s.parts, &nn.Param{Name: fmt.Sprintf("bucket %d", i), Shape: []int{b.valuePart.Len()}, Data: b.valuePart, Grad: b.gradPart})
	}
}

// common returns memory for n numbers, if possible where the other ranks of the node can
// read it: nothing is copied then. If that fails, so does the first operation, which
// tells it.
func (s *Sharder) common(n int) device.Tensor {
	a, ok := s.comm.(interface {
		Alloc(ctx context.Context, n int) ([]float32, error)
	})
	if ok && s.memory.Host() {
		if v, err := a.Alloc(context.Background(), n); err == nil && v != nil {
			return device.Host(v)
		}
	}
	return s.memory.Alloc(device.Float32, n)
}

// lendValues has the parameters of a bucket lie in its value.
func (s *Sharder) lendValues(bucket int) {
	for _, p := range s.layout.params(bucket) {
		at := s.layout.places[p].at
		p.Data = s.buckets[bucket].value.Slice(at, at+p.Len())
	}
}

// lendGrads has the gradients of a bucket lie in its grad.
func (s *Sharder) lendGrads(bucket int) {
	for _, p := range s.layout.params(bucket) {
		at := s.layout.places[p].at
		p.Grad = s.buckets[bucket].grad.Slice(at, at+p.Len())
	}
}

// Parts are what this rank updates, as parameters of an optimiser: one array for
// each bucket, of values and of the gradients of the last step.
func (s *Sharder) Parts() []*nn.Param { return s.parts }

// Owner is for [nn.Pass]; nil where all memory is there all the time.
func (s *Sharder) Owner() nn.Owner {
	if s.Strategy == DDP {
		return nil
	}
	return s
}

// EachBatch reports whether gradients are divided, and so added up over ranks after each
// batch of a step: then every Backward must call Ready, and none may accumulate.
func (s *Sharder) EachBatch() bool { return s.Strategy >= ZeRO2 && !s.noSync }

// Extra are the scalars that travel with the last bucket, 0 after Start: set them
// before the last Backward of a step, read their sums over all ranks after Finish.
func (s *Sharder) Extra() []float32 { return s.extra }

// Norm is the Euclidean norm of all gradients taken as one vector, after Finish: in
// float64, finite if all gradients are, and the same bits on every rank.
func (s *Sharder) Norm() float64 { return s.norm }

// Start begins a step, or an evaluation, which ends with Stop instead of Finish.
// Until then the communicator belongs to the Sharder. Values that other ranks have
// updated begin to come.
func (s *Sharder) Start(ctx context.Context) {
	clear(s.extra)
	s.next, s.rounds = 0, 0
	s.grads.before = s.grads.last
	s.expectGrads()
	s.queue.begin(ctx)
	s.refresh()
}

// Stop waits until all that was begun is done.
func (s *Sharder) Stop() error { return s.queue.end() }

// Updated says that the optimiser has changed the parts' values.
func (s *Sharder) Updated() {
	switch s.Strategy {
	case ZeRO1, ZeRO2:
		s.stale = true
	case ZeRO3:
		s.forget()
	}
}

// Sync has every parameter's Data be up to date where this rank keeps it, which
// Start alone need not do at once. With ZeRO3 there is none.
func (s *Sharder) Sync(ctx context.Context) error {
	if !s.stale {
		return nil
	}
	s.queue.begin(ctx)
	s.refresh()
	return s.Stop()
}
