//go:build cuda

package engine

import (
	"fmt"
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
	d.sumPartials(total, kernel, a, b, chunks{n: n, count: 1})
	d.flush()
	d.fetch(unsafe.Slice((*byte)(unsafe.Pointer(&sum)), 8), total)
	return sum
}

// chunks describes the sums of a reduction: one for each of count chunks of n elements, pitch
// elements apart, added to their previous values or not.
type chunks struct {
	n, count, pitch int
	add             bool
}

// sumPartials sums the partial results of a kernel over the chunks of a, and of b unless that is 0.
func (d *Device) sumPartials(to driver.Ptr, kernel string, a, b driver.Ptr, c chunks) {
	sums := d.scratchFor(scratchSums, (partials*c.count+1)*8)
	l := driver.Launch{Grid: driver.Dim{X: min((c.n+threads-1)/threads, partials), Y: c.count}, Block: driver.Dim{X: threads}}
	d.args.Reset().Ptr(sums).Ptr(a)
	if b != 0 {
		d.args.Ptr(b)
	}
	d.args.Int64(int64(c.n))
	d.launch(kernel, l)
	d.args.Reset().Ptr(to).Ptr(sums).Int64(int64(l.Grid.X)).Int64(int64(c.pitch)).Uint32(flag(c.add))
	d.launch("sum_partial", blocks(c.count))
}

// SumSquares returns the sum of the squares of x's elements: up to 512 blocks of 256 threads process
// the elements in a grid-stride loop, and their sums are added by halves.
func (d *Device) SumSquares(x device.Tensor) float64 {
	if x.Len() == 0 {
		return 0
	}
	defer d.enter("sum_squares", x.Len()).Leave()
	return d.reduce("sum_squares", floats(x), 0, x.Len())
}

// ChunkSquares computes sums of squares with two launches for all chunks.
func (d *Device) ChunkSquares(sums device.Tensor, pitch int, x device.Tensor, count int, add bool) {
	n := x.Len() / count
	if n == 0 || n*count != x.Len() || (count-1)*pitch >= sums.Len() {
		panic(fmt.Sprintf("engine: squares of %d chunks of %d elements to %d sums", count, x.Len(), sums.Len()))
	}
	defer d.enter("sum_squares", x.Len()).Leave()
	d.sumPartials(typed(sums, device.Float64), "sum_squares", floats(x), 0, chunks{n, count, pitch, add})
}

// Normalize divides a tensor by its norm, without a wait.
func (d *Device) Normalize(y, x device.Tensor, eps float32) {
	n := x.Len()
	sameLength("normalize", n, y.Len())
	if n == 0 {
		return
	}
	defer d.enter("normalize", n).Leave()
	total := d.scratchFor(scratchSums, (partials+1)*8) + partials*8
	d.sumPartials(total, "sum_squares", floats(x), 0, chunks{n: n, count: 1})
	d.args.Reset().Ptr(floats(y)).Ptr(floats(x)).Ptr(total).Float(eps).Int64(int64(n))
	d.launch("normalize", gridFor(n))
}

// Checksum computes partial checksums on the GPU and adds them on the host.
func (d *Device) Checksum(x device.Tensor) uint64 {
	if x.Len() == 0 {
		return 0
	}
	defer d.enter("checksum", x.Len()).Leave()
	l := driver.Launch{Grid: driver.Dim{X: min((x.Len()+threads-1)/threads, partials)}, Block: driver.Dim{X: threads}}
	sums := d.scratchFor(scratchSums, 8*partials)
	d.args.Reset().Ptr(sums).Ptr(floats(x)).Int64(int64(x.Len()))
	d.launch("checksum", l)
	d.flush()
	var host [partials]uint64
	d.fetch(unsafe.Slice((*byte)(unsafe.Pointer(&host)), 8*l.Grid.X), sums)
	total := uint64(0)
	for _, v := range host[:l.Grid.X] {
		total += v
	}
	return total
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

// factors is struct Factors of updates.cu.
type factors struct {
	rate, beta1, beta2, new1, new2, keep, decay, correction, eps, gradScale float32
	nesterov, first, idle                                                   uint32
}

func factorsOf(f device.Factors) factors {
	return factors{f.Rate, f.Beta1, f.Beta2, f.New1, f.New2, f.Keep, f.Decay, f.Correction, f.Eps, f.GradScale, flag(f.Nesterov), flag(f.First), 0}
}

// updateKernels holds the kernel of each update rule. All have the same parameters.
var updateKernels = map[device.Rule]string{
	device.RuleSGD: "sgd", device.RuleAdam: "adam", device.RuleLion: "lion",
	device.RuleMuonMomentum: "muon_momentum", device.RuleMuonStep: "muon_step",
}

// HasRule reports whether there is a kernel for a rule.
func (d *Device) HasRule(r device.Rule) bool { return updateKernels[r] != "" }

// Update runs a step of a rule.
func (d *Device) Update(r device.Rule, a device.Arrays, f device.Factors) {
	d.launchUpdate(r, a, factorsOf(f), 0)
}

// launchUpdate launches an update with factors f, or with the factors at a device address if that is
// not 0.
func (d *Device) launchUpdate(r device.Rule, a device.Arrays, f factors, at driver.Ptr) {
	kernel, n := updateKernels[r], a.Value.Len()
	if kernel == "" {
		panic(fmt.Sprintf("engine: unknown update rule %q", r))
	}
	sameLength("update", n, a.Grad.Len())
	if a.Rounded.Len() > 0 {
		sameLength("update", n, a.Rounded.Len())
	}
	var state [len(a.State)]driver.Ptr
	for i, s := range a.State {
		if s.Len() > 0 {
			sameLength("update", n, s.Len())
			state[i] = floats(s)
		}
	}
	if n == 0 {
		return
	}
	defer d.enter(kernel, n).Leave()
	if at == 0 {
		at = graphParams(d, &f)
	}
	d.args.Reset().Ptr(floats(a.Value)).Ptr(floats(a.Grad)).Ptr(state[0]).Ptr(state[1]).Ptr(halves(a.Rounded))
	driver.Struct(&d.args, &f)
	d.args.Ptr(at).Int64(int64(n))
	d.launch(kernel, gridFor(n))
}
