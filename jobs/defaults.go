package jobs

import (
	"fmt"
	"reflect"
	"time"
)

const (
	defaultSignalBeforeEnd = 120 * time.Second
	defaultRestarts        = 2 // if nodes may fail
	defaultKernel          = 3 // as in the tag of [Model].Kernel
	defaultTarget          = "y"
)

// setDefaults sets the keys of a table, and of the tables in it, that are not in the file to
// the values of their default tags.
func (d *decoder) setDefaults(path string, v reflect.Value) {
	kind := kindOf(v)
	all := tableOf(v.Type()).fields
	for i := range all {
		f := &all[i]
		key, into := joinKey(path, f.key), v.Field(f.index)
		switch {
		case f.isTable():
			if into.Kind() == reflect.Pointer {
				into = into.Elem()
			}
			if into.IsValid() {
				d.setDefaults(key, into)
			}
		case into.Kind() == reflect.Slice && tableType(into.Type().Elem()) != nil && into.Type().Elem().Kind() == reflect.Struct:
			for i := range into.Len() {
				d.setDefaults(fmt.Sprintf("%s[%d]", key, i), into.Index(i))
			}
		case !f.value.IsValid() || d.given[key] || !f.appliesTo(kind):
		case into.Kind() == reflect.Pointer: // do not share the default
			into.Set(reflect.New(into.Type().Elem()))
			into.Elem().Set(f.value.Elem())
		default:
			into.Set(f.value)
		}
	}
}

// kindOf returns the value of the key kind of a table, or an empty string.
func kindOf(v reflect.Value) string {
	f := tableOf(v.Type()).field("kind")
	if f == nil {
		return ""
	}
	return v.Field(f.index).String()
}

// joinKey returns the dotted name of a key in a table. An empty path is the top level.
func joinKey(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// setComputedDefaults sets the keys whose default depends on other keys: those with an auto
// tag.
func (j *Job) setComputedDefaults() {
	j.Slurm.setGroupDefaults()
	if !j.IsSet("slurm.nodes") && len(j.Slurm.RanksPerNode) > 0 {
		j.Slurm.Nodes = len(j.Slurm.RanksPerNode)
	}
	setDefault(&j.Slurm.TasksPerNode, j.TasksPerNode())
	if !j.IsSet("slurm.signal_before_end") { // 0 disables the signal
		j.Slurm.SignalBeforeEnd = j.signalBeforeEnd()
	}
	if j.Restart.SurvivesNodeLoss() && !j.IsSet("restart.max_without_progress") {
		j.Restart.MaxWithoutProgress = defaultRestarts
	}
	if c := j.Command; c != nil && c.Launcher == LauncherLightning {
		setDefault(&c.StopSignal, "TERM") // without its SLURMEnvironment, Lightning does not handle SIGUSR1
	}
	j.setComponentDefaults()
	t := j.Train
	if t == nil {
		return
	}
	switch m := &t.Model; m.Kind {
	case ModelCNN:
		if len(m.Hidden) == 0 {
			m.Hidden = nil // [] and a missing key must give the same fingerprint
		}
	case ModelGPT:
		*m = m.withSize()
		setDefault(&t.Optimizer.Decay, DecayMatrices) // as in nanoGPT and llm.c
	}
	setDefault(&t.Optimizer.Decay, DecayAll)
	for key, v := range optimizerDefaults[t.Optimizer.Kind] {
		if !j.IsSet("train.optimizer." + key) {
			*v.of(&t.Optimizer) = v.value
		}
	}
	switch t.Data.Kind {
	case DataIDX:
		setDefault(&t.Data.Task, TaskClassification)
	case DataSafetensors:
		setDefault(&t.Data.Target, defaultTarget)
	}
	if t.Data.DropLast && !j.IsSet("train.data.uneven") {
		t.Data.Uneven = UnevenDrop
	}
}

// LimitTime sets a time limit for a job whose file does not have one.
func (j *Job) LimitTime(limit WallTime) {
	j.Slurm.Time = limit
	if !j.IsSet("slurm.signal_before_end") {
		j.Slurm.SignalBeforeEnd = j.signalBeforeEnd()
	}
}

// signalBeforeEnd returns the default time between the warning signal and the time limit. It
// is enough to save a checkpoint, and at most a quarter of the time limit. Without
// restart.requeue, a user's program gets no signal, because an unhandled signal would kill it.
func (j *Job) signalBeforeEnd() Duration {
	if j.Command != nil && j.Restart.Requeue == 0 {
		return 0
	}
	before := time.Duration(defaultSignalBeforeEnd)
	if limit := j.Slurm.Time.Duration(); limit > 0 {
		before = min(before, (limit / 4).Truncate(time.Second))
	}
	return Duration(before)
}

// optimizerDefault is the default of a key of [train.optimizer].
type optimizerDefault struct {
	of    func(*Optimizer) *float64
	value float64
}

// optimizerDefaults are the defaults that depend on the kind of optimizer, by key.
var optimizerDefaults = func() map[OptimizerKind]map[string]optimizerDefault {
	beta2 := func(o *Optimizer) *float64 { return &o.Beta2 }
	decay := func(o *Optimizer) *float64 { return &o.WeightDecay }
	momentum := func(o *Optimizer) *float64 { return &o.Momentum }
	return map[OptimizerKind]map[string]optimizerDefault{
		OptimizerAdam:  {"beta2": {beta2, 0.999}},
		OptimizerAdamW: {"beta2": {beta2, 0.999}, "weight_decay": {decay, 0.01}}, // as in torch.optim.AdamW
		OptimizerLion:  {"beta2": {beta2, 0.99}},                                 // Chen et al. 2023
		// As in torch.optim.Muon, and beta2 as in Liu et al. 2025.
		OptimizerMuon: {"beta2": {beta2, 0.95}, "weight_decay": {decay, 0.1}, "momentum": {momentum, 0.95}},
	}
}()

// setDefault sets *v to value if it has its zero value.
func setDefault[T comparable](v *T, value T) {
	var zero T
	if *v == zero {
		*v = value
	}
}
