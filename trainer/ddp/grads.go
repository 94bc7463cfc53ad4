package ddp

import (
	"fmt"

	"github.com/ddpbatch/ddpbatch/trainer/nn"
)

// expectGrads begins a round in which every gradient becomes ready once.
func (s *Sharder) expectGrads() {
	for i, span := range s.layout.spans {
		s.pending[i] = span.End - span.First
	}
	s.next = 0
}

// NeedGrads implements [nn.Owner].
func (s *Sharder) NeedGrads(params []*nn.Param) {
	if !s.ReducesEachBatch() {
		return
	}
	for _, p := range params {
		i := s.layout.positions[p].bucket
		b := &s.buckets[i]
		if b.gradSlot != nil {
			continue
		}
		// One bucket may be in flight while the next is written.
		s.queue.wait(s.grads.before)
		b.gradSlot = s.grads.find(s.layout.spans[i].slotSize, s.grads.isInFlight)
		b.gradSlot.bucket = i
		b.grad = b.gradSlot.memory.Slice(0, s.layout.spans[i].Elements)
		s.clearGaps(i)
		s.assignGrads(i)
	}
}

// Ready reports that the gradient of parameter i is final on this rank. When a bucket is complete,
// it is reduced as soon as the reductions of all buckets before it have started.
func (s *Sharder) Ready(i int) {
	if s.ReducesEachBatch() && s.next == len(s.buckets) {
		s.expectGrads()
	}
	b := s.layout.positions[s.layout.all[i]].bucket
	s.pending[b]--
	if s.pending[b] < 0 {
		panic(fmt.Sprintf("ddp: internal error: parameter %d was ready twice in one step", i))
	}
	for s.next < len(s.buckets) && s.pending[s.next] == 0 {
		s.startReduction(s.next)
		s.next++
	}
	if s.next == len(s.buckets) {
		s.rounds++
	}
}

// startReduction starts the reduction of a bucket.
func (s *Sharder) startReduction(i int) {
	b := &s.buckets[i]
	if s.Strategy != DDP && b.gradSlot == nil {
		s.clearGaps(i) // the last operation may have changed them
	}
	if i == len(s.buckets)-1 && !s.bf16 && !s.isSingleRank() {
		s.copy(b.grad.Slice(s.layout.extra, s.layout.extra+s.extra.Len()), s.extra)
	}
	add := b.gradSlot != nil && s.rounds > 0
	if add && !s.memory.Host() {
		// The communicator cannot add on the device, so earlier gradients become part of the sum.
		s.queue.wait(b.summed)
		if s.compressesOnDevice() {
			s.decompress(i)
		}
		ownShard := s.shard(b.grad)
		s.memory.Add(ownShard, ownShard, b.gradPart)
		add = false
	}
	if s.compressesOnDevice() {
		s.compress(b.grad)
	}
	if s.Strategy == DDP {
		s.queue.enqueue(operation{kind: reduce, bucket: i})
		return
	}
	n := s.queue.enqueue(operation{kind: scatter, bucket: i, slot: b.gradSlot, add: add})
	b.summed = n
	if b.gradSlot != nil {
		s.grads.before, s.grads.last = s.grads.last, n
		b.gradSlot.bucket, b.gradSlot.lastOp, b.gradSlot = noBucket, n, nil
	}
}

// clearGaps clears the padding between the gradients of a bucket.
func (s *Sharder) clearGaps(bucket int) {
	for _, g := range s.layout.spans[bucket].gaps {
		s.clear(s.buckets[bucket].grad.Slice(g[0], g[1]))
	}
}
