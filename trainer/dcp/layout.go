package dcp

import (
	"cmp"
	"slices"

	"github.com/ddpbatch/ddpbatch/internal/hints"
)

// elements returns the number of elements of a shape.
func elements(shape []int) int64 {
	n := int64(1)
	for _, d := range shape {
		n *= int64(d)
	}
	return n
}

func (ch chunk) elements() int64 { return elements(ch.sizes) }

// overlaps reports whether two chunks have an element in common.
func (ch chunk) overlaps(other chunk) bool {
	for i := range ch.sizes {
		if ch.offsets[i] >= other.offsets[i]+other.sizes[i] || other.offsets[i] >= ch.offsets[i]+ch.sizes[i] {
			return false
		}
	}
	return true
}

// checkCoverage checks that the chunks cover each element of the tensor exactly once. It sorts them.
func (t *Tensor) checkCoverage() error {
	// Chunks that overlap also overlap along the dimension with the most different offsets. Few do.
	along, most := 0, 0
	for i := range t.Shape {
		seen := map[int]bool{}
		for _, ch := range t.chunks {
			seen[ch.offsets[i]] = true
		}
		if len(seen) > most {
			along, most = i, len(seen)
		}
	}
	slices.SortStableFunc(t.chunks, func(a, b chunk) int {
		if len(t.Shape) == 0 {
			return 0
		}
		return cmp.Compare(a.offsets[along], b.offsets[along])
	})
	var covered int64
	var near []chunk // chunks before ch that extend beyond its offset
	for _, ch := range t.chunks {
		covered += ch.elements()
		near = slices.DeleteFunc(near, func(other chunk) bool {
			return len(t.Shape) > 0 && other.offsets[along]+other.sizes[along] <= ch.offsets[along]
		})
		for _, other := range near {
			if ch.overlaps(other) {
				return hints.Errorf("export an earlier checkpoint", "the chunks at %v with size %v and at %v with size %v overlap", other.offsets, other.sizes, ch.offsets, ch.sizes)
			}
		}
		near = append(near, ch)
	}
	if total := elements(t.Shape); covered != total {
		return hints.Errorf(hintIncomplete, "its %d chunks have %d of %d elements", len(t.chunks), covered, total)
	}
	return nil
}

// rows calls f for the parts of a chunk that are contiguous in the tensor, in the order of the
// chunk's elements: from, in the tensor, and the number of elements.
func (ch chunk) rows(shape []int, f func(from, n int) error) error {
	// The last dimensions that the chunk covers completely, and the one before them, are contiguous.
	last := len(shape)
	n := 1
	for last > 0 {
		last--
		n *= ch.sizes[last]
		if ch.sizes[last] != shape[last] {
			break
		}
	}
	strides := make([]int, len(shape))
	stride := 1
	for i := len(shape) - 1; i >= 0; i-- {
		strides[i] = stride
		stride *= shape[i]
	}
	start := 0
	for i, o := range ch.offsets {
		start += o * strides[i]
	}
	index := make([]int, last)
	for {
		from := start
		for i, j := range index {
			from += j * strides[i]
		}
		if err := f(from, n); err != nil {
			return err
		}
		i := last - 1
		for ; i >= 0; i-- {
			if index[i]++; index[i] < ch.sizes[i] {
				break
			}
			index[i] = 0
		}
		if i < 0 {
			return nil
		}
	}
}
