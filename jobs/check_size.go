package jobs

import (
	"fmt"
	"slices"
)

// Limits of the built-in trainer. Its packages have the same limits; without this check, a larger
// job would fail only after it has waited in the queue.
const (
	maxParameters = 1 << 40 // in a model
	maxTensor     = 1 << 31 // parameters in a single matrix
	maxVocabulary = 1 << 20 // tokens in a vocabulary

	// maxOutputs is the maximum number of output values of one layer for a batch. For more
	// than 256 GiB of fp32 values in a single layer, the batch size is probably an error.
	maxOutputs = 1 << 36
)

// Sizes that are not in the job file, only in the data.
const (
	fashionInputs  = 28 * 28
	fashionClasses = 10
	byteVocabulary = 256
)

// checkSize reports a model or a batch that does not fit in any memory. For sizes that only
// the data contain, such as the number of classes, it assumes the smallest possible value.
func (d *decoder) checkSize(t *Train) {
	if !d.isValid("train.model.kind") {
		return
	}
	e := t.minSize()
	var what string
	switch {
	case e.largest > maxTensor:
		what = fmt.Sprintf("results in a matrix of at least %.3g parameters; the built-in trainer supports at most %d per matrix",
			e.largest, maxTensor)
	case e.parameters > maxParameters:
		what = fmt.Sprintf("results in a model of at least %.3g parameters; the built-in trainer supports at most %d",
			e.parameters, maxParameters)
	}
	if what != "" {
		given := slices.IndexFunc(e.keys, func(key string) bool { return d.given[key] })
		d.report(e.keys[max(0, given)], "use fewer or narrower layers", "%s", what)
		return
	}
	const batch = "train.batch"
	if outputs := float64(t.Batch) * e.widest; outputs > maxOutputs && d.isValid(batch) {
		d.report(batch, "use a smaller batch, and train.accumulate for the same number of samples per step",
			"%d samples result in %.3g values in a single layer (%.3g GiB)", t.Batch, outputs, 4*outputs/(1<<30))
	}
}

// modelSize is the minimum size of a model. It uses floating point, so no product of values from
// a job file overflows.
type modelSize struct {
	parameters float64
	largest    float64  // parameters in the largest matrix
	widest     float64  // output values of the widest layer per sample
	keys       []string // keys that determine the size, most likely cause first
}

// layer adds a fully connected layer with in inputs and out outputs, or a convolution with out
// channels and in inputs per output value.
func (e *modelSize) layer(in, out float64) {
	e.parameters += (in + 1) * out
	e.largest, e.widest = max(e.largest, in*out), max(e.widest, out)
}

// minSize returns the minimum size of the model, with the smallest possible values for sizes that
// only the data contain.
func (t *Train) minSize() modelSize {
	m := t.Model
	if m.Kind == ModelGPT {
		m = m.withSize()
		w, layers, context, vocabulary := float64(m.Width), float64(m.Layers), float64(m.Context), t.Data.minVocabulary()
		return modelSize{parameters: w*(vocabulary+context) + layers*(12*w*w+13*w) + 2*w, largest: w * max(vocabulary, context, 4*w),
			widest: 4 * w * context, keys: []string{"train.model.width", "train.model.context", "train.model.layers", "train.model.size"}}
	}
	in, out := t.Data.minFeatures()
	e := modelSize{widest: in, keys: []string{"train.model.hidden", "train.data.inputs", "train.data.outputs", "train.model.kind"}}
	width := in
	if m.Kind == ModelCNN {
		width = 1 // one channel of a grayscale image
		setDefault(&m.Kernel, defaultKernel)
		for _, c := range m.Channels {
			e.layer(float64(m.Kernel)*float64(m.Kernel)*width, float64(c))
			width = float64(c)
		}
		if e.largest > maxTensor || e.parameters > maxParameters {
			e.keys = []string{"train.model.channels"}
		}
	}
	for _, h := range m.Hidden {
		e.layer(width, float64(h))
		width = float64(h)
	}
	e.layer(width, out)
	return e
}

// minVocabulary returns the minimum size of the vocabulary.
func (d Data) minVocabulary() float64 {
	if d.Kind == DataText && d.Vocabulary == VocabularyByte {
		return byteVocabulary
	}
	return float64(max(1, min(d.VocabularySize, maxVocabulary)))
}

// minFeatures returns the minimum number of input and output values per sample.
func (d Data) minFeatures() (in, out float64) {
	if d.Kind == DataIDX && string(d.Path) == builtinData[0] {
		return fashionInputs, fashionClasses
	}
	return float64(max(1, d.Inputs)), float64(max(1, d.Outputs))
}

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

// withSize returns the model with the values of its size for all fields that are not set.
func (m Model) withSize() Model {
	if size, known := gptSizes[m.Size]; known {
		setDefault(&m.Layers, size.layers)
		setDefault(&m.Heads, size.heads)
		setDefault(&m.Width, size.width)
		setDefault(&m.Context, gptContext)
	}
	return m
}
