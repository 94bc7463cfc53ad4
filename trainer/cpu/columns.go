package cpu

import (
	"fmt"

	"github.com/ddpbatch/ddpbatch/trainer/device"
	"github.com/ddpbatch/ddpbatch/trainer/vec"
)

// grain is the number of columns in a unit of work: whole cache lines.
const grain = 16

// columns sums over rows, divided among threads by columns.
type columns struct {
	unit       *vec.Unit
	dst        []float32
	x          []float32
	rows, cols int
	stride     int
	accumulate bool
}

// ColumnSum sums the rows of x.
func (d *Device) ColumnSum(dst device.Tensor, x device.Matrix, accumulate bool) {
	if dst.Len() != x.Cols || x.ColStride != 1 {
		panic(fmt.Sprintf("cpu: sum of the columns of a %dx%d matrix with column stride %d in %d elements", x.Rows, x.Cols, x.ColStride, dst.Len()))
	}
	j := &d.columns
	j.dst, j.x, j.rows, j.cols, j.stride, j.accumulate = dst.Floats(), x.Data.Floats(), x.Rows, x.Cols, x.RowStride, accumulate
	d.pool.do(j, (x.Cols+grain-1)/grain, x.Rows*x.Cols)
	j.dst, j.x = nil, nil
}

func (j *columns) part(thread, threads int) {
	first, end := share(j.cols, grain, thread, threads)
	if first < end {
		j.unit.ColumnSum(j.dst[first:end], j.x[first:], j.rows, j.stride, j.accumulate)
	}
}
