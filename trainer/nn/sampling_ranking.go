package nn

// ranking gives tokens from the likeliest on, of equal ones the first. It is a heap,
// so that those that are not asked for are never sorted.
type ranking struct {
	logits []float32
	tokens []int32 // each before those at twice its place plus 1 and plus 2
}

// start ranks all tokens. Logits are numbers, and stay as they are as long as next is
// called.
func (r *ranking) start(logits []float32) {
	r.logits, r.tokens = logits, r.tokens[:0]
	for t := range logits {
		r.tokens = append(r.tokens, int32(t))
	}
	for i := len(r.tokens)/2 - 1; i >= 0; i-- {
		r.sink(i)
	}
}

// next takes the likeliest of those that are left, at least one.
func (r *ranking) next() int32 {
	first, last := r.tokens[0], len(r.tokens)-1
	r.tokens[0] = r.tokens[last]
	r.tokens = r.tokens[:last]
	r.sink(0)
	return first
}

// sink puts the token at place i where it belongs among those below.
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

// before reports whether the token at place i comes before that at place j.
func (r *ranking) before(i, j int) bool {
	a, b := r.tokens[i], r.tokens[j]
	return r.logits[a] > r.logits[b] || r.logits[a] == r.logits[b] && a < b
}
