package optim

import "github.com/ddpbatch/ddpbatch/trainer/device"

// Names of Adam's state, equal to PyTorch's. The names of the moving averages are prefixes; the
// parameter's name follows.
const (
	averagePrefix = "exp_avg."
	squaresPrefix = "exp_avg_sq."
	stepName      = "step"
)

// lastStep is the value at which the step counter stops, like PyTorch's: float32 cannot count
// further. The bias corrections have long been 1 by then.
const lastStep = 1 << 24

// adamRule and adamWRule are torch.optim.Adam and torch.optim.AdamW (Kingma and Ba 2015, Loshchilov
// and Hutter 2019), which differ only in their weight decay.
var adamRule, adamWRule = newAdamRule(false), newAdamRule(true)

// newAdamRule returns the rule of AdamW if weight decay is decoupled, otherwise the rule of Adam.
func newAdamRule(decoupled bool) rule {
	return rule{
		update: device.RuleAdam,
		counts: true,
		state:  func(*Options) []string { return []string{averagePrefix, squaresPrefix} },
		check: func(o *Options) error {
			if err := check(setting{"eps", o.Eps}); err != nil {
				return err
			}
			return o.checkBetas()
		},
		factors: func(o *Options, weightDecay float64) device.GroupFactors {
			f := device.Factors{
				Beta1: float32(o.Beta1), Beta2: float32(o.Beta2),
				New1: float32(1 - o.Beta1), New2: float32(1 - o.Beta2),
				Keep: 1, Eps: float32(o.Eps),
			}
			if decoupled {
				f.Keep = float32(1 - float64(o.LR*weightDecay))
			} else {
				f.Decay = float32(weightDecay)
			}
			return device.GroupFactors{Factors: f, BiasCorrected: true, LR: o.LR, Beta1: o.Beta1, Beta2: o.Beta2, MaxUpdates: lastStep}
		},
	}
}
