package optim

import (
	"fmt"
	"math"
	"slices"

	"github.com/ddpbatch/ddpbatch/trainer/device"
	"github.com/ddpbatch/ddpbatch/trainer/nn"
)

// Constants of torch.optim.Muon.
const (
	muonSteps = 5    // iterations of Newton-Schulz
	muonEps   = 1e-7 // minimum norm
	muonScale = 0.2  // root mean square of an update of AdamW (Liu et al. 2025)
)

// muonA, muonB, and muonC are the coefficients of the polynomial aX + b(XXᵀ)X + c(XXᵀ)²X, which
// moves all singular values towards 1 (Jordan et al. 2024).
const muonA, muonB, muonC = 3.4445, -4.7750, 2.0315

// muon is Muon for the weights of hidden layers ([nn.Param.Hidden]) and AdamW for all other
// parameters. It is torch.optim.Muon with adjust_lr_fn="match_rms_adamw", so that both rules use one
// learning rate, but orthogonalizes in float32 instead of bfloat16. A convolution's weight is a
// matrix with one row per output channel.
//
// It needs whole tensors.
type muon struct {
	stepper // with the factors of AdamW for each group, then of Muon
	pieces  []muonPiece

	momentum, average, squares []buffer // by matrix, and by parameter that AdamW updates

	decays []float64 // weight decay by group, with the default first

	x, y                device.Tensor // matrices in the iteration
	gram, scaled, power device.Tensor // square matrices of the smaller dimension
}

// muonPiece is a parameter and its position.
type muonPiece struct {
	nn.Piece
	array      int // index of the array that holds it
	rows, cols int // of a matrix that Muon updates; 0 for AdamW
	state      int // index of its buffers
	group      int
}

// newMuon returns Muon for the weights of hidden layers, and AdamW for all other parameters.
func newMuon(d device.Device, params []*nn.Param, o Options) (*muon, error) {
	if err := check(setting{"learning rate", o.LR}, setting{"weight decay", o.WeightDecay}, setting{"eps", o.Eps}); err != nil {
		return nil, err
	}
	if !inFloat32(o.Momentum) || float32(o.Momentum) >= 1 {
		return nil, fmt.Errorf("momentum is %v, want a number from 0 to below 1 that float32 does not round to 0 or 1", o.Momentum)
	}
	if err := o.checkBetas(); err != nil {
		return nil, err
	}
	for _, r := range []device.Rule{device.RuleMuonMomentum, device.RuleMuonStep, device.RuleAdam} {
		if !d.HasRule(r) {
			return nil, fmt.Errorf("%s does not support the update rule %q", d.Name(), r)
		}
	}
	m := &muon{stepper: stepper{Options: o, device: d, params: params}}
	var matrices, others []*nn.Param
	largest, side := 0, 0
	for i, array := range params {
		for _, piece := range array.Contents() {
			p := muonPiece{Piece: piece, array: i, state: len(others)}
			if !piece.IsWhole() {
				return nil, fmt.Errorf("%s needs whole tensors, but %q holds elements %d to %d of the %d of %q",
					KindMuon, array.Name, p.Offset, p.Offset+p.Len, p.Param.Len(), p.Param.Name)
			}
			if p.Param.Hidden {
				p.state, p.rows, p.cols = len(matrices), p.Param.Shape[0], p.Len/p.Param.Shape[0]
				largest, side = max(largest, p.Len), max(side, min(p.rows, p.cols))
				matrices = append(matrices, p.Param)
			} else {
				others = append(others, p.Param)
			}
			m.pieces = append(m.pieces, p)
		}
	}
	m.momentum = newBuffers(d, momentumPrefix, matrices)
	m.average, m.squares = newBuffers(d, averagePrefix, others), newBuffers(d, squaresPrefix, others)
	m.x, m.y = d.Alloc(device.Float32, largest), d.Alloc(device.Float32, largest)
	for _, t := range []*device.Tensor{&m.gram, &m.scaled, &m.power} {
		*t = d.Alloc(device.Float32, side*side)
	}
	m.SetGroups()
	return m, nil
}

// SetGroups sets at most one group, because each needs factors for two rules.
func (m *muon) SetGroups(groups ...Group) {
	if 2*(1+len(groups)) > device.MaxGroups {
		panic(fmt.Sprintf("optim: %d groups with %s, want at most %d", len(groups), KindMuon, device.MaxGroups/2-1))
	}
	m.decays = []float64{m.WeightDecay}
	for _, g := range groups {
		m.decays = append(m.decays, g.WeightDecay)
	}
	m.factors = make([]device.GroupFactors, 2*len(m.decays))
	for i := range m.pieces {
		p := &m.pieces[i]
		p.group = groupOf(p.Param, groups)
		if p.rows > 0 {
			p.group += len(m.decays)
		}
	}
}

