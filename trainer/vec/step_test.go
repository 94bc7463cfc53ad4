package vec_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/ddpbatch/ddpbatch/trainer/vec"
)

// TestAdam checks that a step of Adam uses the documented arithmetic, in its order.
func TestAdam(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 9))
	f := vec.AdamFactors{Beta1: 0.9, Beta2: 0.999, New1: 0.1, New2: 0.001, Keep: 0.9999, Decay: 0.01, Correction: 0.3,
		Eps: 1e-8, Rate: -0.002, GradScale: 0.37}
	n := 1000
	p, g, m, v := random(r, n), random(r, n), random(r, n), random(r, n)
	for i := range v {
		v[i] *= v[i]
	}
	was := [3][]float32{append([]float32(nil), p...), append([]float32(nil), m...), append([]float32(nil), v...)}
	vec.New().Adam(p, g, m, v, f)
	for i := range p {
		d := float32(g[i]*f.GradScale) + float32(f.Decay*was[0][i])
		average := float32(f.Beta1*was[1][i]) + float32(f.New1*d)
		squares := float32(f.Beta2*was[2][i]) + float32(float32(f.New2*d)*d)
		divisor := float32(float32(math.Sqrt(float64(squares)))/f.Correction) + f.Eps
		want := float32(f.Keep*was[0][i]) + float32(float32(f.Rate*average)/divisor)
		if p[i] != want || m[i] != average || v[i] != squares {
			t.Fatalf("element %d is %v, %v, %v, want %v, %v, %v", i, p[i], m[i], v[i], want, average, squares)
		}
	}
}

// TestSGD checks that a step of SGD uses the documented arithmetic, in its order.
func TestSGD(t *testing.T) {
	r := rand.New(rand.NewPCG(10, 11))
	for _, c := range []struct {
		name                    string
		buffer, nesterov, first bool
	}{
		{"plain", false, false, false},
		{"first", true, false, true},
		{"momentum", true, false, false},
		{"Nesterov first", true, true, true},
		{"Nesterov", true, true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := vec.SGDFactors{LR: 0.1, Momentum: 0.9, Decay: 0.01, GradScale: 0.37, Nesterov: c.nesterov, First: c.first}
			n := 1000
			p, g, b := random(r, n), random(r, n), random(r, n)
			p0, b0 := append([]float32(nil), p...), append([]float32(nil), b...)
			if c.buffer {
				vec.New().SGD(p, g, b, f)
			} else {
				vec.New().SGD(p, g, nil, f)
			}
			for i := range p {
				d := float32(g[i]*f.GradScale) + float32(f.Decay*p0[i])
				direction, buffer := d, b0[i]
				if c.buffer {
					buffer = d
					if !c.first {
						buffer = float32(f.Momentum*b0[i]) + d
					}
					direction = buffer
				}
				if c.nesterov {
					direction = d + float32(f.Momentum*buffer)
				}
				if want := p0[i] - float32(f.LR*direction); p[i] != want || b[i] != buffer {
					t.Fatalf("element %d is %v with buffer %v, want %v and %v", i, p[i], b[i], want, buffer)
				}
			}
		})
	}
}
