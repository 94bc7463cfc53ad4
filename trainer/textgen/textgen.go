// Package textgen continues text with a trained GPT. [Load] reads the weights from a checkpoint or
// from a file of Hugging Face, and [Model.Continue] samples tokens. A [Codec] converts the prompt to
// tokens, and a [Stream] converts the sampled tokens to text.
//
// It guarantees that equal weights, prompts, and settings give equal tokens, and that a model is
// rejected if its vocabulary does not match the weights. The caller selects and verifies the
// checkpoint and prints the text. The text can contain control characters. Models run on the CPU.
package textgen

import (
	"fmt"
	"io"
	"iter"

	"github.com/ddpbatch/ddpbatch/internal/format"
	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/trainer/cpu"
	"github.com/ddpbatch/ddpbatch/trainer/data"
	"github.com/ddpbatch/ddpbatch/trainer/device"
	"github.com/ddpbatch/ddpbatch/trainer/nn"
	"github.com/ddpbatch/ddpbatch/trainer/plan"
)

// A Model is a trained GPT with its vocabulary.
type Model struct {
	Codec
	Shape  nn.GPTOptions
	gpt    *nn.GPT
	device device.Device
}

// Load reads the weights in a safetensors file of size bytes. If heads is 0, it is derived from the
// width ([nn.Weights.Options]). The vocabulary is in the form of [data.Vocabulary.MarshalText]; ""
// means that the text is a list of token IDs.
func Load(file io.ReaderAt, size int64, heads int, vocabulary string) (*Model, error) {
	m := &Model{device: cpu.New(0)}
	if vocabulary != "" {
		m.vocabulary = new(data.Vocabulary)
		if err := m.vocabulary.UnmarshalText([]byte(vocabulary)); err != nil {
			return nil, err
		}
	}
	weights, err := nn.OpenWeights(file, size)
	if err != nil {
		return nil, err
	}
	if m.Shape, err = weights.Options(heads); err != nil {
		return nil, err
	}
	m.size = m.Shape.Vocabulary
	if v := m.vocabulary; v != nil && v.Len() != m.size {
		return nil, fmt.Errorf("its vocabulary has %d tokens, but the model has %d", v.Len(), m.size)
	}
	if m.gpt, err = nn.NewGPT(m.Shape); err != nil {
		return nil, err
	}
	if err := checkMemory(m.gpt); err != nil {
		return nil, err
	}
	nn.AllocValues(m.device, m.gpt.Params())
	if err := weights.Load(m.gpt, m.device); err != nil {
		return nil, err
	}
	return m, nil
}

// checkMemory returns an error if the weights and the generator need more memory than is free. A sparse file
// can claim any size, and the kernel would kill processes of this machine instead.
func checkMemory(m *nn.GPT) error {
	free, known := cpu.Available()
	if !known {
		return nil
	}
	var c plan.Counter
	nn.AllocValues(&c, m.Params())
	m.NewGenerator(&c, device.FP32)
	if c.Bytes > free {
		return hints.Errorf("run the command on a machine with more memory", "the model needs %s of memory, and %s are free", format.Bytes(c.Bytes), format.Bytes(free))
	}
	return nil
}

// Continue returns the tokens that follow the prompt, without end. An empty prompt is the start of a
// text. If a token cannot be sampled, the sequence ends with the error. For keepHalf, see
// [nn.Generator].
func (m *Model) Continue(prompt []int32, s *nn.Sampler, keepHalf bool) iter.Seq2[int32, error] {
	if len(prompt) == 0 {
		prompt = []int32{m.start()}
	}
	return func(yield func(int32, error) bool) {
		g := m.gpt.NewGenerator(m.device, device.FP32)
		g.KeepHalf = keepHalf
		for next := prompt; ; {
			token, err := s.Next(g.Feed(next))
			if !yield(token, err) || err != nil {
				return
			}
			next = []int32{token}
		}
	}
}
