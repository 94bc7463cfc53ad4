package nn

import "github.com/ddpbatch/ddpbatch/trainer/device"

// tally adds up the losses of a batch.
type tally struct {
	device device.Device
	losses device.Tensor // of each row
	chosen device.Tensor // Int32, of each row
	rows   int           // of the last batch
	parts  int           // that its loss is the mean of
}

func (t *tally) plan(d device.Device, rows int) {
	t.device = d
	t.losses = d.Alloc(device.Float32, rows)
	t.chosen = d.Alloc(device.Int32, rows)
}

// loss is that of a batch of so many rows with so many parts, or 0 if the pass leaves it
// for Losses to tell.
func (t *tally) loss(rows, parts int, pass Pass) float64 {
	t.rows, t.parts = rows, parts
	if pass.Train && pass.Late {
		return 0
	}
	last, _ := t.of()
	return Mean(device.Floats(t.device, last), parts)
}

// of is the losses of the last batch's rows, and its parts.
func (t *tally) of() (rows device.Tensor, parts int) { return t.losses.Slice(0, t.rows), t.parts }

// Mean is a batch's loss: those of its rows, added up from first to last, over the parts.
func Mean(rows []float32, parts int) float64 {
	total := 0.0
	for _, v := range rows {
		total += float64(v)
	}
	return total / float64(parts)
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
