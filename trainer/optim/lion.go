package optim

import "github.com/ddpbatch/ddpbatch/trainer/device"

// lionRule is Lion (Chen et al. 2023), with the arithmetic of the authors' lion_pytorch.py. Weight
// decay is decoupled.
var lionRule = rule{
	update: device.RuleLion,
	state:  func(*Options) []string { return []string{averagePrefix} },
	check:  (*Options).checkBetas,
	factors: func(o *Options, weightDecay float64) device.GroupFactors {
		return device.GroupFactors{Factors: device.Factors{
			Rate: -float32(o.LR), Keep: float32(1 - float64(o.LR*weightDecay)),
			Beta1: float32(o.Beta1), Beta2: float32(o.Beta2), New1: float32(1 - o.Beta1), New2: float32(1 - o.Beta2),
		}}
	},
}
