package optim

import (
	"fmt"
	"math"
)

// Schedule is the learning rate of each step of the optimizer, the first being
// step 0: that is, given the number of steps already done. It depends on nothing
// else.
type Schedule func(step int64) float64

// Constant is the same rate always.
func Constant(lr float64) (Schedule, error) {
	if err := checkRate(lr); err != nil {
		return nil, err
	}
	return func(int64) float64 { return lr }, nil
}

// Cosine falls from lr at step 0 along half a cosine to floor, which it reaches
// at the given number of steps, as torch.optim.lr_scheduler.CosineAnnealingLR
// with T_max and eta_min. After that it stays there, where PyTorch's rises again.
// It alone may differ in its last bit between processor architectures, as
// [math.Cos] does.
func Cosine(lr, floor float64, steps int64) (Schedule, error) {
	if err := checkRate(lr); err != nil {
		return nil, err
	}
	if !(floor >= 0 && floor <= lr) {
		return nil, fmt.Errorf("make a schedule: floor is %v, want a number from 0 to the learning rate %v", floor, lr)
	}
	if err := checkSteps("steps", steps); err != nil {
		return nil, err
	}
	return func(step int64) float64 {
		if step >= steps {
			return floor
		}
		return floor + (lr-floor)*(1+math.Cos(math.Pi*float64(step)/float64(steps)))/2
	}, nil
}

// StepDecay multiplies lr by gamma once every so many steps, as
// torch.optim.lr_scheduler.StepLR with step_size.
func StepDecay(lr, gamma float64, every int64) (Schedule, error) {
	if err := checkRate(lr); err != nil {
		return nil, err
	}
	if !(gamma > 0 && gamma <= 1) {
		return nil, fmt.Errorf("make a schedule: gamma is %v, want a number above 0 up to 1", gamma)
	}
	if err := checkSteps("every", every); err != nil {
		return nil, err
	}
	return func(step int64) float64 { return lr * power(gamma, step/every) }, nil
}

// WarmUp rises in a line from the part from of the rate that then begins with,
// at step 0, to all of it after the given number of steps, and goes on with then
// from its step 0. It is torch.optim.lr_scheduler.SequentialLR of LinearLR, with
// start_factor and total_iters, and another. With 0 steps it is then alone.
func WarmUp(from float64, steps int64, then Schedule) (Schedule, error) {
	if !(from >= 0 && from <= 1) {
		return nil, fmt.Errorf("make a schedule: warm-up from %v, want a number from 0 to 1", from)
	}
	if steps < 0 {
		return nil, fmt.Errorf("make a schedule: warm-up of %d steps, want a number from 0", steps)
	}
	return func(step int64) float64 {
		if step >= steps {
			return then(step - steps)
		}
		return then(0) * (from + (1-from)*float64(step)/float64(steps))
	}, nil
}

func checkRate(lr float64) error {
	if !inFloat32(lr) {
		return fmt.Errorf("make a schedule: learning rate is %v, want a number from 0 that float32 does not round to 0 or infinity", lr)
	}
	return nil
}

func checkSteps(name string, n int64) error {
	if n < 1 {
		return fmt.Errorf("make a schedule: %s is %d, want a number from 1", name, n)
	}
	return nil
}
