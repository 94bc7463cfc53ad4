package jobs

import (
	"path/filepath"
	"reflect"
	"slices"
	"strings"
)

// builtinPrefix marks a data set that is part of the executable.
const builtinPrefix = "builtin:"

// builtinData lists the data sets that are part of the executable.
var builtinData = []string{builtinPrefix + "fashion-mnist"}

// modelData are the kinds of data that each model accepts. A CNN needs images. A GPT needs
// tokens, and no other model accepts them.
var modelData = map[ModelKind][]DataKind{
	ModelLinear: {DataIDX, DataCSV, DataSafetensors, DataSynthetic},
	ModelMLP:    {DataIDX, DataCSV, DataSafetensors, DataSynthetic},
	ModelCNN:    {DataIDX, DataSafetensors},
	ModelGPT:    {DataText, DataTokens},
}

func (d *decoder) checkTrain(t *Train) {
	d.checkTable("train", reflect.ValueOf(t))
	if d.isValid("train.model.kind") {
		d.checkModel(&t.Model)
	}
	if d.isValid("train.data.kind") {
		d.checkData(&t.Data)
	}
	d.checkModelData(t.Model.Kind, t.Data.Kind)
	d.checkSize(t)
	const first, backend = "train.first_bucket", "train.backend"
	if d.isValid(first, "train.bucket") && t.Bucket > 0 && t.FirstBucket > t.Bucket {
		d.report(first, "", "is larger than bucket, %q", t.Bucket)
	}
	if d.isValid("train.device", backend) && t.Device == DeviceCPU && t.Backend == BackendNCCL {
		d.report(backend, "", "%q needs GPUs, but device is %q", t.Backend, t.Device)
	}
	const tune = "train.tune_matmul"
	if d.isValid("train.device", tune) && t.Device == DeviceCPU && t.TuneMatmul {
		d.report(tune, "", "needs a GPU, but device is %q", t.Device)
	}
	const momentum, nesterov = "train.optimizer.momentum", "train.optimizer.nesterov"
	o := t.Optimizer
	hasMomentum := d.given[momentum] && (!d.isValid(momentum) || o.Momentum > 0)
	if o.Nesterov && !hasMomentum && (o.Kind == OptimizerSGD || !d.isValid("train.optimizer.kind")) {
		d.report(nesterov, "", "requires momentum greater than 0")
	}
	if o.Kind == OptimizerMuon {
		d.checkMuon(t)
	}
	d.checkSchedule(&t.Schedule, t.Optimizer.LR)
}

// checkMuon checks that ranks have the whole weights of a hidden layer.
func (d *decoder) checkMuon(t *Train) {
	const kind, strategy = "train.optimizer.kind", "train.strategy"
	if d.isValid(strategy) && t.Strategy != StrategyDDP {
		d.report(strategy, `use strategy = "ddp", or an optimizer other than "muon"`,
			"%q divides tensors among ranks, but the optimizer %q needs whole tensors", t.Strategy, OptimizerMuon)
	}
	if d.isValid("train.model.kind") && t.Model.Kind == ModelLinear {
		d.report(kind, "", "%q needs a model with hidden layers, not %q", OptimizerMuon, ModelLinear)
	}
}

func (d *decoder) checkModel(m *Model) {
	const hidden, channels, kernel = "train.model.hidden", "train.model.channels", "train.model.kernel"
	switch m.Kind {
	case ModelMLP:
		if d.isValid(hidden) && len(m.Hidden) == 0 {
			d.report(hidden, "", "is empty: an MLP needs a hidden layer; use kind = \"linear\" for none")
		}
	case ModelCNN:
		if d.isValid(channels) && len(m.Channels) == 0 {
			d.report(channels, "", "is empty: a CNN needs a convolution; use kind = \"mlp\" for none")
		}
		if d.isValid(kernel) && m.Kernel%2 == 0 {
			d.report(kernel, "", "must be odd, not %d", m.Kernel)
		}
	case ModelGPT:
		d.checkGPT(m)
	}
}

