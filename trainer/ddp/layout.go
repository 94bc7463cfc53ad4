package ddp

import (
	"cmp"
	"slices"

	"github.com/ddpbatch/ddpbatch/trainer/nn"
)

// lineElements is the elements of a cache line, where parameters and chunks begin: what fills
// up to the next is zero, and stays so.
const lineElements = 16

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

// Span is the parameters of a bucket, First up to but not with End in order of
// registration, and the elements that they take: a multiple of a cache line for each rank.
type Span struct{ First, End, Elements int }

// Spans are the buckets, in their order, of parameters of so many elements (in order of
// registration), each of so many bytes in a gradient. They are filled from the last
// parameter to the first, and one is closed as soon as it has reached its size, as
// PyTorch's compute_bucket_assignment does; the extra scalars go at the end of the last.
func (o Options) Spans(sizes []int, ranks, bytes int) []Span {
	all := 0
	for _, n := range sizes {
		all += n
	}
	limit, rest := o.Buckets(bytes * all)
	var out []Span
	used, end := 0, len(sizes)
	for i := end - 1; i >= 0; i-- {
		used += up(sizes[i], lineElements)
		if i == 0 {
			used += o.Extra
		} else if bytes*used < limit {
			continue
		}
		out = append(out, Span{i, end, up(used, ranks*lineElements)})
		used, limit, end = 0, rest, i
	}
	return out
}

// up is the least multiple of a number that is not below n.
func up(n, of int) int { return (n + of - 1) / of * of }

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

// span is a bucket whose parameters are in it in reverse order of registration.
type span struct {
	Span
	room int      // of a slot for this bucket, and others of about its size
	gaps [][2]int // between parameters
}

// newLayout places parameters in their buckets.
func newLayout(params []*nn.Param, ranks int, o Options) layout {
	l := layout{all: params, places: map[*nn.Param]place{}}
	sizes := make([]int, len(params))
	for i, p := range params {
		sizes[i] = p.Len()
	}
	for _, s := range o.Spans(sizes, ranks, 4) {
		now, used := span{Span: s}, 0
		fill := func(to int) {
			if to > used {
				now.gaps = append(now.gaps, [2]int{used, to})
			}
			used = to
		}
		for i := s.End - 1; i >= s.First; i-- {
			l.places[params[i]] = place{len(l.spans), used}
			used += sizes[i]
			fill(up(used, lineElements))
		}
		if s.First == 0 {
			l.extra = used
			fill(used + o.Extra)
		}
		fill(s.Elements)
		l.spans = append(l.spans, now)
		l.elements += s.Elements
	}
	l.makeRoom()
	return l
}

// makeRoom has buckets that differ by less than a factor of two take turns in the
// same slots.
func (l *layout) makeRoom() {
	bySize := slices.Clone(l.spans)
	slices.SortFunc(bySize, func(a, b span) int { return b.Elements - a.Elements })
	var rooms []int
	for _, s := range bySize {
		if n := len(rooms); n == 0 || 2*s.Elements <= rooms[n-1] {
			rooms = append(rooms, s.Elements)
		}
	}
	for i, s := range l.spans {
		for _, room := range rooms {
			if room >= s.Elements {
				l.spans[i].room = room
			}
		}
	}
}

// largest is the elements of the largest bucket.
func (l *layout) largest() int {
	largest := 0
	for _, span := range l.spans {
		largest = max(largest, span.Elements)
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
	return l.all[l.spans[bucket].First:l.spans[bucket].End]
}

// Ranges returns, for each of Parts, the ranges of its elements that belong to selected
// parameters. The padding after a parameter belongs to it, so that neighbors are one range.
func (s *Sharder) Ranges(selected func(*nn.Param) bool) [][]nn.Range {
	out := make([][]nn.Range, len(s.parts))
	for i, part := range s.parts {
		n, span := part.Len(), s.layout.spans[i]
		first := 0 // element of the bucket at which the part begins
		if s.Strategy != DDP {
			first = s.comm.Rank() * n
		}
		end := span.Elements
		for _, p := range s.layout.params(i) { // from the end of the bucket to its beginning
			begin := s.layout.places[p].at
			r := nn.Range{First: max(begin-first, 0), End: min(end-first, n)}
			end = begin
			if r.First >= r.End || !selected(p) {
				continue
			}
			if last := len(out[i]) - 1; last >= 0 && out[i][last].First == r.End {
				out[i][last].First = r.First
			} else {
				out[i] = append(out[i], r)
			}
		}
		slices.Reverse(out[i])
	}
	return out
}
