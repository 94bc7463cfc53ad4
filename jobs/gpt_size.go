package jobs

// A GPTSize is a published size of GPT-2 (Radford et al. 2019, table 2), by its name at
// Hugging Face. It sets layers, heads, width, and context.
type GPTSize string

// Sizes with 124, 355, 774, and 1558 million parameters.
const (
	SizeGPT2       GPTSize = "gpt2"
	SizeGPT2Medium GPTSize = "gpt2-medium"
	SizeGPT2Large  GPTSize = "gpt2-large"
	SizeGPT2XL     GPTSize = "gpt2-xl"
)

// gptContext is the context length of all sizes, in tokens.
const gptContext = 1024

var gptSizes = map[GPTSize]struct{ layers, heads, width int }{
	SizeGPT2:       {12, 12, 768},
	SizeGPT2Medium: {24, 16, 1024},
	SizeGPT2Large:  {36, 20, 1280},
	SizeGPT2XL:     {48, 25, 1600},
}

// sized returns the model with the values of its size for all fields that are not set.
func (m Model) sized() Model {
	if size, known := gptSizes[m.Size]; known {
		setDefault(&m.Layers, size.layers)
		setDefault(&m.Heads, size.heads)
		setDefault(&m.Width, size.width)
		setDefault(&m.Context, gptContext)
	}
	return m
}
