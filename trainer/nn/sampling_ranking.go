package nn

// ranking returns tokens in order of decreasing probability, the first of equal ones first. It is a
// heap, so that tokens that are never requested are not sorted.
type ranking struct {
	logits []float32
	tokens []int32 // a heap: each precedes its children, at twice its index plus 1 and plus 2
}

// start builds the heap of all tokens. The logits must not be NaN and must not change until the
// last call of next.
func (r *ranking) start(logits []float32) {
	r.logits, r.tokens = logits, r.tokens[:0]
	for t := range logits {
		r.tokens = append(r.tokens, int32(t))
	}
	for i := len(r.tokens)/2 - 1; i >= 0; i-- {
		r.sink(i)
	}
}

// next removes and returns the most likely token. The heap must not be empty.
func (r *ranking) next() int32 {
	first, last := r.tokens[0], len(r.tokens)-1
	r.tokens[0] = r.tokens[last]
	r.tokens = r.tokens[:last]
	r.sink(0)
	return first
}

// sink restores the heap order below index i.
func (r *ranking) sink(i int) {
	for {
		below := 2*i + 1
		if below >= len(r.tokens) {
			return
		}
		if below+1 < len(r.tokens) && r.before(below+1, below) {
			below++
		}
		if !r.before(below, i) {
			return
		}
		r.tokens[i], r.tokens[below] = r.tokens[below], r.tokens[i]
		i = below
	}
}

// before reports whether the token at index i precedes the token at index j.
func (r *ranking) before(i, j int) bool {
	a, b := r.tokens[i], r.tokens[j]
	return r.logits[a] > r.logits[b] || r.logits[a] == r.logits[b] && a < b
}
