package ddp

import (
	"cmp"
	"slices"

	"github.com/ddpbatch/ddpbatch/trainer/nn"
)

// lineElements is the number of elements in a cache line. Parameters and shards begin at a multiple
// of it. The padding is always zero.
const lineElements = 16

// Bucket sizes in bytes, equal to PyTorch's: a small first one so that communication starts early,
// then large ones.
const (
	FirstBucketBytes = 1 << 20
	BucketBytes      = 25 << 20
)

// Buckets returns the bucket sizes in bytes for a model whose gradients have this many bytes, if o
// does not set them: one eighth, limited to between FirstBucketBytes and BucketBytes. The last
// bucket is ready when the backward pass ends, so its reduction is never overlapped. In a model of
// a few MiB, a bucket of 25 MiB would be nearly the whole model.
func (o Options) Buckets(bytes int) (first, rest int) {
	first = cmp.Or(o.FirstBucket, FirstBucketBytes)
	rest = cmp.Or(o.Bucket, min(max(bytes/8, first), max(BucketBytes, first)))
	return min(first, rest), rest
}

// A Span describes a bucket: its parameters, from First up to but not including End in registration
// order, and its number of elements, a multiple of a cache line per rank.
type Span struct{ First, End, Elements int }

// Spans returns the buckets, in order, for parameters with the given numbers of elements (in
// registration order) and bytes per gradient element. It fills them from the last parameter to the
// first and closes a bucket when it reaches its size, like PyTorch's compute_bucket_assignment. The
// extra scalars are at the end of the last bucket.
func (o Options) Spans(sizes []int, ranks, bytes int) []Span {
	all := 0
	for _, n := range sizes {
		all += n
	}
	limit, rest := o.Buckets(bytes * all)
	var out []Span
	used, end := 0, len(sizes)
	for i := end - 1; i >= 0; i-- {
		used += roundUp(sizes[i], lineElements)
		if i == 0 {
			used += o.Extra
		} else if bytes*used < limit {
			continue
		}
		out = append(out, Span{i, end, roundUp(used, ranks*lineElements)})
		used, limit, end = 0, rest, i
	}
	return out
}

// roundUp returns n rounded up to a multiple of multiple.
func roundUp(n, multiple int) int { return (n + multiple - 1) / multiple * multiple }

// layout holds the positions of parameters in buckets. It is the same for every strategy.
type layout struct {
	all       []*nn.Param
	positions map[*nn.Param]position
	spans     []span
	elements  int // in all buckets
	extra     int // index of the extra scalars in the last bucket
}

// position is the position of a parameter.
type position struct{ bucket, offset int }

// span is a bucket. Its parameters are in reverse registration order.
type span struct {
	Span
	slotSize int      // elements of the slots that this bucket shares with buckets of similar size
	gaps     [][2]int // padding between parameters
}

// newLayout assigns parameters to buckets.
func newLayout(params []*nn.Param, ranks int, o Options) layout {
	l := layout{all: params, positions: map[*nn.Param]position{}}
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
			l.positions[params[i]] = position{len(l.spans), used}
			used += sizes[i]
			fill(roundUp(used, lineElements))
		}
		if s.First == 0 {
			l.extra = used
			fill(used + o.Extra)
		}
		fill(s.Elements)
		l.spans = append(l.spans, now)
		l.elements += s.Elements
	}
	l.setSlotSizes()
	return l
}

// setSlotSizes sets the slot sizes. Buckets whose sizes differ by less than a factor of two share
// slots.
func (l *layout) setSlotSizes() {
	bySize := slices.Clone(l.spans)
	slices.SortFunc(bySize, func(a, b span) int { return b.Elements - a.Elements })
	var sizes []int
	for _, s := range bySize {
		if n := len(sizes); n == 0 || 2*s.Elements <= sizes[n-1] {
			sizes = append(sizes, s.Elements)
		}
	}
	for i, s := range l.spans {
		for _, size := range sizes {
			if size >= s.Elements {
				l.spans[i].slotSize = size
			}
		}
	}
}

// largest returns the number of elements of the largest bucket.
func (l *layout) largest() int {
	largest := 0
	for _, span := range l.spans {
		largest = max(largest, span.Elements)
	}
	return largest
}

// slotElements returns the total number of elements of all slots, with the given number of slots
// per size, but no more slots than buckets of that size.
func (l *layout) slotElements(slots int) (elements int) {
	buckets := map[int]int{} // by slot size
	for _, s := range l.spans {
		if buckets[s.slotSize]++; buckets[s.slotSize] <= slots {
			elements += s.slotSize
		}
	}
	return elements
}

// params returns the parameters of a bucket.
func (l *layout) params(bucket int) []*nn.Param {
	return l.all[l.spans[bucket].First:l.spans[bucket].End]
}

// pieces returns the pieces of this rank's part of a bucket, which has n elements.
func (s *Sharder) pieces(bucket, n int) []nn.Piece {
	first := 0 // index in the bucket of the part's first element
	if s.Strategy != DDP {
		first = s.comm.Rank() * n
	}
	out := []nn.Piece{}
	for _, p := range slices.Backward(s.layout.params(bucket)) { // in the order of their positions
		begin := s.layout.positions[p].offset
		from, to := max(first, begin), min(first+n, begin+p.Len())
		if from < to {
			out = append(out, nn.Piece{Param: p, Offset: from - begin, At: from - first, Len: to - from})
		}
	}
	return out
}
