package conformance

import (
	"math"

	"github.com/ddpbatch/ddpbatch/trainer/device"
)

// sequences holds the vectors of a batch and the gradient of its outputs.
type sequences struct {
	device.AttentionShape
	batch, queries, keys int
	q, k, v, dout        []float32   // rows of Heads*HeadSize
	mask                 []bool      // weights that dropout keeps, [batch, head, query, key]; nil keeps all
	scale                real        // scale of kept weights
	stored               device.Type // type of all vectors and results
}

// row returns the start of a head's vector in row i of q, k, or v.
func (c *sequences) row(i, head int) int { return (i*c.Heads + head) * c.HeadSize }

// operand returns a as an operand of a matrix multiplication. The position of the rounding is
// unspecified: a query may be scaled before or after it. So the value does not change, but the
// bound grows.
func (c *sequences) operand(a real) real {
	if c.Precision == device.BF16 {
		return a.bfloat16()
	}
	return a
}

// dot returns the inner product of two vectors.
func (c *sequences) dot(a, b []float32) real {
	var total sum
	for i, x := range a {
		total.add(c.operand(exact(x)).times(c.operand(exact(b[i]))))
	}
	return total.real()
}

// dropped returns a weight, or its gradient, after dropout.
func (c *sequences) dropped(a real, b, head, query, key int) real {
	if c.mask == nil {
		return a
	}
	if !c.mask[((b*c.Heads+head)*c.queries+query)*c.keys+key] {
		return real{}
	}
	return a.times(c.scale)
}

// weights returns the weights of a query for the keys that it attends to, and the log-sum-exp.
func (c *sequences) weights(b, head, query int) (w []real, logSum real) {
	q := c.q[c.row(b*c.queries+query, head):][:c.HeadSize]
	factor := rounded(1/math.Sqrt(float64(c.HeadSize)), 0)
	w = make([]real, query+c.keys-c.queries+1)
	top := math.Inf(-1)
	for j := range w {
		w[j] = c.dot(q, c.k[c.row(b*c.keys+j, head):][:c.HeadSize]).times(factor)
		top = max(top, w[j].v)
	}
	var total sum
	for _, score := range w {
		total.add(score.minus(real{v: top}).exp())
	}
	logSum = total.real().log().plus(real{v: top})
	for j := range w {
		w[j] = w[j].minus(logSum).exp()
	}
	return w, logSum
}

// forward returns the outputs and the log-sum-exp values [batch, head, query].
func (c *sequences) forward() (out, logSum []real) {
	out, logSum = make([]real, len(c.q)), make([]real, c.batch*c.Heads*c.queries)
	c.each(func(b, head, query int) {
		w, l := c.weights(b, head, query)
		logSum[(b*c.Heads+head)*c.queries+query] = l
		for e := range c.HeadSize {
			var total sum
			for j, x := range w {
				v := exact(c.v[c.row(b*c.keys+j, head)+e])
				total.add(c.operand(c.dropped(x, b, head, query, j)).times(c.operand(v)))
			}
			out[c.row(b*c.queries+query, head)+e] = total.real().in(c.stored)
		}
	})
	return out, logSum
}

// backward returns the gradients.
func (c *sequences) backward(out []real) (dq, dk, dv []real) {
	sums := [3][]sum{make([]sum, len(c.q)), make([]sum, len(c.k)), make([]sum, len(c.v))}
	factor := rounded(1/math.Sqrt(float64(c.HeadSize)), 0)
	c.each(func(b, head, query int) {
		w, _ := c.weights(b, head, query)
		at := c.row(b*c.queries+query, head)
		dout := c.dout[at:][:c.HeadSize]
		var along sum
		for e, d := range dout {
			along.add(exact(d).times(out[at+e]))
		}
		for j, x := range w {
			to := c.row(b*c.keys+j, head)
			dw := c.dropped(c.dot(dout, c.v[to:][:c.HeadSize]), b, head, query, j)
			score := c.operand(x.times(dw.minus(along.real())))
			weight := c.operand(c.dropped(x, b, head, query, j))
			for e, d := range dout {
				sums[0][at+e].add(score.times(c.operand(exact(c.k[to+e]))).times(factor))
				sums[1][to+e].add(score.times(c.operand(exact(c.q[at+e]))).times(factor))
				sums[2][to+e].add(weight.times(c.operand(exact(d))))
			}
		}
	})
	return c.results(sums[0]), c.results(sums[1]), c.results(sums[2])
}

// results returns sums in the stored type.
func (c *sequences) results(v []sum) []real {
	out := totals(v)
	for i := range out {
		out[i] = out[i].in(c.stored)
	}
	return out
}

func (c *sequences) each(f func(b, head, query int)) {
	for b := range c.batch {
		for head := range c.Heads {
			for query := range c.queries {
				f(b, head, query)
			}
		}
	}
}
