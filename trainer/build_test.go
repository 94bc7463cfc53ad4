package trainer

import (
	"testing"

	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/trainer/checkpoint"
	"github.com/ddpbatch/ddpbatch/trainer/optim"
)

// TestSavedOptimizer checks the settings that are read from manifests against those of their jobs.
func TestSavedOptimizer(t *testing.T) {
	adam := jobs.Optimizer{Kind: jobs.OptimizerAdamW, LR: 0.1, Beta1: 0.9, Beta2: 0.99, Eps: 1e-6, WeightDecay: 0.25, Decay: jobs.DecayMatrices}
	for name, tt := range map[string]struct {
		train  jobs.Train
		change map[string]string // of the manifest
		step   int
		want   optim.Options
		groups int
		fails  bool
	}{
		"sgd": {
			train: jobs.Train{Optimizer: jobs.Optimizer{Kind: jobs.OptimizerSGD, LR: 0.1, Momentum: 0.9, Nesterov: true}},
			step:  7,
			want:  optim.Options{Kind: optim.KindSGD, LR: 0.1, Momentum: 0.9, Nesterov: true},
		},
		"groups": {
			train:  jobs.Train{Optimizer: adam},
			want:   optim.Options{Kind: optim.KindAdamW, LR: 0.1, Beta1: 0.9, Beta2: 0.99, Eps: 1e-6, WeightDecay: 0.25},
			groups: 1,
		},
		"step schedule": {
			train: jobs.Train{Optimizer: jobs.Optimizer{Kind: jobs.OptimizerSGD, LR: 8}, Schedule: jobs.Schedule{Kind: jobs.ScheduleStep, Gamma: 0.5, Every: 10}},
			step:  20,
			want:  optim.Options{Kind: optim.KindSGD, LR: 2},
		},
		"warm-up": {
			train: jobs.Train{Optimizer: jobs.Optimizer{Kind: jobs.OptimizerSGD, LR: 8}, Schedule: jobs.Schedule{Kind: jobs.ScheduleCosine, Steps: 100, WarmUp: 4, WarmUpFrom: 0.5}},
			want:  optim.Options{Kind: optim.KindSGD, LR: 4},
		},
		"not a number":   {train: jobs.Train{Optimizer: adam}, change: map[string]string{"optimizer.beta1": "x"}, fails: true},
		"not a schedule": {train: jobs.Train{Optimizer: adam}, change: map[string]string{"schedule.kind": `"square"`}, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			m := &checkpoint.Manifest{Spec: tt.train.Fingerprint(), Optimizer: string(tt.train.Optimizer.Kind), Step: tt.step}
			for key, value := range tt.change {
				m.Spec[key] = value
			}
			got, groups, err := SavedOptimizer(m)
			if (err != nil) != tt.fails {
				t.Fatalf("got error %v, want an error: %t", err, tt.fails)
			}
			if got != tt.want || len(groups) != tt.groups {
				t.Errorf("got %+v with %d groups, want %+v with %d groups", got, len(groups), tt.want, tt.groups)
			}
		})
	}
}
