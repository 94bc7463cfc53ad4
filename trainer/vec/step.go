package vec

// AdamFactors holds the factors of one step of Adam or AdamW, which are the same for all elements.
type AdamFactors struct {
	Beta1, Beta2 float32 // decay rates of the averages
	New1, New2   float32 // 1-Beta1 and 1-Beta2
	Keep         float32 // factor of the parameter for decoupled weight decay
	Decay        float32 // L2 penalty: fraction of the parameter that is added to the gradient
	Correction   float32 // square root of the second bias correction
	Eps          float32 // added to the divisor
	Rate         float32 // negative learning rate divided by the first bias correction
	GradScale    float32 // factor of the gradient, such as the clipping factor; 1 has no effect
}

// Adam runs a step of torch.optim.Adam or AdamW for parameters p with gradients g,
// where m and v are the averages of gradients and of their squares:
//
//	d = g*GradScale + Decay*p
//	m = Beta1*m + New1*d
//	v = Beta2*v + New2*d*d
//	p = Keep*p + Rate*m / (sqrt(v)/Correction + Eps)
func (u *Unit) Adam(p, g, m, v []float32, f AdamFactors) {
	same(len(p), len(g), len(m), len(v))
	u.adam(p, g, m, v, f.Beta1, f.Beta2, f.New1, f.New2, f.Keep, f.Decay, f.Correction, f.Eps, f.Rate, f.GradScale)
}

// SGDFactors holds the factors of one step of SGD.
type SGDFactors struct {
	LR        float32 // learning rate
	Momentum  float32 // decay rate of the buffer
	Decay     float32 // L2 penalty: fraction of the parameter that is added to the gradient
	GradScale float32 // factor of the gradient, such as the clipping factor; 1 has no effect
	Nesterov  bool    // Nesterov momentum
	First     bool    // first step: the buffer is written only
}

// SGD runs a step of torch.optim.SGD for parameters p with gradients g, without
// momentum if buf is nil, otherwise with the momentum in buf:
//
//	d = g*GradScale + Decay*p
//	buf = Momentum*buf + d, or d at the first step
//	p = p - LR*buf, or p - LR*(d + Momentum*buf) for Nesterov's, or p - LR*d without momentum
func (u *Unit) SGD(p, g, buf []float32, f SGDFactors) {
	same(len(p), len(g))
	if buf == nil {
		u.sgd(p, g, f.LR, f.Decay, f.GradScale)
		return
	}
	same(len(p), len(buf))
	switch {
	case f.Nesterov && f.First:
		u.nesterovFirst(p, g, buf, f.LR, f.Momentum, f.Decay, f.GradScale)
	case f.Nesterov:
		u.nesterovNext(p, g, buf, f.LR, f.Momentum, f.Decay, f.GradScale)
	case f.First:
		u.sgdFirst(p, g, buf, f.LR, f.Decay, f.GradScale)
	default:
		u.sgdNext(p, g, buf, f.LR, f.Momentum, f.Decay, f.GradScale)
	}
}

// LionFactors holds the factors of one step of Lion.
type LionFactors struct {
	Beta1, Beta2 float32 // decay rates of the average: for the update, and for the next step
	New1, New2   float32 // 1-Beta1 and 1-Beta2
	Keep         float32 // factor of the parameter for decoupled weight decay
	Rate         float32 // negative learning rate
	GradScale    float32 // factor of the gradient, such as the clipping factor; 1 has no effect
}

// Lion runs a step of Lion for parameters p with gradients g, where m is the average of gradients:
//
//	d = g*GradScale
//	p = Keep*p + Rate*sign(Beta1*m + New1*d)
//	m = Beta2*m + New2*d
//
// The sign of 0 and NaN is 0.
func (u *Unit) Lion(p, g, m []float32, f LionFactors) {
	same(len(p), len(g), len(m))
	u.lion(p, g, m, f.Beta1, f.Beta2, f.New1, f.New2, f.Keep, f.Rate, f.GradScale)
}

// MuonMomentum updates the average of gradients buf and stores Nesterov's momentum in out:
//
//	d = (1-beta)*g*gradScale
//	buf = beta*buf + d
//	out = d + beta*buf
//
// The argument fresh is 1-beta.
func (u *Unit) MuonMomentum(out, g, buf []float32, beta, fresh, gradScale float32) {
	same(len(out), len(g), len(buf))
	u.muonMomentum(out, g, buf, beta, fresh, gradScale)
}

// MuonStep computes p = keep*p + rate*d.
func (u *Unit) MuonStep(p, d []float32, keep, rate float32) {
	same(len(p), len(d))
	u.muonStep(p, d, keep, rate)
}
