package cpu

import (
	"fmt"
	"math"

	"github.com/ddpbatch/ddpbatch/trainer/device"
	"github.com/ddpbatch/ddpbatch/trainer/vec"
)

// update is a step of an update rule, divided among threads at cache lines.
type update struct {
	unit   *vec.Unit
	run    updateRule
	arrays device.Arrays
	f      device.Factors
}

// updateRule updates slices of the arrays of an update.
type updateRule func(u *vec.Unit, a device.Arrays, f *device.Factors)

// updateRules holds the rules by name.
var updateRules = map[device.Rule]updateRule{
	device.RuleSGD: func(u *vec.Unit, a device.Arrays, f *device.Factors) {
		var buffer []float32
		if a.State[0].Len() > 0 {
			buffer = a.State[0].Floats()
		}
		u.SGD(a.Value.Floats(), a.Grad.Floats(), buffer,
			vec.SGDFactors{LR: -f.Rate, Momentum: f.Beta1, Decay: f.Decay, GradScale: f.GradScale, Nesterov: f.Nesterov, First: f.First})
	},
	device.RuleAdam: func(u *vec.Unit, a device.Arrays, f *device.Factors) {
		u.Adam(a.Value.Floats(), a.Grad.Floats(), a.State[0].Floats(), a.State[1].Floats(),
			vec.AdamFactors{Beta1: f.Beta1, Beta2: f.Beta2, New1: f.New1, New2: f.New2, Keep: f.Keep, Decay: f.Decay,
				Correction: f.Correction, Eps: f.Eps, Rate: f.Rate, GradScale: f.GradScale})
	},
	device.RuleLion: func(u *vec.Unit, a device.Arrays, f *device.Factors) {
		u.Lion(a.Value.Floats(), a.Grad.Floats(), a.State[0].Floats(),
			vec.LionFactors{Beta1: f.Beta1, Beta2: f.Beta2, New1: f.New1, New2: f.New2, Keep: f.Keep, Rate: f.Rate, GradScale: f.GradScale})
	},
	device.RuleMuonMomentum: func(u *vec.Unit, a device.Arrays, f *device.Factors) {
		u.MuonMomentum(a.Value.Floats(), a.Grad.Floats(), a.State[0].Floats(), f.Beta1, f.New1, f.GradScale)
	},
	device.RuleMuonStep: func(u *vec.Unit, a device.Arrays, f *device.Factors) {
		u.MuonStep(a.Value.Floats(), a.Grad.Floats(), f.Keep, f.Rate)
	},
}

// HasRule reports whether updateRules has the rule.
func (d *Device) HasRule(r device.Rule) bool { return updateRules[r] != nil }

// Update runs a step of a rule.
func (d *Device) Update(r device.Rule, a device.Arrays, f device.Factors) {
	n := a.Value.Len()
	sameLength("update", n, a.Grad.Len())
	for _, s := range a.State {
		if s.Len() > 0 {
			sameLength("update", n, s.Len())
		}
	}
	j := &d.update
	j.run, j.arrays, j.f = updateRules[r], a, f
	if j.run == nil {
		panic(fmt.Sprintf("cpu: unknown update rule %q", r))
	}
	d.pool.do(j, (n+grain-1)/grain, n)
	*j = update{unit: j.unit}
	if a.Rounded.Len() > 0 {
		d.Cast(a.Rounded, a.Value)
	}
}

// Normalize divides a tensor by its norm.
func (d *Device) Normalize(y, x device.Tensor, eps float32) {
	d.Scale(y, x, float32(1/max(math.Sqrt(d.SumSquares(x)), float64(eps))))
}

func (j *update) part(thread, threads int) {
	j.run(j.unit, j.arrays.Slice(share(j.arrays.Value.Len(), grain, thread, threads)), &j.f)
}
