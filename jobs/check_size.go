package jobs

import "slices"

// What the built-in trainer can hold, as its packages have it. A job beyond these
// would fail after it has waited in the queue.
const (
	maxParameters = 1 << 31 // of a model
	maxVocabulary = 1 << 20 // tokens that there are

	// maxOutputs is how many numbers one layer may put out for a batch: with 256 GiB
	// of fp32 for a single layer, the batch is a mistake.
	maxOutputs = 1 << 36
)

// Sizes of data that the file alone tells.
const (
	fashionInputs  = 28 * 28
	fashionClasses = 10
	byteVocabulary = 256
)

// checkSize refuses a model or a batch that no memory holds. What only the data
// say, such as the number of classes, counts as the least that it can be.
func (d *decoder) checkSize(t *Train) {
	if !d.usable("train.model.kind") {
		return
	}
	n, widest, keys := t.extent()
	if n > maxParameters {
		given := slices.IndexFunc(keys, func(key string) bool { return d.given[key] })
		d.report(keys[max(0, given)], "use fewer or narrower layers",
			"makes a model of %.3g parameters or more; the built-in trainer holds up to %d", n, maxParameters)
		return
	}
	const batch = "train.batch"
	if outputs := float64(t.Batch) * widest; outputs > maxOutputs && d.usable(batch) {
		d.report(batch, "a smaller batch, with train.accumulate for as many samples in each step",
			"%d samples make %.3g numbers in a single layer, %.3g GiB", t.Batch, outputs, 4*outputs/(1<<30))
	}
}

// extent returns the least number of parameters that the model has, how many
// numbers its widest layer puts out for a sample, and the keys that these come from,
// the likeliest to be wrong first. Floating point, so that no product of what a file
// may say overflows.
func (t *Train) extent() (parameters, widest float64, keys []string) {
	m := t.Model
	if m.Kind == ModelGPT {
		m = m.sized()
		w, layers, context := float64(m.Width), float64(m.Layers), float64(m.Context)
		parameters = w*(t.Data.leastVocabulary()+context) + layers*(12*w*w+13*w) + 2*w
		return parameters, 4 * w * context, []string{"train.model.width", "train.model.context", "train.model.layers", "train.model.size"}
	}
	in, out := t.Data.leastFeatures()
	keys = []string{"train.model.hidden", "train.data.inputs", "train.data.outputs", "train.model.kind"}
	width, widest := in, max(in, out)
	if m.Kind == ModelCNN {
		width = 1 // channel of a grey image
		orElse(&m.Kernel, defaultKernel)
		for _, c := range m.Channels {
			parameters += (float64(m.Kernel)*float64(m.Kernel)*width + 1) * float64(c)
			width, widest = float64(c), max(widest, float64(c))
		}
		if parameters > maxParameters {
			keys = []string{"train.model.channels"}
		}
	}
	for _, h := range m.Hidden {
		parameters += (width + 1) * float64(h)
		width, widest = float64(h), max(widest, float64(h))
	}
	return parameters + (width+1)*out, widest, keys
}

// leastVocabulary is the number of tokens that there are at least.
func (d Data) leastVocabulary() float64 {
	if d.Kind == DataText && d.Vocabulary == VocabularyByte {
		return byteVocabulary
	}
	return float64(max(1, min(d.VocabularySize, maxVocabulary)))
}

// leastFeatures are the numbers that go in and come out for a sample, at least.
func (d Data) leastFeatures() (in, out float64) {
	if d.Kind == DataIDX && string(d.Path) == builtinData[0] {
		return fashionInputs, fashionClasses
	}
	return float64(max(1, d.Inputs)), float64(max(1, d.Outputs))
}
