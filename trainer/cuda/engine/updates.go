//go:build cuda

package engine

import (
	"unsafe"

	"github.com/ddpbatch/ddpbatch/trainer/cuda/driver"
	"github.com/ddpbatch/ddpbatch/trainer/device"
)

// partials is the maximum number of partial results of a reduction on every GPU, because the order
// of additions depends on it.
const partials = 512

// reduce is like sumPartials, but waits for the sum and returns it.
func (d *Device) reduce(kernel string, a, b driver.Ptr, n int) (sum float64) {
	total := d.scratchFor(scratchSums, (partials+1)*8) + partials*8
	d.sumPartials(total, kernel, a, b, n)
	d.flush()
	d.fetch(unsafe.Slice((*byte)(unsafe.Pointer(&sum)), 8), total)
	return sum
}

// sumPartials sums the partial results of a kernel over n elements of a, and of b unless that is 0.
func (d *Device) sumPartials(total driver.Ptr, kernel string, a, b driver.Ptr, n int) {
	sums := d.scratchFor(scratchSums, (partials+1)*8)
	l := driver.Launch{Grid: driver.Dim{X: min((n+threads-1)/threads, partials)}, Block: driver.Dim{X: threads}}
	d.args.Reset().Ptr(sums).Ptr(a)
	if b != 0 {
		d.args.Ptr(b)
	}
	d.args.Int64(int64(n))
	d.launch(kernel, l)
	d.args.Reset().Ptr(total).Ptr(sums).Int64(int64(l.Grid.X))
	d.launch("sum_partial", blocks(1))
}

// SumSquares returns the sum of the squares of x's elements: 512 blocks of 256 threads process the
// elements in a grid-stride loop, and their sums are added by halves.
func (d *Device) SumSquares(x device.Tensor) float64 {
	if x.Len() == 0 {
		return 0
	}
	defer d.enter("sum_squares", x.Len()).Leave()
	return d.reduce("sum_squares", floats(x), 0, x.Len())
}

// CountEqual counts the positions where a and b are equal.
func (d *Device) CountEqual(a, b device.Tensor) int {
	sameLength("compare", a.Len(), b.Len())
	if a.Len() == 0 {
		return 0
	}
	defer d.enter("count_equal", a.Len()).Leave()
	return int(d.reduce("count_equal", ints(a), ints(b), a.Len()))
}

// sgdFactors is struct SGDFactors of updates.cu.
type sgdFactors struct {
	lr, momentum, decay, gradScale float32
	nesterov, first, idle          uint32
}

func sgdFactorsOf(f device.SGDFactors) sgdFactors {
	return sgdFactors{f.LR, f.Momentum, f.Decay, f.GradScale, flag(f.Nesterov), flag(f.First), 0}
}

// SGD updates value and buffer.
func (d *Device) SGD(value, grad, buffer device.Tensor, f device.SGDFactors) {
	d.launchSGD(value, grad, buffer, sgdFactorsOf(f), 0, true)
}

// launchSGD launches an SGD update with factors f, or with the factors at a device address if that
// is not 0. If decays is false, weight decay is not applied.
func (d *Device) launchSGD(value, grad, buffer device.Tensor, f sgdFactors, at driver.Ptr, decays bool) {
	n := value.Len()
	sameLength("update", n, grad.Len())
	var momentum driver.Ptr
	if buffer.Len() > 0 {
		sameLength("update", n, buffer.Len())
		momentum = floats(buffer)
	}
	if n == 0 {
		return
	}
	defer d.enter("sgd", n).Leave()
	if at == 0 {
		at = graphParams(d, &f)
	}
	d.args.Reset().Ptr(floats(value)).Ptr(floats(grad)).Ptr(momentum)
	driver.Struct(&d.args, &f)
	d.args.Ptr(at).Uint32(flag(decays)).Int64(int64(n))
	d.launch("sgd", gridFor(n))
}

// adamFactors is struct AdamFactors of updates.cu.
type adamFactors struct {
	beta1, beta2, new1, new2, keep, decay, correction, eps, rate, gradScale float32
	idle                                                                    uint32
}

func adamFactorsOf(f device.AdamFactors) adamFactors {
	return adamFactors{f.Beta1, f.Beta2, f.New1, f.New2, f.Keep, f.Decay, f.Correction, f.Eps, f.Rate, f.GradScale, 0}
}

// Adam updates value, average, and squares.
func (d *Device) Adam(value, grad, average, squares device.Tensor, f device.AdamFactors) {
	d.launchAdam(value, grad, average, squares, adamFactorsOf(f), 0, true)
}

// launchAdam launches an Adam update with factors f, or with the factors at a device address if
// that is not 0. If decays is false, weight decay is not applied.
func (d *Device) launchAdam(value, grad, average, squares device.Tensor, f adamFactors, at driver.Ptr, decays bool) {
	n := value.Len()
	sameLength("update", n, grad.Len(), average.Len(), squares.Len())
	if n == 0 {
		return
	}
	defer d.enter("adam", n).Leave()
	if at == 0 {
		at = graphParams(d, &f)
	}
	d.args.Reset().Ptr(floats(value)).Ptr(floats(grad)).Ptr(floats(average)).Ptr(floats(squares))
	driver.Struct(&d.args, &f)
	d.args.Ptr(at).Uint32(flag(decays)).Int64(int64(n))
	d.launch("adam", gridFor(n))
}
