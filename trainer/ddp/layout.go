package ddp

import (
	"cmp"
	"slices"

	"github.com/ddpbatch/ddpbatch/trainer/nn"
)

// line is the elements of a cache line, where parameters and chunks begin: what fills
// up to the next is zero, and stays so.
const line = 16

// Bucket sizes in bytes, as PyTorch's: a small first one so that communication
// starts early, then large ones.
const (
	FirstBucketBytes = 1 << 20
	BucketBytes      = 25 << 20
)

// Buckets are the sizes in bytes for a model of so many bytes of gradients, where o
// does not say: an eighth of them, from FirstBucketBytes to BucketBytes. The last
// bucket is ready when the backward pass ends, and never hidden: in a model of some
// megabytes one of 25 MiB would be nearly all.
func (o Options) Buckets(bytes int) (first, rest int) {
	first = cmp.Or(o.FirstBucket, FirstBucketBytes)
	rest = cmp.Or(o.Bucket, min(max(bytes/8, first), max(BucketBytes, first)))
	return min(first, rest), rest
}

// layout is where parameters are in buckets. It is the same for every strategy.
type layout struct {
	all      []*nn.Param
	places   map[*nn.Param]place
	spans    []span
	elements int // of all buckets
	extra    int // where the extra scalars are in the last bucket
}

// place is where a parameter is.
type place struct{ bucket, at int }

// span is the parameters of a bucket, in reverse order of registration.
type span struct {
	first, end int      // in layout.all
	elements   int      // a multiple of line for each rank
	room       int      // of a slot for this bucket, and others of about its size
	gaps       [][2]int // between parameters
}

// newLayout fills buckets from the last parameter to the first and closes one
// as soon as it has reached its size, as PyTorch's compute_bucket_assignment
// does; the extra scalars go at the end of the last.
func newLayout(params []*nn.Param, ranks int, o Options) layout {
	l := layout{all: params, places: map[*nn.Param]place{}}
	up := func(n, to int) int { return (n + to - 1) / to * to }
	used, limit := 0, o.FirstBucket
	now := span{end: len(params)}
	fill := func(to int) {
		if to > used {
			now.gaps = append(now.gaps, [2]int{used, to})
		}
		used = to
	}
	for i := len(params) - 1; i >= 0; i-- {
		l.places[params[i]] = place{len(l.spans), used}
		used += params[i].Len()
		fill(up(used, line))
		if i == 0 {
			l.extra = used
			fill(used + o.Extra)
		} else if 4*used < limit {
			continue
		}
		fill(up(used, ranks*line))
		now.first, now.elements = i, used
		l.spans = append(l.spans, now)
		l.elements += used
		used, limit, now = 0, o.Bucket, span{end: i}
	}
	l.makeRoom()
	return l
}

// makeRoom has buckets that differ by less than a factor of two take turns in the
// same slots.
func (l *layout) makeRoom() {
	bySize := slices.Clone(l.spans)
	slices.SortFunc(bySize, func(a, b span) int { return b.elements - a.elements })
	var rooms []int
	for _, s := range bySize {
		if n := len(rooms); n == 0 || 2*s.elements <= rooms[n-1] {
			rooms = append(rooms, s.elements)
		}
	}
	for i, s := range l.spans {
		for _, room := range rooms {
			if room >= s.elements {
				l.spans[i].room = room
			}
		}
	}
}

// largest is the elements of the largest bucket.
func (l *layout) largest() int {
	largest := 0
	for _, span := range l.spans {
		largest = max(largest, span.elements)
	}
	return largest
}

// turns is the elements of the slots that buckets take turns in, with so many of each
// size: no more than there are buckets for it.
func (l *layout) turns(slots int) (elements int) {
	buckets := map[int]int{} // by room
	for _, s := range l.spans {
		if buckets[s.room]++; buckets[s.room] <= slots {
			elements += s.room
		}
	}
	return elements
}

// params are those of a bucket.
func (l *layout) params(bucket int) []*nn.Param {
	return l.all[l.spans[bucket].first:l.spans[bucket].end]
}
