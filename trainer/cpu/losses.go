package cpu

import (
	"math"

	"github.com/ddpbatch/ddpbatch/trainer/device"
	"github.com/ddpbatch/ddpbatch/trainer/vec"
)

// lossBlock is the number of elements of a row whose exponentials are summed at a time.
const lossBlock = 4096

// losses is a loss, divided among threads by rows.
type losses struct {
	unit    *vec.Unit
	scratch [][]float32 // one buffer of lossBlock elements per thread
	do      func(j *losses, thread, row int)
	out, x  []float32
	targets []float32
	labels  []int32 // or the output of ArgMax
	cols    int
	rows    int
	scale   float32
}

func (j *losses) plan(threads int) {
	for range threads {
		j.scratch = append(j.scratch, make([]float32, lossBlock))
	}
}

func (j *losses) run(p *pool) {
	p.do(j, j.rows, j.rows*j.cols)
	j.out, j.x, j.targets, j.labels = nil, nil, nil, nil
}

func (j *losses) part(thread, threads int) {
	first, end := share(j.rows, 1, thread, threads)
	for i := first; i < end; i++ {
		j.do(j, thread, i)
	}
}

// CrossEntropy computes the cross-entropy loss of logits.
func (d *Device) CrossEntropy(out device.Tensor, logits device.Matrix, labels device.Tensor, scale float32) {
	sameLength("take the loss of", logits.Rows, out.Len(), labels.Len())
	j := &d.losses
	j.do, j.out, j.x, j.labels = crossEntropyRow, out.Floats(), whole("logits", logits), labels.Ints()
	j.rows, j.cols, j.scale = logits.Rows, logits.Cols, scale
	j.run(&d.pool)
}

func crossEntropyRow(j *losses, thread, i int) {
	row, label := j.x[i*j.cols:(i+1)*j.cols], j.labels[i]
	most := j.unit.Max(row)
	own := float64(row[label]) - float64(most)
	sum := 0.0
	for first := 0; first < len(row); first += lossBlock {
		x := row[first:min(first+lossBlock, len(row))]
		y := j.scratch[thread][:len(x)]
		if j.scale != 0 {
			y = x
		}
		sum += float64(j.unit.ExpSum(y, x, most))
	}
	j.out[i] = float32(math.Log(sum) - own)
	if j.scale != 0 {
		j.unit.Scale(row, row, float32(float64(j.scale)/sum))
		row[label] -= j.scale
	}
}

// SquaredError computes the squared error of predictions.
func (d *Device) SquaredError(out device.Tensor, x device.Matrix, targets device.Tensor, scale float32) {
	sameLength("take the loss of", x.Rows, out.Len())
	sameLength("take the loss of", x.Data.Len(), targets.Len())
	j := &d.losses
	j.do, j.out, j.x, j.targets = squaredErrorRow, out.Floats(), whole("predictions", x), targets.Floats()
	j.rows, j.cols, j.scale = x.Rows, x.Cols, scale
	j.run(&d.pool)
}

func squaredErrorRow(j *losses, _, i int) {
	row, targets := j.x[i*j.cols:(i+1)*j.cols], j.targets[i*j.cols:(i+1)*j.cols]
	sum := 0.0
	for k, v := range row {
		d := v - targets[k]
		sum += float64(d) * float64(d)
		if j.scale != 0 {
			row[k] = 2 * j.scale * d
		}
	}
	j.out[i] = float32(sum)
}

// ArgMax finds the largest element of each row.
func (d *Device) ArgMax(chosen device.Tensor, x device.Matrix) {
	sameLength("choose from", x.Rows, chosen.Len())
	j := &d.losses
	j.do, j.x, j.labels = argMaxRow, whole("what is chosen from", x), chosen.Ints()
	j.rows, j.cols = x.Rows, x.Cols
	j.run(&d.pool)
}

func argMaxRow(j *losses, _, i int) {
	row := j.x[i*j.cols : (i+1)*j.cols]
	best := 0
	for k, v := range row {
		if v > row[best] {
			best = k
		}
	}
	j.labels[i] = int32(best)
}

// CountEqual counts the positions where a and b are equal.
func (d *Device) CountEqual(a, b device.Tensor) int {
	sameLength("compare", a.Len(), b.Len())
	n, other := 0, b.Ints()
	for i, v := range a.Ints() {
		if v == other[i] {
			n++
		}
	}
	return n
}
