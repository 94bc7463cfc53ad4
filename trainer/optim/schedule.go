package optim

import (
	"fmt"
	"math"

	"github.com/ddpbatch/ddpbatch/trainer/device"
)

// Schedule returns the learning rate of an optimizer step, given the number of completed steps. It
// depends on nothing else.
type Schedule func(step int64) float64

// Constant returns a schedule with a fixed learning rate.
func Constant(lr float64) (Schedule, error) {
	if err := checkRate(lr); err != nil {
		return nil, err
	}
	return func(int64) float64 { return lr }, nil
}

// Cosine returns a schedule that decreases from lr at step 0 along half a cosine to floor, which it
// reaches after the given number of steps, like torch.optim.lr_scheduler.CosineAnnealingLR with
// T_max and eta_min. After that it stays at floor, while PyTorch's rises again. It is the only
// schedule whose last bit may differ between CPU architectures, because [math.Cos] does.
func Cosine(lr, floor float64, steps int64) (Schedule, error) {
	if err := checkRate(lr); err != nil {
		return nil, err
	}
	if !(floor >= 0 && floor <= lr) {
		return nil, fmt.Errorf("floor is %v, want a number from 0 to the learning rate %v", floor, lr)
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

// StepDecay returns a schedule that multiplies lr by gamma every n steps, where n is every, like
// torch.optim.lr_scheduler.StepLR with step_size.
func StepDecay(lr, gamma float64, every int64) (Schedule, error) {
	if err := checkRate(lr); err != nil {
		return nil, err
	}
	if !(gamma > 0 && gamma <= 1) {
		return nil, fmt.Errorf("gamma is %v, want a number above 0 up to 1", gamma)
	}
	if err := checkSteps("every", every); err != nil {
		return nil, err
	}
	return func(step int64) float64 { return lr * device.Power(gamma, step/every) }, nil
}

// Warmup returns a schedule that warms up linearly, and then follows the schedule then. The rate
// rises from from*then(0) at step 0 to then(0) at step steps, which is step 0 of then. The schedule
// equals torch.optim.lr_scheduler.SequentialLR of LinearLR, with start_factor and total_iters, and
// another scheduler. With 0 steps it equals then.
func Warmup(from float64, steps int64, then Schedule) (Schedule, error) {
	if !(from >= 0 && from <= 1) {
		return nil, fmt.Errorf("warm-up from %v, want a number from 0 to 1", from)
	}
	if steps < 0 {
		return nil, fmt.Errorf("warm-up of %d steps, want a number from 0", steps)
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
		return fmt.Errorf("learning rate is %v, want a number from 0 that float32 does not round to 0 or infinity", lr)
	}
	return nil
}

func checkSteps(name string, n int64) error {
	if n < 1 {
		return fmt.Errorf("%s is %d, want a number from 1", name, n)
	}
	return nil
}
