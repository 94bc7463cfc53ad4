//go:build cuda

package engine_test

import (
	"math"
	"slices"
	"testing"

	"github.com/ddpbatch/ddpbatch/trainer/cuda/engine"
	"github.com/ddpbatch/ddpbatch/trainer/device"
	"github.com/ddpbatch/ddpbatch/trainer/nn"
	"github.com/ddpbatch/ddpbatch/trainer/optim"
)

// records holds the records of a single rank, with the loss.
type records struct {
	device        device.Device
	loss, records device.Tensor
}

func newRecords(d device.Device) records {
	return records{d, d.Alloc(device.Float32, 1), d.Alloc(device.Float64, 2)}
}

// reduce passes the norm of the gradients and the loss to a decision.
func (r records) reduce(v device.StepDecision, params []*nn.Param) {
	r.device.Cast(r.records.Slice(1, 2), r.loss)
	for i, p := range params {
		r.device.ChunkSquares(r.records, 2, p.Grad, 1, i > 0)
	}
	v.Reduce(r.records)
}

// TestStepDecisions checks that a step with non-finite gradients or losses does not change values
// and state, and does not count for the bias corrections or for the first momentum. The bits equal
// the bits of an optimizer without that step. Rounded values follow the values.
func TestStepDecisions(t *testing.T) {
	const n = 300
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	steps := []struct{ first, loss float32 }{{nan, 1}, {1, 1}, {2, inf}, {-inf, 1}, {3, 2}, {4, nan}, {5, 1}}
	kinds := map[string]func(device.Device, []*nn.Param) (optim.Optimizer, error){
		"sgd": func(d device.Device, p []*nn.Param) (optim.Optimizer, error) {
			return optim.New(d, p, optim.Options{Kind: optim.KindSGD, LR: 0.1, Momentum: 0.9, WeightDecay: 0.01, Nesterov: true})
		},
		"plain sgd": func(d device.Device, p []*nn.Param) (optim.Optimizer, error) {
			return optim.New(d, p, optim.Options{Kind: optim.KindSGD, LR: 0.1})
		},
		"adam": func(d device.Device, p []*nn.Param) (optim.Optimizer, error) {
			return optim.New(d, p, optim.Options{Kind: optim.KindAdam, LR: 0.01, Beta1: 0.9, Beta2: 0.99, Eps: 1e-8, WeightDecay: 0.1})
		},
		"adamw": func(d device.Device, p []*nn.Param) (optim.Optimizer, error) {
			return optim.New(d, p, optim.Options{Kind: optim.KindAdamW, LR: 0.01, Beta1: 0.9, Beta2: 0.99, Eps: 1e-8, WeightDecay: 0.1})
		},
		"lion": func(d device.Device, p []*nn.Param) (optim.Optimizer, error) {
			return optim.New(d, p, optim.Options{Kind: optim.KindLion, LR: 0.01, Beta1: 0.9, Beta2: 0.99, WeightDecay: 0.1})
		},
		"muon": func(d device.Device, p []*nn.Param) (optim.Optimizer, error) {
			for _, p := range p {
				p.Pieces = nil
			}
			p[0].Shape, p[0].Hidden = []int{12, n / 12}, true
			return optim.New(d, p, optim.Options{Kind: optim.KindMuon, LR: 0.01, Momentum: 0.9, Beta1: 0.9, Beta2: 0.99, Eps: 1e-8, WeightDecay: 0.1})
		},
	}
	// Weight decay on some elements only.
	for _, name := range []string{"sgd", "adam", "adamw"} {
		everywhere := kinds[name]
		kinds[name+", some elements decay"] = func(d device.Device, p []*nn.Param) (optim.Optimizer, error) {
			o, err := everywhere(d, p)
			if err == nil {
				o.SetGroups(optim.Group{Selects: func(p *nn.Param) bool { return p.Name != "decays" }})
			}
			return o, err
		}
	}
	for name, kind := range kinds {
		t.Run(name, func(t *testing.T) {
			d := open(t, engine.Options{})
			params := func() (p []*nn.Param) {
				for range 2 {
					decays, plain := &nn.Param{Name: "decays", Shape: []int{n}}, &nn.Param{Name: "plain", Shape: []int{n}}
					p = append(p, &nn.Param{Name: "p", Shape: []int{n}, Data: d.Alloc(device.Float32, n), Grad: d.Alloc(device.Float32, n),
						Pieces: []nn.Piece{{Param: plain, At: 0, Len: 16}, {Param: decays, At: 16, Len: 10}, {Param: plain, At: 32, Len: 32}, {Param: decays, At: 64, Len: n - 80}, {Param: plain, At: n - 16, Len: 16}}})
				}
				return p
			}
			own, other := params(), params()
			for _, p := range own {
				p.Rounded = d.Alloc(device.BFloat16, n)
			}
			rounded := [2]device.Tensor{d.Alloc(device.BFloat16, n), d.Alloc(device.Float32, n)}
			decided, err := kind(d, own)
			if err != nil {
				t.Fatal(err)
			}
			plain, err := kind(d, other)
			if err != nil {
				t.Fatal(err)
			}
			v, reading := d.NewStepDecision(1), d.NewReading()
			rows, records, taken := d.Alloc(device.Float32, 3), newRecords(d), 0
			for i, s := range steps {
				grad := make([]float32, n)
				for k := range grad {
					grad[k] = float32(k%7) - 3
				}
				grad[n/2] = s.first
				for k := range own {
					d.Write(own[k].Grad, grad)
					d.Write(other[k].Grad, grad)
				}
				rate := 0.1 / float64(1+i)
				decided.SetRate(rate)
				for _, loss := range []float32{0.5, s.loss} { // of two batches
					d.Write(rows, []float32{loss, loss, 1})
					v.AddLoss(records.loss, rows, 3, 0.5)
				}
				records.reduce(v, own)
				decided.StepAsync(own, v, 2)
				reading.Begin(v.Result())
				norm := optim.GradNorm(d, other)
				well := !math.IsNaN(norm) && !math.IsInf(norm, 0) && s.loss == s.loss && s.loss < inf
				if got := reading.Floats(); well && got[2] != (0.5*2+1+2*s.loss+1)/6 {
					t.Errorf("step %d: loss %v", i, got[2])
				}
				if got := reading.Floats(); (got[0] != 0) != well || got[1] != float32(norm) && norm == norm {
					t.Errorf("step %d: got %v, the norm is %v", i, got, norm)
				}
				if well {
					plain.SetRate(rate)
					plain.Step(other, optim.ClipScale(norm, 2))
					decided.CountStep()
					taken++
				}
				for k := range own {
					if !slices.Equal(device.Floats(d, own[k].Data), device.Floats(d, other[k].Data)) {
						t.Fatalf("step %d: other values", i)
					}
					d.Cast(rounded[0], own[k].Data)
					d.Cast(rounded[1], rounded[0])
					want := device.Floats(d, rounded[1])
					d.Cast(rounded[1], own[k].Rounded)
					if !slices.Equal(device.Floats(d, rounded[1]), want) {
						t.Fatalf("step %d: the rounded values differ from the values", i)
					}
				}
			}
			if taken != 3 {
				t.Errorf("%d updates", taken)
			}
			got, want := decided.State(), plain.State()
			for i := range want.Tensors {
				if !slices.Equal(got.Tensors[i].Data, want.Tensors[i].Data) || got.Initialized != want.Initialized {
					t.Errorf("state %q differs", want.Tensors[i].Name)
				}
			}
		})
	}
}

