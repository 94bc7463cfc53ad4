package nn

import (
	"fmt"
	"math"

	"github.com/ddpbatch/ddpbatch/trainer/random"
)

// Sampling says how a token is drawn from logits. The zero value takes the most
// likely one.
type Sampling struct {
	// Temperature divides the logits: below 1 likely tokens become more likely. 0
	// takes the largest logit, the first of equal ones, and draws nothing.
	Temperature float64
	// TopK leaves that many of the largest logits, of equal ones the first; 0 leaves
	// all.
	TopK int
	// TopP then leaves the fewest likely tokens whose probabilities, those of what
	// TopK left, add up to it or more (Holtzman et al. 2020); 0 and 1 leave all.
	TopP float64
	// Seed starts the generator, whose low 32 bits count.
	Seed uint64
}

// Sampler draws tokens one after the other: the same ones from the same logits. It
// is not safe for concurrent use.
type Sampler struct {
	Sampling
	generator *random.Generator
	ranking   ranking
	tokens    []int32   // that may be drawn
	weights   []float64 // theirs: probabilities, times a factor
}

// NewSampler returns a sampler before its first draw, or an error that says which
// setting is out of its range.
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

// Next draws a token. Logits that hold no number or +Inf, or nothing but -Inf,
// which are those of a model that has diverged, are an error.
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

// choose fills tokens with those that TopK and TopP leave, and weights. Where these
// leave some out, the likely ones come first, and only they are sorted: a vocabulary
// is large, and what is left mostly small.
func (s *Sampler) choose(logits []float32, most float32) {
	s.tokens, s.weights = s.tokens[:0], s.weights[:0]
	few, likely := s.TopK > 0 && s.TopK < len(logits), s.TopP > 0 && s.TopP < 1
	if !few && !likely {
		for t := range logits {
			s.take(int32(t), logits, most)
		}
		return
	}
	s.ranking.start(logits)
	if few {
		total := 0.0
		for range s.TopK {
			total += s.take(s.ranking.next(), logits, most)
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
		sum += s.take(s.ranking.next(), logits, most)
	}
}

// weight is that of a token with a logit, where most is the largest.
func (s *Sampler) weight(logit, most float32) float64 {
	return math.Exp((float64(logit) - float64(most)) / s.Temperature)
}

// take adds a token to those that may be drawn, and returns its weight.
func (s *Sampler) take(t int32, logits []float32, most float32) float64 {
	w := s.weight(logits[t], most)
	s.tokens, s.weights = append(s.tokens, t), append(s.weights, w)
	return w
}

// cut leaves the first tokens whose weights add up to enough.
func (s *Sampler) cut(enough float64) {
	sum := 0.0
	for i, w := range s.weights {
		if sum += w; sum >= enough {
			s.tokens, s.weights = s.tokens[:i+1], s.weights[:i+1]
			return
		}
	}
}

// draw returns one of tokens, each as often as its weight says.
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
	return s.tokens[last] // rounding left a little
}
