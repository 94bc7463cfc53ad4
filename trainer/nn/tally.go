package nn

import "github.com/ddpbatch/ddpbatch/trainer/device"

// tally computes the loss of a batch from the losses of its rows.
type tally struct {
	device device.Device
	losses device.Tensor // of each row
	chosen device.Tensor // Int32: prediction for each row
	rows   int           // of the last batch
	parts  int           // divisor of the last batch's sum of losses
}

func (t *tally) plan(d device.Device, rows int) {
	t.device = d
	t.losses = d.Alloc(device.Float32, rows)
	t.chosen = d.Alloc(device.Int32, rows)
}

// loss returns the loss of a batch with the given numbers of rows and parts, or 0 in training if
// pass.DeferLoss is set.
func (t *tally) loss(rows, parts int, pass Pass) float64 {
	t.rows, t.parts = rows, parts
	if pass.Train && pass.DeferLoss {
		return 0
	}
	last, _ := t.lossRows()
	return meanLoss(device.Floats(t.device, last), parts)
}

// lossRows returns the losses of the last batch's rows, and its number of parts.
func (t *tally) lossRows() (rows device.Tensor, parts int) { return t.losses.Slice(0, t.rows), t.parts }

// meanLoss returns a batch's loss: the losses of its rows, summed from first to last, divided by parts.
func meanLoss(rows []float32, parts int) float64 {
	total := 0.0
	for _, v := range rows {
		total += float64(v)
	}
	return total / float64(parts)
}

// classify writes the losses of the rows starting at first. If scale is not 0, it replaces their
// logits by their gradient times scale. Otherwise it returns the number of rows whose largest logit
// is at their label.
func (t *tally) classify(first int, logits device.Matrix, labels device.Tensor, scale float32) (correct int) {
	if scale == 0 {
		chosen := t.chosen.Slice(0, logits.Rows)
		t.device.ArgMax(chosen, logits)
		correct = t.device.CountEqual(chosen, labels)
	}
	t.device.CrossEntropy(t.losses.Slice(first, first+logits.Rows), logits, labels, scale)
	return correct
}
