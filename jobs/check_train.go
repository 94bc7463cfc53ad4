package jobs

import (
	"fmt"
	"slices"
	"strings"
)

func (d *decoder) checkTrain(t *Train) {
	for _, key := range []string{
		"train.epochs", "train.batch", "train.model.kind", "train.data.kind",
		"train.optimizer.kind", "train.optimizer.lr",
	} {
		d.require(key)
	}
	d.checkModel(&t.Model)
	d.checkData(&t.Data)
	d.checkModelData(t.Model.Kind, t.Data.Kind)
	d.checkSize(t)
	d.checkBuckets(t)
	d.checkDevice(t)
	d.checkOptimizer(&t.Optimizer)
	d.checkSchedule(&t.Schedule, t.Optimizer.LR)
}

func (d *decoder) checkBuckets(t *Train) {
	const first = "train.first_bucket"
	if d.isValid(first, "train.bucket") && t.Bucket > 0 && t.FirstBucket > t.Bucket {
		d.report(first, "", "is larger than bucket, %q", t.Bucket)
	}
}

// checkDevice reports a backend that the configured device does not support.
func (d *decoder) checkDevice(t *Train) {
	if d.isValid("train.device", "train.backend") && t.Device == DeviceCPU && t.Backend == BackendNCCL {
		d.report("train.backend", "", "%q connects GPUs, and device is %q", t.Backend, t.Device)
	}
}

func (d *decoder) checkOptimizer(o *Optimizer) {
	const table = "train.optimizer."
	switch {
	case !d.isValid(table + "kind"):
	case o.Kind == OptimizerSGD:
		d.forbid("with kind = \"sgd\"", table+"beta1", table+"beta2", table+"eps")
	default:
		d.forbid(fmt.Sprintf("with kind = %q", o.Kind), table+"momentum", table+"nesterov")
		return
	}
	if o.Nesterov && (!d.given[table+"momentum"] || d.isValid(table+"momentum") && o.Momentum == 0) {
		d.report(table+"nesterov", "", "needs momentum above 0")
	}
}

func (d *decoder) checkSchedule(s *Schedule, lr Positive) {
	const table = "train.schedule."
	if !d.given["train.schedule"] {
		return
	}
	d.require(table + "kind")
	if d.isValid(table+"warmup_from") && s.WarmUpFrom > 1 {
		d.report(table+"warmup_from", "", "is a part of the rate, from 0 to 1, not %v", s.WarmUpFrom)
	}
	if !d.isValid(table + "kind") {
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
	if d.isValid(table+"floor", "train.optimizer.lr") && float64(s.Floor) > float64(lr) {
		d.report(table+"floor", "", "%v is above the learning rate, %v", s.Floor, lr)
	}
	if d.isValid(table+"gamma") && s.Gamma > 1 {
		d.report(table+"gamma", "", "%v would let the rate grow: at most 1", s.Gamma)
	}
}

// forbid reports the given keys if they are in the file.
func (d *decoder) forbid(why string, keys ...string) {
	for _, key := range keys {
		if d.given[key] {
			d.report(key, "", "has no meaning %s", why)
		}
	}
}

// kindKeys are the keys of a table that apply to one of its kinds only.
type kindKeys struct {
	kind               string
	required, optional []string
	instead            map[string]string // fixes for keys that apply to other kinds
}

func (k kindKeys) has(key string) bool {
	return slices.Contains(k.required, key) || slices.Contains(k.optional, key)
}

// checkKind reports missing keys that the kind requires, and keys that apply only to other
// kinds.
func (d *decoder) checkKind(table, kind string, all []kindKeys) {
	this := all[slices.IndexFunc(all, func(k kindKeys) bool { return k.kind == kind })]
	for _, key := range this.required {
		d.require(table + key)
	}
	belongs := map[string][]string{}
	for _, k := range all {
		for _, key := range slices.Concat(k.required, k.optional) {
			belongs[key] = append(belongs[key], k.kind)
		}
	}
	for key, kinds := range belongs {
		if this.has(key) || !d.given[table+key] {
			continue
		}
		hint := this.instead[key]
		setDefault(&hint, "belongs to: "+strings.Join(kinds, ", "))
		d.report(table+key, hint, "has no meaning with kind = %q", kind)
	}
}
