package jobs

import (
	"fmt"
	"slices"
	"strings"
)

// modelKeys are the keys of [train.model] by kind.
var modelKeys = []kindKeys{
	{kind: string(ModelLinear)},
	{kind: string(ModelMLP), required: []string{"hidden"}, optional: []string{"activation", "dropout"}},
	{kind: string(ModelCNN), required: []string{"channels"}, optional: []string{"kernel", "hidden", "activation", "dropout"}},
	{kind: string(ModelGPT), optional: []string{"size", "layers", "heads", "width", "context", "weights", "dropout"}},
}

// modelData are the kinds of data that each model accepts. A CNN needs images. A GPT needs
// tokens, and no other model accepts them.
var modelData = map[ModelKind][]DataKind{
	ModelLinear: {DataIDX, DataCSV, DataSafetensors, DataSynthetic},
	ModelMLP:    {DataIDX, DataCSV, DataSafetensors, DataSynthetic},
	ModelCNN:    {DataIDX, DataSafetensors},
	ModelGPT:    {DataText, DataTokens},
}

func (d *decoder) checkModel(m *Model) {
	const table = "train.model."
	if !d.isValid(table + "kind") {
		return
	}
	d.checkKind(table, string(m.Kind), modelKeys)
	switch m.Kind {
	case ModelMLP:
		if d.isValid(table+"hidden") && len(m.Hidden) == 0 {
			d.report(table+"hidden", "", "is empty: an MLP needs at least one width; without a hidden layer it is kind = \"linear\"")
		}
	case ModelCNN:
		if d.isValid(table+"channels") && len(m.Channels) == 0 {
			d.report(table+"channels", "", "is empty: a CNN needs at least one convolution; without one it is kind = \"mlp\"")
		}
		if d.isValid(table+"kernel") && m.Kernel%2 == 0 {
			d.report(table+"kernel", "", "must be odd, so that a convolution has a middle, not %d", m.Kernel)
		}
	case ModelGPT:
		d.checkGPT(m)
	}
}

// checkModelData reports data that the model cannot be trained with.
func (d *decoder) checkModelData(model ModelKind, data DataKind) {
	const key = "train.data.kind"
	if !d.isValid("train.model.kind", key) || slices.Contains(modelData[model], data) {
		return
	}
	var takes []string
	for _, kind := range modelData[model] {
		takes = append(takes, string(kind))
	}
	d.report(key, fmt.Sprintf("allowed with %s: %s", model, strings.Join(takes, ", ")), "a model of kind %q does not take %q data", model, data)
}

func (d *decoder) checkGPT(m *Model) {
	const size, heads, width, weights = "train.model.size", "train.model.heads", "train.model.width", "train.model.weights"
	switch {
	case d.given[size], d.isExpected(size):
	case d.given["train.model.layers"], d.given[heads], d.given[width]:
		for _, key := range []string{"train.model.layers", heads, width, "train.model.context"} {
			d.require(key)
		}
	default:
		d.require(size)
	}
	if d.isValid(weights) && m.Weights == "" {
		d.report(weights, "", "is empty: leave the key out to start from drawn weights")
	}
	full := m.sized()
	if d.invalid[size] || d.invalid[heads] || d.invalid[width] || full.Heads == 0 || full.Width%full.Heads == 0 {
		return
	}
	at := width
	if !d.given[at] {
		at = heads
	}
	d.report(at, "", "%d heads cannot share a width of %d evenly", full.Heads, full.Width)
}
