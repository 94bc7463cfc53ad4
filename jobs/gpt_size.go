package jobs

// GPTSize is a size that GPT-2 was published in (Radford et al. 2019, table 2),
// by its name at Hugging Face. It stands for layers, heads, width and context.
type GPTSize string

// The sizes, with 124, 355, 774 and 1558 million parameters.
const (
	SizeGPT2       GPTSize = "gpt2"
	SizeGPT2Medium GPTSize = "gpt2-medium"
	SizeGPT2Large  GPTSize = "gpt2-large"
	SizeGPT2XL     GPTSize = "gpt2-xl"
)

// gptContext is the number of tokens that every size looks back on.
const gptContext = 1024

var gptSizes = map[GPTSize]struct{ layers, heads, width Count }{
	SizeGPT2:       {12, 12, 768},
	SizeGPT2Medium: {24, 16, 1024},
	SizeGPT2Large:  {36, 20, 1280},
	SizeGPT2XL:     {48, 25, 1600},
}

// UnmarshalTOML takes "gpt2", "gpt2-medium", "gpt2-large" or "gpt2-xl".
func (s *GPTSize) UnmarshalTOML(v any) (err error) {
	*s, err = choose(v, SizeGPT2, SizeGPT2Medium, SizeGPT2Large, SizeGPT2XL)
	return err
}

// sized is the model with the numbers of its size, where it has none of its own.
func (m Model) sized() Model {
	if size, known := gptSizes[m.Size]; known {
		orElse(&m.Layers, size.layers)
		orElse(&m.Heads, size.heads)
		orElse(&m.Width, size.width)
		orElse(&m.Context, gptContext)
	}
	return m
}
