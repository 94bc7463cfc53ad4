package textgen

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/trainer/cpu"
	"github.com/ddpbatch/ddpbatch/trainer/data"
	"github.com/ddpbatch/ddpbatch/trainer/device"
	"github.com/ddpbatch/ddpbatch/trainer/nn"
	"github.com/ddpbatch/ddpbatch/trainer/safetensors"
)

// repeating returns the weights of a model that repeats the last token. The gain scales its logits.
func repeating(t *testing.T, tokens int, gain float32) *bytes.Reader {
	t.Helper()
	m, err := nn.NewGPT(nn.GPTOptions{Vocabulary: tokens, Context: 4, Layers: 1, Heads: 1, Width: tokens})
	if err != nil {
		t.Fatal(err)
	}
	d := cpu.New(1)
	nn.AllocValues(d, m.Params())
	for _, p := range m.Params() {
		device.Fill(d, p.Data, func(v []float32) {
			for i := range tokens {
				switch p.Name {
				case "wte.weight":
					v[i*tokens+i] = 10
				case "ln_f.weight":
					v[i] = gain
				}
			}
		})
	}
	var file bytes.Buffer
	if err := safetensors.Write(&file, nn.Tensors(d, m.Params()), nil); err != nil {
		t.Fatal(err)
	}
	return bytes.NewReader(file.Bytes())
}

