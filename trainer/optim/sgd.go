package optim

import (
	"errors"

	"github.com/ddpbatch/ddpbatch/trainer/device"
)

// momentumPrefix is the prefix for the names of momentum buffers. The parameter's name follows.
const momentumPrefix = "momentum."

// sgdRule is stochastic gradient descent with momentum, torch.optim.SGD. Without momentum, it has no
// state.
var sgdRule = rule{
	update: device.RuleSGD,
	state: func(o *Options) []string {
		if o.Momentum == 0 {
			return nil
		}
		return []string{momentumPrefix}
	},
	check: func(o *Options) error {
		if err := check(setting{"momentum", o.Momentum}); err != nil {
			return err
		}
		if o.Nesterov && o.Momentum == 0 {
			return errors.New("momentum must be above 0 with nesterov")
		}
		return nil
	},
	factors: func(o *Options, weightDecay float64) device.GroupFactors {
		return device.GroupFactors{Factors: device.Factors{
			Rate: -float32(o.LR), Beta1: float32(o.Momentum), Decay: float32(weightDecay), Nesterov: o.Nesterov,
		}}
	},
}
