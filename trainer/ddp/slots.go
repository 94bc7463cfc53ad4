package ddp

import (
	"slices"

	"github.com/ddpbatch/ddpbatch/trainer/device"
	"github.com/ddpbatch/ddpbatch/trainer/nn"
)

// noBucket marks a free slot.
const noBucket = -1

// A slot is memory that buckets use in turn.
type slot struct {
	memory     device.Tensor
	bucket     int
	lastOp     int // the last operation that uses it
	assignedAt int // value of slots.clock when it was last assigned
}

// slots holds the slots for values or for gradients. It allocates a slot when no slot is free, so
// the number of slots is constant after one or two steps. It depends only on the program, not on
// timing.
type slots struct {
	memory       Memory
	list         []*slot
	clock        int
	before, last int // gradients: the last two operations
}

// isInFlight reports whether gradients in a slot are being written or reduced.
func (l *slots) isInFlight(s *slot) bool { return s.bucket != noBucket || s.lastOp > l.before }

// SlotBytes returns the number of bytes of slots, which come in addition to this rank's permanent
// memory: one bucket in use and one in flight, for gradients and for values. A layer whose
// parameters are in two buckets needs one more.
func (s *Sharder) SlotBytes() int64 {
	kinds := int64(0)
	if s.ReducesEachBatch() {
		kinds++
	}
	if s.Strategy == ZeRO3 {
		kinds++
	}
	return kinds * int64(s.layout.slotElements(2)) * int64(device.Float32.Size())
}

// find returns the least recently assigned slot of this size that is not taken. It allocates a
// new slot if none is free.
func (l *slots) find(elements int, taken func(*slot) bool) *slot {
	var best *slot
	for _, s := range l.list {
		if s.memory.Len() == elements && !taken(s) && (best == nil || s.assignedAt < best.assignedAt) {
			best = s
		}
	}
	if best == nil {
		best = &slot{memory: l.memory.Alloc(device.Float32, elements), bucket: noBucket}
		l.list = append(l.list, best)
	}
	l.clock++
	best.assignedAt = l.clock
	return best
}

// lookahead decides which buckets' values to prefetch with ZeRO3.
type lookahead struct {
	using, needed []int // buckets of the previous call and of the current one
	// The last two buckets that came into use, and the bucket that followed each such pair. A pair
	// distinguishes a forward pass from a backward pass through the same buckets.
	recent [2]int
	after  map[[2]int]int
}

// inUse reports whether the bucket in a slot is in use and must stay.
func (w *lookahead) inUse(s *slot) bool { return slices.Contains(w.needed, s.bucket) }

// refresh begins to gather the values that are used first. With DDP it rounds values that the
// optimizer has not written.
func (s *Sharder) refresh() {
	if s.unrounded {
		s.unrounded = false
		for _, b := range s.buckets {
			s.memory.Cast(b.rounded, b.value)
		}
	}
	if s.stale {
		s.stale = false
		for i := len(s.buckets) - 1; i >= 0; i-- {
			s.buckets[i].fetched = s.queue.enqueue(operation{kind: fetch, bucket: i})
		}
	}
	if s.Strategy == ZeRO3 {
		w := &s.ahead
		w.needed, w.recent = w.needed[:0], [2]int{noBucket, noBucket}
		s.prefetch()
	}
}

// NeedValues implements [nn.Owner].
func (s *Sharder) NeedValues(params []*nn.Param) {
	w := &s.ahead
	w.using, w.needed = w.needed, w.using[:0]
	for _, p := range params {
		if i := s.layout.positions[p].bucket; !slices.Contains(w.needed, i) {
			w.needed = append(w.needed, i)
		}
	}
	if s.Strategy == ZeRO3 {
		for _, i := range w.needed {
			s.gather(i)
			if !slices.Contains(w.using, i) {
				w.after[w.recent] = i
				w.recent = [2]int{w.recent[1], i}
			}
		}
		s.prefetch()
	}
	for _, i := range w.needed {
		s.queue.wait(s.buckets[i].fetched)
	}
}

// prefetch prefetches the bucket that followed the last time.
func (s *Sharder) prefetch() {
	if next, known := s.ahead.after[s.ahead.recent]; known {
		s.gather(next)
	}
}

// gather begins to gather a bucket's values, unless they are in memory.
func (s *Sharder) gather(i int) {
	b := &s.buckets[i]
	if b.valueSlot != nil {
		return
	}
	slot := s.values.find(s.layout.spans[i].slotSize, s.ahead.inUse)
	if slot.bucket != noBucket {
		s.freeValues(slot.bucket)
	}
	slot.bucket, b.valueSlot = i, slot
	b.value = slot.memory.Slice(0, s.layout.spans[i].Elements)
	s.assignValues(i)
	b.fetched = s.queue.enqueue(operation{kind: fetch, bucket: i, slot: slot})
}

// freeValues frees a bucket's values.
func (s *Sharder) freeValues(i int) {
	b := &s.buckets[i]
	if b.valueSlot != nil {
		b.valueSlot.bucket = noBucket
	}
	b.valueSlot, b.value = nil, device.Tensor{}
	for _, p := range s.layout.params(i) {
		p.Data = device.Tensor{}
	}
}

// reshard frees all values, including the ones that a caller has set.
func (s *Sharder) reshard() {
	for i := range s.buckets {
		s.freeValues(i)
	}
}
