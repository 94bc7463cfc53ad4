package vec

import (
	"fmt"
	"math"
)

// ExpSum computes y = exp(x - most) and returns the sum of y in the order of [Unit.Sum]. If most is
// the largest x, this is softmax before the division by the sum. An exponential has an error of at
// most 1.1 ulps. It is infinite above 88.73 and 0 below -103.98.
func (u *Unit) ExpSum(y, x []float32, most float32) float32 {
	same(len(y), len(x))
	return u.expSum(y, x, most)
}

// SoftmaxGrad computes dx = p*(dp-delta)*scale. This is the gradient of x if p is softmax(scale*x)
// and delta is the sum of p*dp.
func (u *Unit) SoftmaxGrad(dx, p, dp []float32, delta, scale float32) {
	same(len(dx), len(p), len(dp))
	u.softmaxGrad(dx, p, dp, delta, scale)
}

// LayerNorm computes y = (x-mean)*rstd*w + b for one row. It returns the mean of x and rstd =
// 1/sqrt(variance+eps), with the biased variance, like torch.nn.functional.layer_norm. It computes
// the mean before it squares the deviations. Both sums are in the order of [Unit.Sum].
func (u *Unit) LayerNorm(y, x, w, b []float32, eps float32) (mean, rstd float32) {
	same(len(y), len(x), len(w), len(b))
	n := float32(len(x))
	mean = u.sum(x) / n
	variance := u.sumDeviations(x, mean) / n
	rstd = float32(1 / math.Sqrt(float64(variance+eps)))
	u.normalize(y, x, w, b, mean, rstd)
	return mean, rstd
}

// LayerNormGrad stores in dx the gradient of the row x of LayerNorm, or adds it if accumulate is
// set. mean and rstd are the results of LayerNorm, and dy is the gradient of y. Its two sums have
// 32 partial sums each, otherwise in the order of [Unit.Sum].
func (u *Unit) LayerNormGrad(dx, dy, x, w []float32, mean, rstd float32, accumulate bool) {
	same(len(dx), len(dy), len(x), len(w))
	sum, dot := u.normSums(dy, x, w, mean, rstd)
	n := float32(len(x))
	if accumulate {
		u.addNormGrad(dx, dy, x, w, mean, rstd, sum/n, dot/n)
	} else {
		u.normGrad(dx, dy, x, w, mean, rstd, sum/n, dot/n)
	}
}

// LayerNormParamGrad adds to dw and db the gradients of w and b of LayerNorm over len(mean) rows of
// dy and x, with the given stride: for each j < len(dw), dw[j] += dy[i*stride+j]*xhat and db[j] +=
// dy[i*stride+j], row by row, starting at the first, with xhat = (x[i*stride+j]-mean[i])*rstd[i].
//
// For columns c to d of larger matrices, pass dw[c:d], db[c:d], dy[c:], x[c:]: threads can divide
// the work by columns without changing any bit. dy and x may end with the last element of the last
// row.
func (u *Unit) LayerNormParamGrad(dw, db, dy, x, mean, rstd []float32, stride int) {
	rows, n := len(mean), len(dw)
	same(n, len(db))
	same(rows, len(rstd))
	checkRows(len(dy), rows, n, stride)
	checkRows(len(x), rows, n, stride)
	if n == 0 {
		return
	}
	i := 0
	for ; i+2 <= rows; i += 2 {
		first, second := i*stride, (i+1)*stride
		u.normParamGrad2(dw, db, dy[first:][:n], x[first:][:n], dy[second:][:n], x[second:][:n],
			mean[i], rstd[i], mean[i+1], rstd[i+1])
	}
	if i < rows {
		u.normParamGrad(dw, db, dy[i*stride:][:n], x[i*stride:][:n], mean[i], rstd[i])
	}
}

// checkRows panics unless rows of n elements, stride apart, fit a slice of the given length.
func checkRows(length, rows, n, stride int) {
	if rows < 0 || stride < n || rows > 0 && n > 0 && (length < n || (length-n)/stride < rows-1) {
		panic(fmt.Sprintf("vec: %d rows of %d elements, %d apart, in a slice of %d", rows, n, stride, length))
	}
}
