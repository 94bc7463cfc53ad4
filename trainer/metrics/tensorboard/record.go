package tensorboard

import "github.com/ddpbatch/ddpbatch/trainer/metrics"

// FromRecord returns the values of a line of metrics.jsonl, with tags that are grouped by its
// kind.
func FromRecord(m metrics.Record) []Scalar {
	out := []Scalar{{Tag: m.Kind + "/epoch", Value: float64(m.Epoch)}}
	for _, f := range []struct {
		name  string
		value *metrics.Number
	}{
		{"loss", m.Loss}, {"accuracy", m.Accuracy}, {"lr", m.LR}, {"samples_per_s", m.SamplesPerSecond}, {"tokens_per_s", m.TokensPerSecond},
		{"step_ms", m.StepMillis}, {"comm_ms", m.CommMillis}, {"comm_hidden", m.CommHidden}, {"slowest_ratio", m.SlowestRatio},
	} {
		if f.value != nil {
			out = append(out, Scalar{Tag: m.Kind + "/" + f.name, Value: float64(*f.value)})
		}
	}
	return out
}
