package ddp

import (
	"slices"

	"github.com/ddpbatch/ddpbatch/trainer/device"
	"github.com/ddpbatch/ddpbatch/trainer/nn"
)

// none marks a free slot.
const none = -1

// A slot is memory that buckets use in turn.
type slot struct {
	memory device.Tensor
	bucket int
	busy   int // the last operation that uses it
	used   int // value of slots.clock when it was last assigned
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

// onItsWay reports whether gradients in a slot are being written or reduced.
func (l *slots) onItsWay(s *slot) bool { return s.bucket != none || s.busy > l.before }

// Lent returns the number of bytes of slots, which come in addition to this rank's permanent
// memory: one bucket in use and one in flight, for gradients and for values. A layer whose
// parameters are in two buckets needs one more.
func (s *Sharder) Lent() int64 {
	kinds := int64(0)
	if s.EachBatch() {
		kinds++
	}
	if s.Strategy == ZeRO3 {
		kinds++
	}
	return kinds * int64(s.layout.turns(2)) * int64(device.Float32.Size())
}

// find returns the least recently assigned slot of room elements that is not taken. It allocates a
// new slot if none is free.
func (l *slots) find(room int, taken func(*slot) bool) *slot {
	var best *slot
	for _, s := range l.list {
		if s.memory.Len() == room && !taken(s) && (best == nil || s.used < best.used) {
			best = s
		}
	}
	if best == nil {
		best = &slot{memory: l.memory.Alloc(device.Float32, room), bucket: none}
		l.list = append(l.list, best)
	}
	l.clock++
	best.used = l.clock
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

// refresh begins to gather the values that are used first.
func (s *Sharder) refresh() {
	if s.stale {
		s.stale = false
		for i := len(s.buckets) - 1; i >= 0; i-- {
			s.buckets[i].fetched = s.queue.ask(operation{kind: fetch, bucket: i})
		}
	}
	if s.Strategy == ZeRO3 {
		w := &s.ahead
		w.needed, w.recent = w.needed[:0], [2]int{none, none}
		s.foresee()
	}
}

// NeedValues implements [nn.Owner].
func (s *Sharder) NeedValues(params []*nn.Param) {
	w := &s.ahead
	w.using, w.needed = w.needed, w.using[:0]
	for _, p := range params {
		if i := s.layout.places[p].bucket; !slices.Contains(w.needed, i) {
			w.needed = append(w.needed, i)
		}
	}
	if s.Strategy == ZeRO3 {
		for _, i := range w.needed {
			s.load(i)
			if !slices.Contains(w.using, i) {
				w.after[w.recent] = i
				w.recent = [2]int{w.recent[1], i}
			}
		}
		s.foresee()
	}
	for _, i := range w.needed {
		s.queue.wait(s.buckets[i].fetched)
	}
}

// foresee prefetches the bucket that followed the last time.
func (s *Sharder) foresee() {
	if next, known := s.ahead.after[s.ahead.recent]; known {
		s.load(next)
	}
}

// load begins to gather a bucket's values, unless they are in memory.
func (s *Sharder) load(i int) {
	b := &s.buckets[i]
	if b.valueSlot != nil {
		return
	}
	place := s.values.find(s.layout.spans[i].room, s.ahead.inUse)
	if place.bucket != none {
		s.drop(place.bucket)
	}
	place.bucket, b.valueSlot = i, place
	b.value = place.memory.Slice(0, s.layout.spans[i].Elements)
	s.lendValues(i)
	b.fetched = s.queue.ask(operation{kind: fetch, bucket: i, slot: place})
}

// drop frees a bucket's values.
func (s *Sharder) drop(i int) {
	b := &s.buckets[i]
	if b.valueSlot != nil {
		b.valueSlot.bucket = none
	}
	b.valueSlot, b.value = nil, device.Tensor{}
	for _, p := range s.layout.params(i) {
		p.Data = device.Tensor{}
	}
}

// forget frees all values, including the ones that a caller has set.
func (s *Sharder) forget() {
	for i := range s.buckets {
		s.drop(i)
	}
}