// TestAsyncStepsAllocateNothing checks that an asynchronous step does not allocate memory,
// including writes of its input.
func TestAsyncStepsAllocateNothing(t *testing.T) {
	d := open(t, engine.Options{})
	const n = 64
	p := []*nn.Param{{Name: "p", Shape: []int{n}, Data: d.Alloc(device.Float32, n), Grad: d.Alloc(device.Float32, n)}}
	o, err := optim.New(d, p, optim.Options{Kind: optim.KindAdamW, LR: 0.01, Beta1: 0.9, Beta2: 0.99, Eps: 1e-8})
	if err != nil {
		t.Fatal(err)
	}
	v, reading, records := d.NewStepDecision(1), d.NewReading(), newRecords(d)
	rows, input := d.Alloc(device.Float32, n), make([]float32, n)
	step := func() {
		d.Begin()
		d.Write(p[0].Grad, input)
		d.Activate(device.Tanh, p[0].Grad, p[0].Grad)
		d.Add(rows, p[0].Grad, p[0].Data)
		v.AddLoss(records.loss, rows, n, 1)
		records.reduce(v, p)
		o.StepAsync(p, v, 1)
		reading.Begin(v.Result())
		d.End()
		if reading.Floats()[0] != 0 {
			o.CountStep()
		}
	}
	for range 3 {
		step()
	}
	if n := testing.AllocsPerRun(20, step); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if s := d.GroupStats(); s.Captured != 1 || s.Replayed < 20 {
		t.Errorf("%+v", s)
	}
}
