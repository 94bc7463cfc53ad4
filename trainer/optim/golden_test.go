package optim

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"testing"

	"github.com/ddpbatch/ddpbatch/trainer/nn"
	"github.com/ddpbatch/ddpbatch/trainer/random"
)

// golden is the output of testdata/torch_optim.py.
type golden struct {
	Runs []struct {
		Kind         string
		LR, Momentum float64
		Beta1, Beta2 float64
		Eps          float64
		WeightDecay  float64 `json:"weight_decay"`
		Matrices     bool    // only matrices decay
		Clip         float64
		Schedule     *goldenSchedule
		Rates, Norms []float64
		Values       [][]float32
		Average      []float32 `json:"exp_avg"`
		Squares      []float32 `json:"exp_avg_sq"`
		Momenta      []float32
		Step         float32
	}
	Schedules []goldenSchedule
}

type goldenSchedule struct {
	LR                   float64
	Kind                 string
	Floor, Gamma, From   float64
	Steps, Every, Warmup int64
	Rates                []float64
}

func (s goldenSchedule) make(t *testing.T) Schedule {
	t.Helper()
	var out Schedule
	var err error
	switch s.Kind {
	case "cosine":
		out, err = Cosine(s.LR, s.Floor, s.Steps)
	case "step":
		out, err = StepDecay(s.LR, s.Gamma, s.Every)
	default:
		out, err = Constant(s.LR)
	}
	if err == nil && s.Warmup > 0 {
		out, err = Warmup(s.From, s.Warmup, out)
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// goldens returns the recorded values and, if PyTorch is installed, values that it computes now.
func goldens(t *testing.T) map[string]golden {
	t.Helper()
	raw, err := os.ReadFile("testdata/optim_golden.json")
	if err != nil {
		t.Fatal(err)
	}
	sources := map[string][]byte{"golden": raw}
	const python = "/usr/bin/python3"
	if exec.Command(python, "-c", "import torch, numpy").Run() == nil {
		if sources["live"], err = exec.Command(python, "testdata/torch_optim.py").Output(); err != nil {
			t.Fatalf("run PyTorch: %v", err)
		}
	}
	out := map[string]golden{}
	for name, raw := range sources {
		var g golden
		if err := json.Unmarshal(raw, &g); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if len(g.Runs) != 19 || len(g.Schedules) != 8 {
			t.Fatalf("%s: %d runs and %d schedules, want 19 and 8", name, len(g.Runs), len(g.Schedules))
		}
		out[name] = g
	}
	return out
}

// scales make the first gradients of the first parameter zero, tiny, and large, like the script
// does in runs without clipping.
var scales = []float32{0, 1e-12, 1e-6, 1e6, 1e12}

// Tolerances for the rounding of 50 steps. Values are compared relative to the larger of themselves
// and 1, their typical size. Averages are sums with both signs and lose digits when they nearly
// cancel.
const (
	valueTolerance   = 1e-6
	averageTolerance = 3e-5
	squaresTolerance = 1e-6
)

// maxDifference returns the maximum difference of got from want, relative to want or least.
func maxDifference(got, want []float32, least float64) float64 {
	if len(got) != len(want) {
		return math.Inf(1)
	}
	most := 0.0
	for i, w := range want {
		d := math.Abs(float64(got[i])-float64(w)) / math.Max(math.Abs(float64(w)), least)
		if !(d <= most) {
			most = d
		}
	}
	return most
}

// joined concatenates the tensors' elements.
func joined[T any](all []T, data func(T) []float32) (out []float32) {
	for _, t := range all {
		out = append(out, data(t)...)
	}
	return out
}

// TestFiftyStepsFollowTorch compares 50 steps of each optimizer with PyTorch's, with clipping,
// schedules, and groups.
func TestFiftyStepsFollowTorch(t *testing.T) {
	for source, g := range goldens(t) {
		for i, c := range g.Runs {
			t.Run(fmt.Sprintf("%s/%d %s", source, i, c.Kind), func(t *testing.T) {
				if len(c.Values) != 50 {
					t.Fatalf("%d steps, want 50", len(c.Values))
				}
				draws := random.New(5)
				params := []*nn.Param{randomParam(draws, "a", 19), randomParam(draws, "b", 6)}
				params[1].Shape, params[1].Hidden = []int{3, 2}, true
				if c.Kind == KindMuon {
					params = append(params, randomParam(draws, "c", 10))
					params[2].Shape, params[2].Hidden = []int{2, 5}, true
				}
				o := buildWith(t, c.Kind, params, Options{Momentum: c.Momentum, LR: c.LR, Beta1: c.Beta1, Beta2: c.Beta2, Eps: c.Eps, WeightDecay: c.WeightDecay})
				if c.Matrices {
					o.SetGroups(Group{Selects: func(p *nn.Param) bool { return p == params[0] }})
				}
				var rate Schedule
				if c.Schedule != nil {
					rate = c.Schedule.make(t)
				}
				worst, scale := 0.0, float32(1)
				clip := func() float64 {
					norm := GradNorm(processor, params)
					scale = ClipScale(norm, c.Clip)
					return norm
				}
				for step, want := range c.Values {
					for _, p := range params {
						draws.Uniform(-1, 1, p.Grad.Floats())
					}
					if c.Clip == 0 {
						for k, s := range scales {
							params[0].Grad.Floats()[k] *= s
						}
					} else if norm := clip(); !(math.Abs(norm-c.Norms[step]) <= 1e-6*norm) {
						t.Errorf("step %d: norm %v, want %v", step, norm, c.Norms[step])
					}
					if rate != nil {
						o.SetRate(rate(int64(step)))
					}
					if d := o.Rate() - c.Rates[step]; !(math.Abs(d) <= 1e-14) {
						t.Errorf("step %d: rate %v, want %v", step, o.Rate(), c.Rates[step])
					}
					o.Step(params, scale)
					worst = max(worst, maxDifference(joined(params, func(p *nn.Param) []float32 { return p.Data.Floats() }), want, 1))
				}
				t.Logf("relative difference of values up to %.2g", worst)
				if !(worst <= valueTolerance) {
					t.Errorf("values differ by %v", worst)
				}
				state := o.State().Tensors
				data := func(t Tensor) []float32 { return t.Data }
				switch c.Kind {
				case KindSGD:
					return
				case KindLion:
					if d := maxDifference(joined(state, data), c.Average, 1e-30); !(d <= averageTolerance) {
						t.Errorf("averages differ by %v", d)
					}
					return
				case KindMuon:
					if d := maxDifference(joined(state[:2], data), c.Momenta, 1e-30); !(d <= averageTolerance) {
						t.Errorf("momenta differ by %v", d)
					}
					return
				}
				averages := joined([]Tensor{state[0], state[2]}, data)
				squares := joined([]Tensor{state[1], state[3]}, data)
				t.Logf("of averages %.2g, of squares %.2g", maxDifference(averages, c.Average, 1e-30), maxDifference(squares, c.Squares, 1e-30))
				if d := maxDifference(averages, c.Average, 1e-30); !(d <= averageTolerance) {
					t.Errorf("averages differ by %v", d)
				}
				if d := maxDifference(squares, c.Squares, 1e-30); !(d <= squaresTolerance) {
					t.Errorf("squares differ by %v", d)
				}
				if got := state[4].Data[0]; got != c.Step {
					t.Errorf("step is %v, want %v", got, c.Step)
				}
			})
		}
	}
}

// TestSchedulesFollowTorch compares the rates of each schedule with PyTorch's.
func TestSchedulesFollowTorch(t *testing.T) {
	for source, g := range goldens(t) {
		for i, c := range g.Schedules {
			t.Run(fmt.Sprintf("%s/%d %s", source, i, c.Kind), func(t *testing.T) {
				rate := c.make(t)
				for step, want := range c.Rates {
					// PyTorch computes each rate from the previous one.
					if got := rate(int64(step)); !(math.Abs(got-want) <= 1e-13*c.LR) {
						t.Errorf("step %d: %v, want %v", step, got, want)
					}
				}
			})
		}
	}
}
