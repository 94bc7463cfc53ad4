package main

// steps contains optimizer steps, with the arithmetic of torch.optim without fused multiply-adds.
func steps() []kernel {
	sgd := []string{"lr", "momentum", "decay", "gscale"}
	return []kernel{
		{name: "adam", arrays: floats32("p", "grad", "m", "v"),
			floats: []string{"beta1", "beta2", "new1", "new2", "keep", "decay", "correction", "eps", "rate", "gscale"},
			build: func(b *body) {
				p, g := b.load("p"), b.decayed()
				m := b.add(b.mul(b.arg("beta1"), b.load("m")), b.mul(b.arg("new1"), g))
				v := b.add(b.mul(b.arg("beta2"), b.load("v")), b.mul(b.mul(b.arg("new2"), g), g))
				b.store("m", m)
				b.store("v", v)
				divisor := b.add(b.div(b.sqrt(v), b.arg("correction")), b.arg("eps"))
				b.store("p", b.add(b.mul(b.arg("keep"), p), b.div(b.mul(b.arg("rate"), m), divisor)))
			}},
		{name: "lion", arrays: floats32("p", "grad", "m"), floats: []string{"beta1", "beta2", "new1", "new2", "keep", "rate", "gscale"},
			build: func(b *body) {
				g := b.mul(b.load("grad"), b.arg("gscale"))
				c := b.add(b.mul(b.arg("beta1"), b.load("m")), b.mul(b.arg("new1"), g))
				sign := b.greater(c, b.num(0), b.num(1), b.greater(b.num(0), c, b.num(-1), b.num(0)))
				b.store("p", b.add(b.mul(b.arg("keep"), b.load("p")), b.mul(b.arg("rate"), sign)))
				b.store("m", b.add(b.mul(b.arg("beta2"), b.load("m")), b.mul(b.arg("new2"), g)))
			}},
		{name: "muonMomentum", arrays: floats32("p", "grad", "buf"), floats: []string{"beta", "new", "gscale"}, build: func(b *body) {
			d := b.mul(b.arg("new"), b.mul(b.load("grad"), b.arg("gscale")))
			v := b.add(b.mul(b.arg("beta"), b.load("buf")), d)
			b.store("buf", v)
			b.store("p", b.add(d, b.mul(b.arg("beta"), v)))
		}},
		{name: "muonStep", arrays: floats32("p", "grad"), floats: []string{"keep", "rate"}, build: func(b *body) {
			b.store("p", b.add(b.mul(b.arg("keep"), b.load("p")), b.mul(b.arg("rate"), b.load("grad"))))
		}},
		{name: "sgd", arrays: floats32("p", "grad"), floats: []string{"lr", "decay", "gscale"}, build: func(b *body) {
			b.descend(b.decayed())
		}},
		{name: "sgdFirst", arrays: floats32("p", "grad", "buf"), floats: []string{"lr", "decay", "gscale"}, build: func(b *body) {
			d := b.decayed()
			b.store("buf", d)
			b.descend(d)
		}},
		{name: "sgdNext", arrays: floats32("p", "grad", "buf"), floats: sgd, build: func(b *body) {
			v := b.add(b.mul(b.arg("momentum"), b.load("buf")), b.decayed())
			b.store("buf", v)
			b.descend(v)
		}},
		{name: "nesterovFirst", arrays: floats32("p", "grad", "buf"), floats: sgd, build: func(b *body) {
			d := b.decayed()
			b.store("buf", d)
			b.descend(b.add(d, b.mul(b.arg("momentum"), d)))
		}},
		{name: "nesterovNext", arrays: floats32("p", "grad", "buf"), floats: sgd, build: func(b *body) {
			d := b.decayed()
			v := b.add(b.mul(b.arg("momentum"), b.load("buf")), d)
			b.store("buf", v)
			b.descend(b.add(d, b.mul(b.arg("momentum"), v)))
		}},
	}
}

// decayed returns the scaled gradient with weight decay.
func (b *body) decayed() *node {
	return b.add(b.mul(b.load("grad"), b.arg("gscale")), b.mul(b.arg("decay"), b.load("p")))
}

// descend updates the parameter in the direction opposite to d.
func (b *body) descend(d *node) {
	b.store("p", b.sub(b.load("p"), b.mul(b.arg("lr"), d)))
}
