package trainer

import (
	"encoding/json"
	"fmt"

	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/trainer/device"
	"github.com/ddpbatch/ddpbatch/trainer/nn"
	"github.com/ddpbatch/ddpbatch/trainer/optim"
)

// NewOptimizer creates a job's optimizer for parameters or parts of them.
func NewOptimizer(d device.Device, params []*nn.Param, o *jobs.Optimizer) (optim.Optimizer, error) {
	return optim.New(d, params, optim.Options{
		Kind: string(o.Kind), LR: float64(o.LR), Momentum: float64(o.Momentum), Nesterov: o.Nesterov,
		Beta1: float64(o.Beta1), Beta2: float64(o.Beta2), Eps: float64(o.Eps), WeightDecay: float64(o.WeightDecay),
	})
}

// parameterGroups returns the groups of parameters whose settings differ from the optimizer's.
func parameterGroups(o *jobs.Optimizer) []optim.Group {
	if o.Decay != jobs.DecayMatrices || o.WeightDecay == 0 {
		return nil
	}
	return []optim.Group{{Selects: func(p *nn.Param) bool { return !p.IsMatrix() }}} // without weight decay
}

// newSchedule returns the learning rate as a function of the number of completed steps. A resumed
// run therefore continues its schedule automatically.
func newSchedule(lr float64, s *jobs.Schedule) (optim.Schedule, error) {
	var rate optim.Schedule
	var err error
	switch s.Kind {
	case "", jobs.ScheduleConstant:
		rate, err = optim.Constant(lr)
	case jobs.ScheduleCosine:
		rate, err = optim.Cosine(lr, s.Floor, int64(s.Steps))
	case jobs.ScheduleStep:
		rate, err = optim.StepDecay(lr, s.Gamma, int64(s.Every))
	default:
		err = fmt.Errorf("unknown kind %q", s.Kind)
	}
	if err != nil || s.WarmUp == 0 {
		return rate, err
	}
	return optim.Warmup(s.WarmUpFrom, int64(s.WarmUp), rate)
}

// RateAt returns the learning rate of the step that follows the given number of completed steps,
// from the settings in a checkpoint's manifest.
func RateAt(settings map[string]string, step int64) (float64, error) {
	var err error
	number := func(key string) (v float64) {
		if text := settings[key]; text != "" && err == nil { // settings that are 0 are omitted
			err = json.Unmarshal([]byte(text), &v)
		}
		return v
	}
	var kind string
	if text := settings["schedule.kind"]; text != "" {
		err = json.Unmarshal([]byte(text), &kind)
	}
	s := jobs.Schedule{
		Kind: jobs.ScheduleKind(kind), WarmUp: int(number("schedule.warmup")), WarmUpFrom: number("schedule.warmup_from"),
		Steps: int(number("schedule.steps")), Floor: number("schedule.floor"),
		Gamma: number("schedule.gamma"), Every: int(number("schedule.every")),
	}
	lr := number("optimizer.lr")
	if err != nil {
		return 0, fmt.Errorf("settings of the learning rate: %w", err)
	}
	rate, err := newSchedule(lr, &s)
	if err != nil {
		return 0, err
	}
	return rate(step), nil
}

// warnZeroRate warns about steps at the end of the run for which the schedule gives a learning
// rate of 0. A single such step is normal at the end of a cosine.
func (r *run) warnZeroRate() {
	r.epochStepsLeft = r.countSteps(r.pos)
	if r.pos.Unevaluated {
		r.epochStepsLeft = 0
	}
	last := r.pos.Step + int64(r.stepsLeft())
	idle := 0
	for step := last - 1; step >= r.pos.Step && r.schedule(step) == 0; step-- {
		idle++
	}
	if idle > 1 && r.train.Optimizer.LR > 0 {
		r.Observe(Event{Kind: Idle, Step: int(r.pos.Step), Steps: int(last), Idle: idle})
	}
}
