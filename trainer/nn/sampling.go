package nn

import (
	"fmt"
	"math"

	"github.com/ddpbatch/ddpbatch/trainer/random"
)

// Sampling configures how tokens are sampled from logits. The zero value selects the most likely
// token.
type Sampling struct {
	// Temperature divides the logits: values below 1 make likely tokens more likely. 0 selects the
	// largest logit, the first of equal ones, without randomness.
	Temperature float64
	// TopK keeps this many of the largest logits, the first of equal ones; 0 keeps all.
	TopK int
	// TopP then keeps the smallest set of likely tokens whose probabilities, relative to the tokens
	// that TopK kept, sum to at least TopP (Holtzman et al. 2020); 0 and 1 keep all.
	TopP float64
	// Seed seeds the generator, which uses the low 32 bits.
	Seed uint64
}

// Sampler samples tokens from logits. Equal logits and settings give equal tokens. It is not safe
// for concurrent use.
type Sampler struct {
	Sampling
	generator *random.Generator
	ranking   ranking
	tokens    []int32   // candidates
	weights   []float64 // their probabilities, up to a common factor
}

// NewSampler returns a sampler, or an error that names a setting that is out of range.
func NewSampler(s Sampling) (*Sampler, error) {
	switch {
	case !(s.Temperature >= 0) || math.IsInf(s.Temperature, 1):
		return nil, fmt.Errorf("sample tokens: the temperature is %v, want 0 or more", s.Temperature)
	case s.TopK < 0:
		return nil, fmt.Errorf("sample tokens: top-k is %d, want 0 or more", s.TopK)
	case !(s.TopP >= 0 && s.TopP <= 1):
		return nil, fmt.Errorf("sample tokens: top-p is %v, want a number from 0 to 1", s.TopP)
	}
	return &Sampler{Sampling: s, generator: random.New(s.Seed)}, nil
}

// Next samples a token. It returns an error if a logit is NaN or +Inf, or if all are -Inf, as the
// logits of a diverged model are.
func (s *Sampler) Next(logits []float32) (int32, error) {
	most := 0
	for i, v := range logits {
		if v != v || v > math.MaxFloat32 {
			return 0, fmt.Errorf("sample a token: the logit of token %d is %v", i, v)
		}
		if v > logits[most] {
			most = i
		}
	}
	if len(logits) == 0 || logits[most] < -math.MaxFloat32 {
		return 0, fmt.Errorf("sample a token: none of %d has a logit above -Inf", len(logits))
	}
	if s.Temperature == 0 {
		return int32(most), nil
	}
	s.choose(logits, logits[most])
	return s.draw(), nil
}

// choose sets tokens, the candidates that TopK and TopP keep, and their weights. If some tokens are
// excluded, the candidates are sorted by probability. Only they are sorted, because the vocabulary
// is large and there are few candidates.
func (s *Sampler) choose(logits []float32, most float32) {
	s.tokens, s.weights = s.tokens[:0], s.weights[:0]
	few, likely := s.TopK > 0 && s.TopK < len(logits), s.TopP > 0 && s.TopP < 1
	if !few && !likely {
		for t := range logits {
			s.addCandidate(int32(t), logits, most)
		}
		return
	}
	s.ranking.start(logits)
	if few {
		total := 0.0
		for range s.TopK {
			total += s.addCandidate(s.ranking.next(), logits, most)
		}
		if likely {
			s.cut(s.TopP * total)
		}
		return
	}
	total, sum := 0.0, 0.0
	for _, v := range logits {
		total += s.weight(v, most)
	}
	for sum < s.TopP*total && len(s.tokens) < len(logits) {
		sum += s.addCandidate(s.ranking.next(), logits, most)
	}
}

// weight returns the weight of a token with the given logit, where most is the largest logit.
func (s *Sampler) weight(logit, most float32) float64 {
	return math.Exp((float64(logit) - float64(most)) / s.Temperature)
}

// addCandidate adds a token to the candidates and returns its weight.
func (s *Sampler) addCandidate(t int32, logits []float32, most float32) float64 {
	w := s.weight(logits[t], most)
	s.tokens, s.weights = append(s.tokens, t), append(s.weights, w)
	return w
}

// cut keeps the first candidates whose weights sum to at least enough.
func (s *Sampler) cut(enough float64) {
	sum := 0.0
	for i, w := range s.weights {
		if sum += w; sum >= enough {
			s.tokens, s.weights = s.tokens[:i+1], s.weights[:i+1]
			return
		}
	}
}

// draw returns a random candidate with a probability proportional to its weight.
func (s *Sampler) draw() int32 {
	total := 0.0
	for _, w := range s.weights {
		total += w
	}
	high := uint64(s.generator.Uint32()) << 32
	bits := high | uint64(s.generator.Uint32())
	left := float64(bits>>11) * 0x1p-53 * total
	last := 0
	for i, w := range s.weights {
		if w == 0 {
			continue
		}
		if left < w {
			return s.tokens[i]
		}
		left -= w
		last = i
	}
	return s.tokens[last] // because of rounding
}