func (d *decoder) checkGPT(m *Model) {
	const (
		size    = "train.model.size"
		layers  = "train.model.layers"
		heads   = "train.model.heads"
		width   = "train.model.width"
		context = "train.model.context"
		weights = "train.model.weights"
	)
	switch {
	case d.given[size], d.isExpected(size):
	case d.given[layers], d.given[heads], d.given[width]:
		for _, key := range []string{layers, heads, width, context} {
			d.require(key)
		}
	default:
		before := len(d.found)
		if d.require(size); len(d.found) > before {
			d.found[before].Allowed += ", or set layers, heads, width, and context"
		}
	}
	if d.isValid(weights) && m.Weights == "" {
		d.report(weights, "", "is empty: remove the key for random initialization")
	}
	full := m.withSize()
	if d.invalid[size] || d.invalid[heads] || d.invalid[width] || full.Heads == 0 || full.Width%full.Heads == 0 {
		return
	}
	at := width
	if !d.given[at] {
		at = heads
	}
	d.report(at, "", "a width of %d is not divisible by %d heads", full.Width, full.Heads)
}

func (d *decoder) checkData(data *Data) {
	const (
		uneven     = "train.data.uneven"
		outputs    = "train.data.outputs"
		holdout    = "train.data.holdout"
		vocabulary = "train.data.vocabulary_size"
	)
	if data.DropLast && data.Uneven != UnevenDrop && d.isValid(uneven, "train.data.drop_last") {
		d.report(uneven, "remove one of the two keys", "conflicts with drop_last, which drops the remainder")
	}
	if data.Kind == DataSynthetic {
		if d.isValid("train.data.task", outputs) && data.Task == TaskClassification && data.Outputs < 2 {
			d.report(outputs, "", "must be at least 2 for classification, not %d", data.Outputs)
		}
		return
	}
	if d.isValid("train.data.path") {
		d.checkDataPath(data)
	}
	if data.Kind == DataTokens {
		d.checkPattern("train.data.path", data.Path)
		d.checkPattern("train.data.eval_path", data.EvalPath)
		if data.VocabularySize > maxVocabulary {
			d.report(vocabulary, "remove the key to use the minimum for the files",
				"must be %d or less, not %d", maxVocabulary, data.VocabularySize)
		}
	}
	if data.Holdout > 0 && data.EvalPath != "" && d.isValid(holdout, "train.data.eval_path") {
		d.report(holdout, "", "conflicts with eval_path, which contains the evaluation data")
	}
}

func (d *decoder) checkDataPath(data *Data) {
	const key = "train.data.path"
	path := string(data.Path)
	switch {
	case path == "":
		d.report(key, "", "is empty")
	case !strings.HasPrefix(path, builtinPrefix):
	case data.Kind != DataIDX:
		d.report(key, "", "%q is not a file: builtin data needs kind = \"idx\"", path)
	case !slices.Contains(builtinData, path):
		d.report(key, "allowed: a directory, or "+strings.Join(builtinData, ", "), "%q is not a builtin data set", path)
		d.found[len(d.found)-1].Suggestion = Nearest(path, builtinData)
	}
}

// checkPattern reports an invalid file name pattern, which can match no file.
func (d *decoder) checkPattern(key string, path Text) {
	if _, err := filepath.Match(filepath.Base(string(path)), ""); err != nil && d.isValid(key) {
		d.report(key, "for example: fineweb_train_*.bin",
			"%q is not a valid pattern: a \"[\" is not closed, or a \"\\\" is at the end", path)
	}
}

// checkModelData reports data that the model cannot be trained with.
func (d *decoder) checkModelData(model ModelKind, data DataKind) {
	const key = "train.data.kind"
	if !d.isValid("train.model.kind", key) || slices.Contains(modelData[model], data) {
		return
	}
	d.report(key, "allowed with "+string(model)+": "+strings.Join(Strings(modelData[model]), ", "),
		"a model of kind %q does not support %q data", model, data)
}

func (d *decoder) checkSchedule(s *Schedule, lr float64) {
	const from, floor, gamma = "train.schedule.warmup_from", "train.schedule.floor", "train.schedule.gamma"
	if d.isValid(from) && s.WarmUpFrom > 1 {
		d.report(from, "", "must be a fraction from 0 to 1, not %v", s.WarmUpFrom)
	}
	if !d.isValid("train.schedule.kind") {
		return
	}
	if d.isValid(floor, "train.optimizer.lr") && s.Floor > lr {
		d.report(floor, "", "%v is greater than the learning rate, %v", s.Floor, lr)
	}
	if d.isValid(gamma) && s.Gamma > 1 {
		d.report(gamma, "", "must be at most 1, not %v", s.Gamma)
	}
}