// setFactors sets the factors of a step.
func (m *muon) setFactors() {
	for i, decay := range m.decays {
		m.factors[i] = adamWRule.factors(&m.Options, decay)
		m.factors[i+len(m.decays)] = device.GroupFactors{Factors: device.Factors{
			Rate: -float32(m.LR), Keep: float32(1 - float64(m.LR*decay)),
			Beta1: float32(m.Momentum), New1: float32(1 - m.Momentum),
		}}
	}
}

// Step updates Data of all parameters with their Grad times gradScale.
func (m *muon) Step(params []*nn.Param, gradScale float32) {
	m.setFactors()
	m.start(params, gradScale)
	m.updateAll(params, nil)
}

// StepAsync enqueues Step on the device, which skips the update unless loss and gradients are
// finite.
func (m *muon) StepAsync(params []*nn.Param, d device.StepDecision, maxNorm float64) {
	m.setFactors()
	m.startAsync(params, d, maxNorm)
	m.updateAll(params, d)
}

// updateAll updates all parameters, with the factors of a decision unless it is nil.
func (m *muon) updateAll(params []*nn.Param, d device.StepDecision) {
	for _, p := range m.pieces {
		from := params[p.array]
		a := device.Arrays{Value: from.Data, Grad: from.Grad, Rounded: from.Rounded}.Slice(p.At, p.At+p.Len)
		if p.rows == 0 {
			a.State = [2]device.Tensor{m.average[p.state].data, m.squares[p.state].data}
			m.update(d, device.RuleAdam, a, p.group)
			continue
		}
		x := m.x.Slice(0, p.Len)
		m.update(d, device.RuleMuonMomentum, device.Arrays{Value: x, Grad: a.Grad, State: [2]device.Tensor{m.momentum[p.state].data}}, p.group)
		a.Grad = m.orthogonalize(p.rows, p.cols)
		m.device.Scale(a.Grad, a.Grad, float32(muonScale*math.Sqrt(float64(max(p.rows, p.cols)))))
		m.update(d, device.RuleMuonStep, a, p.group)
	}
}

func (m *muon) update(d device.StepDecision, r device.Rule, a device.Arrays, group int) {
	if d != nil {
		d.Update(r, a, group)
		return
	}
	m.device.Update(r, a, m.factors[group].Factors)
}

// orthogonalize returns approximately the nearest semi-orthogonal matrix to the matrix in m.x, with
// the iteration of Newton and Schulz. It overwrites m.x and m.y; the result is in one of them. For
// a matrix with more rows than columns, it multiplies from the right, which is the iteration on the
// transpose.
func (m *muon) orthogonalize(rows, cols int) device.Tensor {
	side := min(rows, cols)
	x, y := m.x.Slice(0, rows*cols), m.y.Slice(0, rows*cols)
	gram, scaled, power := device.Rows(m.gram, side, side), device.Rows(m.scaled, side, side), device.Rows(m.power, side, side)
	m.device.Normalize(x, x, muonEps)
	for range muonSteps {
		in, out := device.Rows(x, rows, cols), device.Rows(y, rows, cols)
		if rows <= cols {
			m.device.MatMul(device.Product{C: gram, A: in, B: in.T()})
		} else {
			m.device.MatMul(device.Product{C: gram, A: in.T(), B: in})
		}
		// power = b*gram + c*gram*gram
		m.device.Scale(power.Data, gram.Data, muonB)
		m.device.Scale(scaled.Data, gram.Data, muonC)
		m.device.MatMul(device.Product{C: power, A: scaled, B: gram, Accumulate: true})
		// out = a*in + power*in
		m.device.Scale(y, x, muonA)
		if rows <= cols {
			m.device.MatMul(device.Product{C: out, A: power, B: in, Accumulate: true})
		} else {
			m.device.MatMul(device.Product{C: out, A: in, B: power.T(), Accumulate: true})
		}
		x, y = y, x
	}
	return x
}

// State returns "momentum." with the name of each matrix that Muon updates, AdamW's state of all
// other parameters, and "step", the number of completed steps.
func (m *muon) State() State { return m.StateBy(defaultRead(m.device)) }

// StateBy is like State, but reads arrays with read.
func (m *muon) StateBy(read Read) State {
	var list []Tensor
	for _, b := range m.buffers() {
		list = append(list, b.tensor(read))
	}
	return State{m.Kind(), m.steps > 0, append(list, Tensor{stepName, nil, []float32{float32(m.steps)}})}
}

func (m *muon) buffers() []buffer { return slices.Concat(m.momentum, m.average, m.squares) }

// Restore copies the state of an optimizer of the same kind for the same parameters. See
// [Optimizer.Restore].
func (m *muon) Restore(from State) error {
	steps, err := restore(m.device, m.Kind(), m.buffers(), true, from)
	if err != nil {
		return err
	}
	m.steps, m.countedBy = steps, nil
	return nil
}
