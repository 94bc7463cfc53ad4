package nn

import (
	"cmp"
	"fmt"
	"math"
	"slices"

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
	s.choose(logits)
	s.weigh(logits, logits[most])
	return s.draw(), nil
}

// choose fills tokens with those that TopK leaves, the likely ones first where the
// order matters.
func (s *Sampler) choose(logits []float32) {
	s.tokens = s.tokens[:0]
	for i := range logits {
		s.tokens = append(s.tokens, int32(i))
	}
	all := s.TopP == 0 || s.TopP == 1
	few := s.TopK > 0 && s.TopK < len(logits)
	if few || !all {
		slices.SortFunc(s.tokens, func(a, b int32) int {
			return cmp.Or(cmp.Compare(logits[b], logits[a]), cmp.Compare(a, b))
		})
	}
	if few {
		s.tokens = s.tokens[:s.TopK]
	}
}

// weigh fills weights, and leaves those that TopP does.
func (s *Sampler) weigh(logits []float32, most float32) {
	s.weights = s.weights[:0]
	total := 0.0
	for _, t := range s.tokens {
		w := math.Exp((float64(logits[t]) - float64(most)) / s.Temperature)
		s.weights = append(s.weights, w)
		total += w
	}
	if s.TopP == 0 || s.TopP == 1 {
		return
	}
	sum := 0.0
	for i, w := range s.weights {
		if sum += w; sum >= s.TopP*total {
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
