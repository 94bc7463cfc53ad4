package jobs

import (
	"fmt"
	"slices"
	"strings"
)

// builtinPrefix marks a data set that the program carries with it.
const builtinPrefix = "builtin:"

// builtinData are the data sets that the program carries with it.
var builtinData = []string{builtinPrefix + "fashion-mnist"}

func (d *decoder) checkTrain(t *Train) {
	for _, key := range []string{
		"train.epochs", "train.batch", "train.model.kind", "train.data.kind",
		"train.optimizer.kind", "train.optimizer.lr",
	} {
		d.require(key)
	}
	d.checkModel(&t.Model)
	d.checkData(&t.Data)
	d.checkOptimizer(&t.Optimizer)
	d.checkSchedule(&t.Schedule, t.Optimizer.LR)
}

func (d *decoder) checkOptimizer(o *Optimizer) {
	const table = "train.optimizer."
	switch {
	case !d.usable(table + "kind"):
	case o.Kind == OptimizerSGD:
		d.forbid("with kind = \"sgd\"", table+"beta1", table+"beta2", table+"eps")
	default:
		d.forbid(fmt.Sprintf("with kind = %q", o.Kind), table+"momentum", table+"nesterov")
		return
	}
	if o.Nesterov && (!d.given[table+"momentum"] || d.usable(table+"momentum") && o.Momentum == 0) {
		d.report(table+"nesterov", "", "needs momentum above 0")
	}
}

func (d *decoder) checkSchedule(s *Schedule, lr Positive) {
	const table = "train.schedule."
	if !d.given["train.schedule"] {
		return
	}
	d.require(table + "kind")
	if d.usable(table+"warmup_from") && s.WarmUpFrom > 1 {
		d.report(table+"warmup_from", "", "is a part of the rate, from 0 to 1, not %v", s.WarmUpFrom)
	}
	if !d.usable(table + "kind") {
		return
	}
	belongs := map[ScheduleKind][]string{ScheduleCosine: {"steps", "floor"}, ScheduleStep: {"gamma", "every"}}
	for _, kind := range []ScheduleKind{ScheduleCosine, ScheduleStep} {
		for _, key := range belongs[kind] {
			switch {
			case kind != s.Kind:
				d.forbid(fmt.Sprintf("with kind = %q", s.Kind), table+key)
			case key != "floor":
				d.require(table + key)
			}
		}
	}
	if d.usable(table+"floor", "train.optimizer.lr") && float64(s.Floor) > float64(lr) {
		d.report(table+"floor", "", "%v is above the learning rate, %v", s.Floor, lr)
	}
	if d.usable(table+"gamma") && s.Gamma > 1 {
		d.report(table+"gamma", "", "%v would let the rate grow: at most 1", s.Gamma)
	}
}

func (d *decoder) checkModel(m *Model) {
	const hidden = "train.model.hidden"
	if !d.usable("train.model.kind") {
		return
	}
	switch m.Kind {
	case ModelLinear:
		d.forbid("with kind = \"linear\", which has no hidden layers", hidden, "train.model.activation")
	case ModelMLP:
		d.require(hidden)
		if d.usable(hidden) && len(m.Hidden) == 0 {
			d.report(hidden, "", "is empty: an MLP needs at least one width; without a hidden layer it is kind = \"linear\"")
		}
	}
}

// dataKeys are the keys of [train.data] that belong to some kinds only.
var dataKeys = map[DataKind]struct{ required, optional []string }{
	DataIDX:       {required: []string{"path"}},
	DataCSV:       {required: []string{"path", "task"}, optional: []string{"eval_path", "target"}},
	DataSynthetic: {required: []string{"task", "samples", "inputs", "outputs"}},
}

func (d *decoder) checkData(data *Data) {
	const table = "train.data."
	if !d.usable(table + "kind") {
		return
	}
	belongs := map[string]bool{}
	for _, key := range dataKeys[data.Kind].required {
		belongs[key] = true
		d.require(table + key)
	}
	for _, key := range dataKeys[data.Kind].optional {
		belongs[key] = true
	}
	for _, key := range []string{"path", "eval_path", "target", "task", "samples", "inputs", "outputs"} {
		if !belongs[key] {
			d.forbid(fmt.Sprintf("with kind = %q", data.Kind), table+key)
		}
	}

	if belongs["path"] && d.usable(table+"path") {
		d.checkPath(data)
	}
	const outputs = table + "outputs"
	if belongs["outputs"] && d.usable(table+"task", outputs) && data.Task == TaskClassification && data.Outputs < 2 {
		d.report(outputs, "", "classification needs 2 classes or more, not %d", data.Outputs)
	}
}

func (d *decoder) checkPath(data *Data) {
	const key = "train.data.path"
	path := string(data.Path)
	switch {
	case path == "":
		d.report(key, "", "is empty")
	case !strings.HasPrefix(path, builtinPrefix):
	case data.Kind != DataIDX:
		d.report(key, "", "%q is not a file: builtin data needs kind = \"idx\"", path)
	case !slices.Contains(builtinData, path):
		d.report(key, "allowed: a folder, or "+strings.Join(builtinData, ", "), "%q is not a builtin data set", path)
		d.found[len(d.found)-1].Suggestion = nearest(path, builtinData)
	}
}

// forbid reports those of the keys that the file gives.
func (d *decoder) forbid(why string, keys ...string) {
	for _, key := range keys {
		if d.given[key] {
			d.report(key, "", "has no meaning %s", why)
		}
	}
}
