package predict

import (
	"context"

	"github.com/ddpbatch/ddpbatch/internal/exitcode"
	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/trainer"
	"github.com/ddpbatch/ddpbatch/trainer/nn"
	"github.com/ddpbatch/ddpbatch/trainer/plan"
)

// GPUStep is the speed model of a step of one rank on a GPU, without communication.
type GPUStep struct {
	GPU       string     `json:"gpu"`
	Attention string     `json:"attention"` // instructions of attention: "mma" or "wgmma"
	Rates     plan.Rates `json:"assumed_rates"`
	plan.SpeedModel
	TokensPerSecond float64 `json:"tokens_per_s"`
}

// explain runs a step of the job on a device that records the launches of a GPU.
func (p *predictor) explain(ctx context.Context, model nn.Model) (*GPUStep, error) {
	t := p.Job.Train
	switch {
	case p.gpu == nil || p.gpu.Major < 8:
		return nil, exitcode.Usagef("select one with --gpu, such as --gpu H200", "explain %q: the speed model needs a GPU of compute capability 8.0 or later", p.Path)
	case t.Model.Kind != jobs.ModelGPT || t.Precision != jobs.PrecisionBF16:
		return nil, exitcode.Usagef("omit --explain", "explain %q: the speed model supports only a GPT in bf16", p.Path)
	}
	s := &GPUStep{GPU: p.gpu.Name, Attention: "mma"}
	wgmma := p.gpu.IsHopper() && !p.MMA
	if wgmma {
		s.Attention = "wgmma"
	}
	d := plan.NewRecorder(wgmma)
	step, err := trainer.PrepareStep(d, model, p.data.sample.Batch(d, t.Batch), t)
	if err != nil {
		return nil, err
	}
	d.Launches = nil // of the setup
	if err := step(ctx); err != nil {
		return nil, err
	}
	s.Rates = p.gpu.Rates(wgmma)
	s.SpeedModel = plan.Explain(d.Launches, s.Rates)
	s.TokensPerSecond = float64(t.Batch*p.data.sample.Tokens*p.training.Accumulate) / s.Step.Seconds
	return s, nil
}
