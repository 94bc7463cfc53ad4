package nn

import "github.com/ddpbatch/ddpbatch/trainer/device"

// tally adds up the losses of a batch.
type tally struct {
	device device.Device
	losses device.Tensor // of each row
	chosen device.Tensor // Int32, of each row
}

func (t *tally) plan(d device.Device, rows int) {
	t.device = d
	t.losses = d.Alloc(device.Float32, rows)
	t.chosen = d.Alloc(device.Int32, rows)
}

// sum is the sum of the losses of the first rows, from first to last.
func (t *tally) sum(rows int) float64 {
	total := 0.0
	for _, v := range device.Floats(t.device, t.losses.Slice(0, rows)) {
		total += float64(v)
	}
	return total
}

// classify writes the losses of the rows from first on, whose logits become their
// gradient times scale unless that is 0. Without it, it returns how many of them
// have their largest logit at their label.
func (t *tally) classify(first int, logits device.Matrix, labels device.Tensor, scale float32) (correct int) {
	if scale == 0 {
		chosen := t.chosen.Slice(0, logits.Rows)
		t.device.ArgMax(chosen, logits)
		correct = t.device.CountEqual(chosen, labels)
	}
	t.device.CrossEntropy(t.losses.Slice(first, first+logits.Rows), logits, labels, scale)
	return correct
}
