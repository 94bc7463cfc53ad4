package main

// rows contains the parts of softmax and layer normalization.
func rows() []kernel {
	return []kernel{
		{name: "expSum", arrays: floats32("y", "x"), floats: []string{"most"}, lanes: 64, results: []string{"sum"}, build: func(b *body) {
			e := b.exp(b.sub(b.load("x"), b.arg("most")))
			b.store("y", e)
			b.reduce(zero, sum, e)
		}},
		{name: "softmaxGrad", arrays: floats32("dx", "p", "dp"), floats: []string{"delta", "scale"}, build: func(b *body) {
			b.store("dx", b.mul(b.mul(b.load("p"), b.sub(b.load("dp"), b.arg("delta"))), b.arg("scale")))
		}},
		{name: "sumDeviations", arrays: floats32("x"), floats: []string{"mean"}, lanes: 64, results: []string{"sum"}, build: func(b *body) {
			d := b.sub(b.load("x"), b.arg("mean"))
			b.reduce(zero, sum, b.mul(d, d))
		}},
		{name: "normalize", arrays: floats32("y", "x", "w", "b"), floats: []string{"mean", "rstd"}, build: func(b *body) {
			b.store("y", b.add(b.mul(b.normal("x", "mean", "rstd"), b.load("w")), b.load("b")))
		}},
		{name: "normSums", arrays: floats32("dy", "x", "w"), floats: []string{"mean", "rstd"}, lanes: 32, results: []string{"sum", "dot"},
			build: func(b *body) {
				normal := b.normal("x", "mean", "rstd")
				g := b.mul(b.load("dy"), b.load("w"))
				b.reduce(zero, sum, g)
				b.reduce(zero, sum, b.mul(g, normal))
			}},
		{name: "normGrad", arrays: floats32("dx", "dy", "x", "w"), floats: []string{"mean", "rstd", "sum", "dot"}, build: func(b *body) {
			b.store("dx", b.normGrad())
		}},
		{name: "addNormGrad", arrays: floats32("dx", "dy", "x", "w"), floats: []string{"mean", "rstd", "sum", "dot"}, build: func(b *body) {
			b.store("dx", b.add(b.load("dx"), b.normGrad()))
		}},
		{name: "normParamGrad", arrays: floats32("dw", "db", "dy", "x"), floats: []string{"mean", "rstd"}, build: func(b *body) {
			dy := b.load("dy")
			b.store("dw", b.add(b.load("dw"), b.mul(dy, b.normal("x", "mean", "rstd"))))
			b.store("db", b.add(b.load("db"), dy))
		}},
		{name: "normParamGrad2", arrays: floats32("dw", "db", "dy0", "x0", "dy1", "x1"), floats: []string{"mean0", "rstd0", "mean1", "rstd1"},
			build: func(b *body) {
				dw, db := b.load("dw"), b.load("db")
				for _, row := range []string{"0", "1"} {
					dy := b.load("dy" + row)
					dw = b.add(dw, b.mul(dy, b.normal("x"+row, "mean"+row, "rstd"+row)))
					db = b.add(db, dy)
				}
				b.store("dw", dw)
				b.store("db", db)
			}},
	}
}

// normal returns the normalized element of a row.
func (b *body) normal(x, mean, rstd string) *node {
	return b.mul(b.sub(b.load(x), b.arg(mean)), b.arg(rstd))
}

// normGrad returns the gradient of an input of layer normalization, from the row's means of dy*w
// and of dy*w*normal.
func (b *body) normGrad() *node {
	normal := b.normal("x", "mean", "rstd")
	g := b.mul(b.load("dy"), b.load("w"))
	return b.mul(b.arg("rstd"), b.sub(b.sub(g, b.arg("sum")), b.mul(normal, b.arg("dot"))))
}
