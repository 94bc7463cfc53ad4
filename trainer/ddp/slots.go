package ddp

import (
	"slices"

	"github.com/ddpbatch/ddpbatch/trainer/device"
	"github.com/ddpbatch/ddpbatch/trainer/nn"
)

// none is the bucket of a slot that has none.
const none = -1

// slot is memory that buckets are lent in turn.
type slot struct {
	memory device.Tensor
	bucket int
	busy   int // the operation that works on it last
	used   int // when it was lent, in the order of slots.clock
}

// slots are those for values, or for gradients. There are as many as were ever needed
// at once, which is known after a step or two: it depends on the program alone, not
// on time.
type slots struct {
	memory       Memory
	list         []*slot
	clock        int
	before, last int // gradients: the last two operations
}

// onItsWay reports whether a slot has gradients that are being written or added up.
func (l *slots) onItsWay(s *slot) bool { return s.bucket != none || s.busy > l.before }

// Lent is the bytes that buckets will be lent in turn, beside what this rank keeps: one
// that is worked on and one on its way, of gradients and of values. A layer whose
// parameters are in two buckets takes one more.
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

// find returns the slot of that many elements that was lent longest ago, of those
// that are not taken, or a new one.
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

// lookahead is which buckets' values are there with ZeRO3.
type lookahead struct {
	using, needed []int // buckets of the last call and of the present one
	// The last two buckets that came into use, and what came into use after such two:
	// forwards and backwards through the same buckets are two different things.
	recent [2]int
	after  map[[2]int]int
}

// inUse reports whether what is in a slot must stay there.
func (w *lookahead) inUse(s *slot) bool { return slices.Contains(w.needed, s.bucket) }

// refresh begins to fetch what will be used first.
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

// foresee fetches the bucket that came into use next the last time.
func (s *Sharder) foresee() {
	if next, known := s.ahead.after[s.ahead.recent]; known {
		s.load(next)
	}
}

// load begins to fetch a bucket that is not there.
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

// drop takes a bucket's values away.
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

// forget takes all values away, those too that someone else has placed.
func (s *Sharder) forget() {
	for i := range s.buckets {
		s.drop(i)
	}
}
