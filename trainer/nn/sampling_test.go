package nn

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

func newSampler(t testing.TB, s Sampling) *Sampler {
	t.Helper()
	out, err := NewSampler(s)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// draws returns n tokens from the same logits.
func draws(t testing.TB, s Sampling, logits []float32, n int) []int32 {
	t.Helper()
	from := newSampler(t, s)
	tokens := make([]int32, n)
	for i := range tokens {
		var err error
		if tokens[i], err = from.Next(logits); err != nil {
			t.Fatal(err)
		}
	}
	return tokens
}

// TestSamplingFrequencies checks that the frequencies of tokens match their probabilities, and
// that excluded tokens never occur.
func TestSamplingFrequencies(t *testing.T) {
	const n = 20000
	minus := float32(math.Inf(-1))
	logarithms := func(p ...float64) []float32 {
		v := make([]float32, len(p))
		for i := range p {
			v[i] = float32(math.Log(p[i])) + 3
		}
		return v
	}
	for _, c := range []struct {
		name   string
		s      Sampling
		logits []float32
		want   []float64
	}{
		{"all", Sampling{Temperature: 1}, logarithms(0.1, 0.2, 0.3, 0.4), []float64{0.1, 0.2, 0.3, 0.4}},
		{"cold", Sampling{Temperature: 0.5}, logarithms(0.2, 0.4, 0.4), []float64{1. / 9, 4. / 9, 4. / 9}},
		{"hot", Sampling{Temperature: 2}, logarithms(0.1, 0.4, 0.5), []float64{0.1910, 0.3820, 0.4271}},
		{"nearly frozen", Sampling{Temperature: 1e-300}, logarithms(0.3, 0.4, 0.3), []float64{0, 1, 0}},
		{"impossible tokens", Sampling{Temperature: 1}, []float32{minus, 1, minus, 1, minus}, []float64{0, 0.5, 0, 0.5, 0}},
		{"top-k", Sampling{Temperature: 1, TopK: 2}, logarithms(0.1, 0.2, 0.3, 0.4), []float64{0, 0, 3. / 7, 4. / 7}},
		{"top-k of equal ones", Sampling{Temperature: 1, TopK: 2}, logarithms(0.2, 0.3, 0.3, 0.3), []float64{0, 0.5, 0.5, 0}},
		{"top-k of more than there are", Sampling{Temperature: 1, TopK: 9}, logarithms(0.25, 0.75), []float64{0.25, 0.75}},
		{"top-p", Sampling{Temperature: 1, TopP: 0.6}, logarithms(0.1, 0.2, 0.3, 0.4), []float64{0, 0, 3. / 7, 4. / 7}},
		{"top-p of less than one token", Sampling{Temperature: 1, TopP: 0.01}, logarithms(0.1, 0.2, 0.3, 0.4), []float64{0, 0, 0, 1}},
		{"top-p of all", Sampling{Temperature: 1, TopP: 1}, logarithms(0.1, 0.2, 0.3, 0.4), []float64{0.1, 0.2, 0.3, 0.4}},
		{"top-p of what top-k leaves", Sampling{Temperature: 1, TopK: 3, TopP: 0.7}, logarithms(0.1, 0.2, 0.3, 0.4), []float64{0, 0, 3. / 7, 4. / 7}},
		{"one", Sampling{Temperature: 0}, []float32{minus, 2, 5, 5}, []float64{0, 0, 1, 0}},
	} {
		t.Run(c.name, func(t *testing.T) {
			times := make([]float64, len(c.logits))
			for _, token := range draws(t, c.s, c.logits, n) {
				times[token]++
			}
			for i, want := range c.want {
				// Four standard deviations of a binomial distribution.
				most := 4*math.Sqrt(want*(1-want)/n) + 1e-4
				if want == 0 || want == 1 {
					most = 0
				}
				if got := times[i] / n; math.Abs(got-want) > most {
					t.Errorf("token %d has a share of %v, want %v", i, got, want)
				}
			}
		})
	}
}

// TestSamplingIsDeterministic checks that the sampled tokens depend only on the seed.
func TestSamplingIsDeterministic(t *testing.T) {
	logits := make([]float32, 1000)
	for i := range logits {
		logits[i] = float32(math.Sin(float64(i)))
	}
	for _, s := range []Sampling{{Temperature: 1}, {Temperature: 1, TopK: 500}, {Temperature: 0.8, TopP: 0.9}} {
		s.Seed = 1
		first := draws(t, s, logits, 50)
		if again := draws(t, s, logits, 50); !slices.Equal(first, again) {
			t.Errorf("%+v draws %v, then %v", s, first, again)
		}
		s.Seed = 2
		if other := draws(t, s, logits, 50); slices.Equal(first, other) {
			t.Errorf("%+v draws the same with another seed", s)
		}
	}
}

// TestSamplingMatchesSorting checks that the candidates are the first tokens of a stable sort of
// all tokens by probability.
func TestSamplingMatchesSorting(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{1, 2, 3, 10, 257, 1000} {
		logits := make([]float32, n)
		for i := range logits {
			logits[i] = float32(math.Round(8*r.NormFloat64()) / 4) // many are equal
			if r.IntN(10) == 0 {
				logits[i] = float32(math.Inf(-1))
			}
		}
		logits[r.IntN(n)] = 0
		sorted := make([]int32, n)
		for i := range sorted {
			sorted[i] = int32(i)
		}
		slices.SortStableFunc(sorted, func(a, b int32) int { return cmp.Compare(logits[b], logits[a]) })
		for _, k := range []int{0, 1, 2, 7, n - 1, n, 2 * n} {
			for _, p := range []float64{0, 1e-9, 0.3, 0.7, 0.95, 0.999999, 1} {
				s := newSampler(t, Sampling{Temperature: 0.7, TopK: k, TopP: p})
				if _, err := s.Next(logits); err != nil {
					t.Fatal(err)
				}
				want := sorted
				if k > 0 && k < n {
					want = want[:k]
				} else if p == 0 || p == 1 {
					continue // all remain, in their own order
				}
				if p > 0 && p < 1 {
					want = likeliest(s, want, logits, p)
				}
				if limitsBoth := k > 0 && k < n && p > 0 && p < 1; !limitsBoth && len(s.ranking.tokens) != n-len(want) {
					t.Errorf("%d logits, top-k %d, top-p %v: %d were sorted for %d", n, k, p, n-len(s.ranking.tokens), len(want))
				}
				if !slices.Equal(s.tokens, want) {
					t.Errorf("%d logits, top-k %d, top-p %v: %d tokens are left, %v, want %d, %v", n, k, p, len(s.tokens), s.tokens, len(want), want)
				}
			}
		}
	}
}

// likeliest returns the first tokens whose weights sum to at least the fraction p of the total.
func likeliest(s *Sampler, tokens []int32, logits []float32, p float64) []int32 {
	most, total, sum := slices.Max(logits), 0.0, 0.0
	for _, token := range tokens {
		total += s.weight(logits[token], most)
	}
	for i, token := range tokens {
		if sum += s.weight(logits[token], most); sum >= p*total {
			return tokens[:i+1]
		}
	}
	return tokens
}

// BenchmarkSampling samples from a vocabulary of GPT-2's size.
func BenchmarkSampling(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 2))
	logits := make([]float32, 50257)
	for i := range logits {
		logits[i] = float32(3 * r.NormFloat64())
	}
	for _, s := range []Sampling{{Temperature: 1}, {Temperature: 1, TopK: 50}, {Temperature: 1, TopP: 0.9}} {
		b.Run(fmt.Sprintf("top-k %d, top-p %v", s.TopK, s.TopP), func(b *testing.B) {
			sampler := newSampler(b, s)
			for b.Loop() {
				if _, err := sampler.Next(logits); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// TestSamplingRejectsInvalidLogits checks that logits of NaN or infinity are rejected, and that at
// least one token must be possible.
func TestSamplingRejectsInvalidLogits(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for _, c := range []struct {
		logits []float32
		want   string
	}{
		{[]float32{0, nan, 1}, "the logit of token 1 is NaN"},
		{[]float32{nan}, "the logit of token 0 is NaN"},
		{[]float32{0, 1, inf}, "the logit of token 2 is +Inf"},
		{[]float32{-inf, -inf}, "none of 2 has a logit above -Inf"},
		{nil, "none of 0 "},
	} {
		for _, temperature := range []float64{0, 1} {
			_, err := newSampler(t, Sampling{Temperature: temperature, TopK: 1, TopP: 0.5}).Next(c.logits)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v at temperature %v: %v, want %q", c.logits, temperature, err, c.want)
			}
		}
	}
}

// TestSamplingOutOfRange checks that invalid temperatures, top-k, and top-p are rejected.
func TestSamplingOutOfRange(t *testing.T) {
	for _, c := range []struct {
		s    Sampling
		want string
	}{
		{Sampling{Temperature: -0.1}, "the temperature is -0.1"},
		{Sampling{Temperature: math.NaN()}, "the temperature is NaN"},
		{Sampling{Temperature: math.Inf(1)}, "the temperature is +Inf"},
		{Sampling{TopK: -1}, "top-k is -1"},
		{Sampling{TopP: 1.5}, "top-p is 1.5"},
		{Sampling{TopP: math.NaN()}, "top-p is NaN"},
	} {
		if _, err := NewSampler(c.s); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.s, err, c.want)
		}
	}
}
