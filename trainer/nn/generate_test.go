package nn

import (
	"fmt"
	"slices"
	"testing"

	"github.com/ddpbatch/ddpbatch/trainer/cpu"
	"github.com/ddpbatch/ddpbatch/trainer/device"
)

// greedy continues a prompt with the most likely tokens.
func greedy(t *testing.T, g *Generator, prompt []int32, n int) []int32 {
	t.Helper()
	s, err := NewSampler(Sampling{})
	if err != nil {
		t.Fatal(err)
	}
	var tokens []int32
	for next := prompt; len(tokens) < n; next = tokens[len(tokens)-1:] {
		token, err := s.Next(g.Feed(next))
		if err != nil {
			t.Fatal(err)
		}
		tokens = append(tokens, token)
	}
	return tokens
}

// TestGenerationFollowsTorch checks that a trained model continues prompts as PyTorch does, also
// beyond its context.
func TestGenerationFollowsTorch(t *testing.T) {
	var file struct {
		gptGolden
		Generation []struct{ Prompt, Tokens []int32 }
	}
	readGolden(t, "gpt_golden.json", &file)
	r, d := file.Training, cpu.New(1)
	m := startGPT(t, d, r, file.Seed, r.Batch, device.FP32)
	trainGPT(m, d, r)
	past := false
	for _, want := range file.Generation {
		if got := greedy(t, m.NewGenerator(d, device.FP32), want.Prompt, len(want.Tokens)); !slices.Equal(got, want.Tokens) {
			t.Errorf("after %v: %v, want %v", want.Prompt, got, want.Tokens)
		}
		past = past || len(want.Prompt)+len(want.Tokens) > m.Context+1
	}
	if !past {
		t.Error("no sequence grew longer than the context")
	}
}

// tinyGPT is the first model of gpt_golden.json, with its first sequence and PyTorch's logits after
// each token of it.
type tinyGPT struct {
	gptRun
	Logits golden
}

func readTinyGPT(t testing.TB) tinyGPT {
	t.Helper()
	var file struct{ Tiny tinyGPT }
	readGolden(t, "gpt_golden.json", &file)
	return file.Tiny
}

func (g tinyGPT) sequence() []int32 { return g.Tokens.ints()[:g.Config.Context] }

func (g tinyGPT) logitsAfter(i int) []float32 {
	return g.Logits.Values[i*g.Config.Vocabulary:][:g.Config.Vocabulary]
}

// TestFeedFollowsTorch compares the logits after each token with PyTorch's.
func TestFeedFollowsTorch(t *testing.T) {
	tiny := readTinyGPT(t)
	d := cpu.New(1)
	m := newGPT(t, d, tiny.Config)
	for i, p := range m.Params() {
		d.Write(p.Data, tiny.Params[i].Values)
	}
	g := m.NewGenerator(d, device.FP32)
	for i, token := range tiny.sequence() {
		checkClose(t, fmt.Sprintf("logits after token %d", i), g.Feed([]int32{token}), tiny.logitsAfter(i), logitsMost)
	}
}

// logitsMost is the maximum difference of logits from PyTorch's, relative to the largest logit.
const logitsMost = 5e-6

// newGPT returns a model whose parameters have memory and random values.
func newGPT(t testing.TB, d device.Device, o GPTOptions) *GPT {
	t.Helper()
	m, err := NewGPT(o)
	if err != nil {
		t.Fatal(err)
	}
	placeRandom(d, m.Params())
	return m
}

var spokenGPT = GPTOptions{Vocabulary: 13, Context: 8, Layers: 2, Heads: 2, Width: 16}

// TestFeedInPieces checks that the logits depend only on the last Context tokens, however a
// sequence is split into pieces.
func TestFeedInPieces(t *testing.T) {
	sequence := []int32{3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 2, 3, 8, 4}
	for _, precision := range []device.Precision{device.FP32, device.BF16} {
		d := cpu.New(2)
		m := newGPT(t, d, spokenGPT)
		for _, cuts := range [][]int{{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, {3, 5, 1}, {7, 2, 8}, {2, 6, 9, 1}, {19, 1}} {
			g := m.NewGenerator(d, precision)
			end := 0
			for _, n := range cuts {
				got := g.Feed(sequence[end : end+n])
				end += n
				want := m.NewGenerator(d, precision).Feed(sequence[max(0, end-m.Context):end])
				most := logitsMost
				if precision == device.BF16 { // values that are nearly equal can round differently
					most = 0.02
				}
				checkClose(t, fmt.Sprintf("logits after %d tokens in pieces", end), got, want, most)
			}
		}
	}
}

// TestKeepHalf checks that KeepHalf cuts a full context to its last half, or to the tokens being
// fed.
func TestKeepHalf(t *testing.T) {
	sequence := []int32{3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3}
	d := cpu.New(1)
	m := newGPT(t, d, spokenGPT)
	for _, c := range []struct {
		pieces []int
		kept   int // tokens in the context at the end
	}{
		{[]int{8}, 8}, {[]int{8, 1}, 4}, {[]int{8, 1, 1, 1, 1}, 7}, {[]int{8, 1, 1, 1, 1, 1}, 8}, {[]int{8, 1, 1, 1, 1, 1, 1}, 4},
		{[]int{5, 6}, 6}, {[]int{2, 12}, 8}, {[]int{16}, 8},
	} {
		g := m.NewGenerator(d, device.FP32)
		g.KeepHalf = true
		var got []float32
		end := 0
		for _, n := range c.pieces {
			got = g.Feed(sequence[end : end+n])
			end += n
		}
		want := m.NewGenerator(d, device.FP32).Feed(sequence[end-c.kept : end])
		checkClose(t, fmt.Sprintf("logits after pieces of %v", c.pieces), got, want, logitsMost)
	}
}

// TestContextOfOneToken checks that earlier tokens do not change the logits of a model with a
// context of one token.
func TestContextOfOneToken(t *testing.T) {
	o := spokenGPT
	o.Context = 1
	d := cpu.New(1)
	m := newGPT(t, d, o)
	want := slices.Clone(m.NewGenerator(d, device.FP32).Feed([]int32{7}))
	for _, half := range []bool{false, true} {
		g := m.NewGenerator(d, device.FP32)
		g.KeepHalf = half
		g.Feed([]int32{1, 2})
		sameBits(t, "logits", g.Feed([]int32{7}), want)
	}
}

// TestFeedAllocatesNothing checks that feeding a token does not allocate memory.
func TestFeedAllocatesNothing(t *testing.T) {
	d := cpu.New(1)
	g := newGPT(t, d, spokenGPT).NewGenerator(d, device.FP32)
	token := []int32{1}
	g.Feed(token)
	if n := testing.AllocsPerRun(2*spokenGPT.Context, func() { g.Feed(token) }); n != 0 {
		t.Errorf("%v allocations to feed a token", n)
	}
}

// TestFeedPanicsOnInvalidTokens checks that Feed panics without tokens and for token IDs outside
// of the vocabulary.
func TestFeedPanicsOnInvalidTokens(t *testing.T) {
	d := cpu.New(1)
	for _, tokens := range [][]int32{nil, {-1}, {0, 13}} {
		g := newGPT(t, d, spokenGPT).NewGenerator(d, device.FP32)
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%v was taken", tokens)
				}
			}()
			g.Feed(tokens)
		}()
	}
}
