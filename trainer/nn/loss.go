package nn

import (
	"fmt"
	"math"
)

// CrossEntropy returns the mean over the rows of logits of the negative logarithm
// of the softmax probability of their labels, as F.cross_entropy. It writes the
// gradient with respect to the logits to dlogits, which may share their memory;
// without Data there it writes none. Labels are 0 to Cols-1, one per row.
func CrossEntropy(logits Matrix, labels []int32, dlogits Matrix) float64 {
	logits.check("logits", logits.Cols)
	if len(labels) != logits.Rows {
		panic(fmt.Sprintf("nn: %d labels for %d rows of logits", len(labels), logits.Rows))
	}
	if dlogits.Data != nil {
		dlogits.check("gradient of logits", logits.Cols)
	}
	total, cols := 0.0, logits.Cols
	scale := 1 / float64(logits.Rows)
	for i, label := range labels {
		row := logits.Data[i*cols : (i+1)*cols]
		top := row[0]
		for _, v := range row {
			top = max(top, v) // NaN if any is
		}
		own, sum := float64(row[label]-top), 0.0
		for _, v := range row {
			sum += math.Exp(float64(v - top))
		}
		total += math.Log(sum) - own
		if dlogits.Data == nil {
			continue
		}
		grad := dlogits.Data[i*cols : (i+1)*cols]
		for j, v := range row {
			p := math.Exp(float64(v-top)) / sum
			if j == int(label) {
				p--
			}
			grad[j] = float32(p * scale)
		}
	}
	return total * scale
}

// MSE returns the mean over all elements of the squared difference of pred and
// targets, as F.mse_loss. It writes the gradient with respect to pred to dpred,
// which may share its memory; without Data there it writes none. Targets are rows
// like those of pred.
func MSE(pred Matrix, targets []float32, dpred Matrix) float64 {
	pred.check("prediction", pred.Cols)
	if len(targets) != len(pred.Data) {
		panic(fmt.Sprintf("nn: %d targets for %d predictions", len(targets), len(pred.Data)))
	}
	if dpred.Data != nil {
		dpred.check("gradient of prediction", pred.Cols)
	}
	total := 0.0
	scale := float32(2 / float64(len(targets)))
	for i, v := range pred.Data {
		d := v - targets[i]
		total += float64(d) * float64(d)
		if dpred.Data != nil {
			dpred.Data[i] = scale * d
		}
	}
	return total / float64(len(targets))
}

// Correct returns the number of rows of logits whose largest element is at their
// label; of equal ones the first counts.
func Correct(logits Matrix, labels []int32) int {
	logits.check("logits", logits.Cols)
	correct := 0
	for i, label := range labels {
		row := logits.Data[i*logits.Cols : (i+1)*logits.Cols]
		best := 0
		for j, v := range row {
			if v > row[best] {
				best = j
			}
		}
		if best == int(label) {
			correct++
		}
	}
	return correct
}
