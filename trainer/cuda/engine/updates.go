//go:build cuda

package engine

import (
	"unsafe"

	"github.com/ddpbatch/ddpbatch/trainer/cuda/driver"
	"github.com/ddpbatch/ddpbatch/trainer/device"
)

// partials is how many blocks have a part of a reduction, whatever the GPU: the order
// of additions follows from it.
const partials = 512

// reduce adds up the partial results of a kernel, and waits for the sum. d.args has
// the kernel's arguments but for the first.
func (d *Device) reduce(kernel string, a, b driver.Ptr, n int) float64 {
	sums := d.room(scratchSums, (partials+1)*8)
	l := driver.Launch{Grid: driver.Dim{X: min((n+threads-1)/threads, partials)}, Block: driver.Dim{X: threads}}
	d.args.Reset().Ptr(sums).Ptr(a)
	if b != 0 {
		d.args.Ptr(b)
	}
	d.args.Int64(int64(n))
	d.launch(kernel, l)
	total := sums + partials*8
	d.args.Reset().Ptr(total).Ptr(sums).Int64(int64(l.Grid.X))
	d.launch("sum_partial", blocks(1))
	d.flush()
	for i := range d.staging.halves { // what was written may be on its way in the same memory
		d.check(d.staging.halves[i].read.Synchronize())
	}
	part := d.staging.host.Part(0, 8)
	d.check(d.stream.Download(part, total))
	d.check(d.stream.Synchronize())
	return *(*float64)(unsafe.Pointer(&part.Bytes()[0]))
}

// SumSquares is the sum of the squares of x's elements: 512 blocks of 256 threads take
// elements in turns, and their sums are added by halves.
func (d *Device) SumSquares(x device.Tensor) float64 {
	if x.Len() == 0 {
		return 0
	}
	defer d.enter("sum_squares", x.Len()).Leave()
	return d.reduce("sum_squares", floats(x), 0, x.Len())
}

// CountEqual counts places that agree.
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
	nesterov, first                uint32
}

// SGD updates value and buffer.
func (d *Device) SGD(value, grad, buffer device.Tensor, f device.SGDFactors) {
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
	factors := sgdFactors{f.LR, f.Momentum, f.Decay, f.GradScale, flag(f.Nesterov), flag(f.First)}
	live := live(d, &factors)
	d.args.Reset().Ptr(floats(value)).Ptr(floats(grad)).Ptr(momentum)
	driver.Struct(&d.args, &factors)
	d.args.Ptr(live).Int64(int64(n))
	d.launch("sgd", over(n))
}

// adamFactors is struct AdamFactors of updates.cu.
type adamFactors struct {
	beta1, beta2, new1, new2, keep, decay, correction, eps, rate, gradScale float32
}

// Adam updates value, average and squares.
func (d *Device) Adam(value, grad, average, squares device.Tensor, f device.AdamFactors) {
	n := value.Len()
	sameLength("update", n, grad.Len(), average.Len(), squares.Len())
	if n == 0 {
		return
	}
	defer d.enter("adam", n).Leave()
	factors := adamFactors{f.Beta1, f.Beta2, f.New1, f.New2, f.Keep, f.Decay, f.Correction, f.Eps, f.Rate, f.GradScale}
	live := live(d, &factors)
	d.args.Reset().Ptr(floats(value)).Ptr(floats(grad)).Ptr(floats(average)).Ptr(floats(squares))
	driver.Struct(&d.args, &factors)
	d.args.Ptr(live).Int64(int64(n))
	d.launch("adam", over(n))
}