func load(t *testing.T, tokens int, gain float32, vocabulary string) *Model {
	t.Helper()
	file := repeating(t, tokens, gain)
	m, err := Load(file, file.Size(), 1, vocabulary)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// greedy returns a sampler of the most likely token.
func greedy(t *testing.T) *nn.Sampler {
	t.Helper()
	s, err := nn.NewSampler(nn.Sampling{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestContinue continues prompts of text and of token IDs, also beyond the context.
func TestContinue(t *testing.T) {
	for name, tt := range map[string]struct {
		vocabulary, prompt string
		want               []int32
	}{
		"text":            {vocabulary: "char:\nabc", prompt: "ab", want: []int32{2, 2, 2, 2, 2, 2}},
		"start of a text": {vocabulary: "char:\nabc", want: []int32{0, 0, 0, 0, 0, 0}},
		"token IDs":       {prompt: "1, 3", want: []int32{3, 3, 3, 3, 3, 3}},
	} {
		m := load(t, 4, 1, tt.vocabulary)
		prompt, err := m.Encode(tt.prompt)
		if err != nil {
			t.Fatal(err)
		}
		var got []int32
		for token, err := range m.Continue(prompt, greedy(t), false) {
			if err != nil {
				t.Fatal(err)
			}
			if got = append(got, token); len(got) == len(tt.want) {
				break
			}
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: got %v, want %v", name, got, tt.want)
		}
	}
}

// TestContinueEndsWithError checks that a model with infinite logits gives one error, and no tokens
// after it.
func TestContinueEndsWithError(t *testing.T) {
	errs := 0
	for token, err := range load(t, 4, 3e38, "").Continue([]int32{1}, greedy(t), false) {
		if err == nil {
			t.Fatalf("got token %d, want an error", token)
		}
		errs++
	}
	if errs != 1 {
		t.Errorf("got %d errors, want 1", errs)
	}
}

// TestLoadErrors checks that weights that do not match the settings are rejected.
func TestLoadErrors(t *testing.T) {
	for name, tt := range map[string]struct {
		heads            int
		vocabulary, want string
	}{
		"vocabulary of another model": {heads: 1, vocabulary: "char:abc", want: "vocabulary has 3 tokens, but the model has 4"},
		"invalid vocabulary":          {heads: 1, vocabulary: "words", want: "vocabulary begins"},
		"unknown heads":               {want: "number of heads"},
		"too many heads":              {heads: 3, want: "heads"},
	} {
		file := repeating(t, 4, 1)
		if m, err := Load(file, file.Size(), tt.heads, tt.vocabulary); m != nil || err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, %v, want %q", name, m, err, tt.want)
		}
	}
}

// TestCodec checks the conversion of text, and the first token of a text without a prompt.
func TestCodec(t *testing.T) {
	vocabulary := func(text string) *data.Vocabulary {
		v := new(data.Vocabulary)
		if err := v.UnmarshalText([]byte(text)); err != nil {
			t.Fatal(err)
		}
		return v
	}
	for name, tt := range map[string]struct {
		codec   Codec
		text    string
		tokens  []int32 // nil if the text is not valid
		decoded string
		start   int32
	}{
		"characters":                {codec: Codec{vocabulary("char:\nab"), 3}, text: "ba", tokens: []int32{2, 1}, decoded: "ba", start: 0},
		"no newline":                {codec: Codec{vocabulary("char:ab"), 2}, text: "b", tokens: []int32{1}, decoded: "b", start: 0},
		"unknown character":         {codec: Codec{vocabulary("char:ab"), 2}, text: "c"},
		"bytes":                     {codec: Codec{vocabulary("byte"), 256}, text: "é", tokens: []int32{0xc3, 0xa9}, decoded: "é", start: '\n'},
		"token IDs":                 {codec: Codec{size: 5}, text: " 1,2\t4", tokens: []int32{1, 2, 4}, start: 0},
		"token IDs of GPT-2":        {codec: Codec{size: 50257}, text: "50256", tokens: []int32{50256}, start: 50256},
		"token ID too large":        {codec: Codec{size: 5}, text: "5"},
		"negative token ID":         {codec: Codec{size: 5}, text: "-1"},
		"text without a vocabulary": {codec: Codec{size: 5}, text: "hello"},
	} {
		t.Run(name, func(t *testing.T) {
			tokens, err := tt.codec.Encode(tt.text)
			if (err != nil) != (tt.tokens == nil) || !slices.Equal(tokens, tt.tokens) {
				t.Fatalf("got %v, %v, want %v", tokens, err, tt.tokens)
			}
			if got := tt.codec.Decode(tokens); got != tt.decoded {
				t.Errorf("decoded: got %q, want %q", got, tt.decoded)
			}
			if got := tt.codec.start(); tt.tokens != nil && got != tt.start {
				t.Errorf("start: got %d, want %d", got, tt.start)
			}
		})
	}
}

// TestStream checks that text is returned when its characters are complete.
func TestStream(t *testing.T) {
	for name, tt := range map[string]struct {
		codec Codec
		add   [][]int32
		want  []string // after each addition, and at the end
	}{
		"bytes":               {codec: Codec{new(data.Vocabulary), 256}, add: [][]int32{{'a', 0xc3}, {0xa9, 'b'}}, want: []string{"a", "éb", ""}},
		"incomplete":          {codec: Codec{new(data.Vocabulary), 256}, add: [][]int32{{'a'}, {0xe2}, {0x82}}, want: []string{"a", "", "", "\xe2\x82"}},
		"invalid UTF-8":       {codec: Codec{new(data.Vocabulary), 256}, add: [][]int32{{0xff}, {'a'}}, want: []string{"\xff", "a", ""}},
		"token IDs":           {codec: Codec{size: 50}, add: [][]int32{{7, 8}, {40}}, want: []string{"7 8", " 40", ""}},
		"IDs after no prompt": {codec: Codec{size: 50}, add: [][]int32{nil, {7}, {8}}, want: []string{"", "7", " 8", ""}},
	} {
		s := tt.codec.Stream()
		var got []string
		for _, tokens := range tt.add {
			got = append(got, s.Add(tokens...))
		}
		if got = append(got, s.Rest()); !slices.Equal(got, tt.want) {
			t.Errorf("%s: got %q, want %q", name, got, tt.want)
		}
	}
}

// sparse has zeros behind a header, like a sparse file.
type sparse []byte

func (s sparse) ReadAt(p []byte, at int64) (int, error) {
	clear(p)
	if at < int64(len(s)) {
		copy(p, s[at:])
	}
	return len(p), nil
}

// TestLoadRejectsMoreThanMemory checks a file that claims weights, or a generator, that exceed the memory of
// the machine. Without the check, the kernel kills the process, or processes of other programs.
func TestLoadRejectsMoreThanMemory(t *testing.T) {
	for _, o := range []nn.GPTOptions{
		{Vocabulary: 256, Context: 16, Layers: 300, Heads: 1, Width: 1 << 14},
		{Vocabulary: 256, Context: 1 << 22, Layers: 2_000, Heads: 1, Width: 512},
	} {
		m, err := nn.NewGPT(o)
		if err != nil {
			t.Fatal(err)
		}
		var entries []string
		size := 0
		for _, p := range m.Params() {
			shape, err := json.Marshal(p.Shape)
			if err != nil {
				t.Fatal(err)
			}
			entries = append(entries, fmt.Sprintf(`%q:{"dtype":"F32","shape":%s,"data_offsets":[%d,%d]}`, p.Name, shape, size, size+4*p.Len()))
			size += 4 * p.Len()
		}
		header := "{" + strings.Join(entries, ",") + "}"
		file := append(binary.LittleEndian.AppendUint64(nil, uint64(len(header))), header...)
		_, err = Load(sparse(file), int64(len(file)+size), o.Heads, "")
		if err == nil || !strings.Contains(err.Error(), "of memory") {
			t.Errorf("%+v: got %v", o, err)
		}
	}
}
