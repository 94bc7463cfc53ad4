package cpu

import (
	"github.com/ddpbatch/ddpbatch/trainer/device"
	"github.com/ddpbatch/ddpbatch/trainer/vec"
)

// update is an optimizer step, divided among threads at cache lines.
type update struct {
	unit                         *vec.Unit
	value, grad, average, second []float32
	isAdam                       bool
	adam                         vec.AdamFactors
	sgd                          vec.SGDFactors
}

// SGD runs an SGD step.
func (d *Device) SGD(value, grad, buffer device.Tensor, f device.SGDFactors) {
	j := &d.update
	*j = update{unit: j.unit, value: value.Floats(), grad: grad.Floats(), sgd: vec.SGDFactors(f)}
	if buffer.Len() > 0 {
		j.average = buffer.Floats()
	}
	j.run(&d.pool)
}

// Adam runs an Adam or AdamW step.
func (d *Device) Adam(value, grad, average, squares device.Tensor, f device.AdamFactors) {
	sameLength("update", value.Len(), average.Len(), squares.Len())
	j := &d.update
	*j = update{unit: j.unit, value: value.Floats(), grad: grad.Floats(), average: average.Floats(), second: squares.Floats(),
		isAdam: true, adam: vec.AdamFactors(f)}
	j.run(&d.pool)
}

func (j *update) run(p *pool) {
	sameLength("update", len(j.value), len(j.grad))
	p.do(j, (len(j.value)+grain-1)/grain, len(j.value))
	*j = update{unit: j.unit}
}

func (j *update) part(thread, threads int) {
	first, end := share(len(j.value), grain, thread, threads)
	value, grad := j.value[first:end], j.grad[first:end]
	if j.isAdam {
		j.unit.Adam(value, grad, j.average[first:end], j.second[first:end], j.adam)
		return
	}
	var buffer []float32
	if j.average != nil {
		buffer = j.average[first:end]
	}
	j.unit.SGD(value, grad, buffer, j.sgd)
}
