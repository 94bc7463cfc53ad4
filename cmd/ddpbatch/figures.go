package main

import (
	"bufio"
	"encoding/json"
	"os"

	"github.com/ddpbatch/ddpbatch/trainer/metrics"
)

// maxMetricsLine bounds a line of metrics.jsonl; a real one has 200 bytes.
const maxMetricsLine = 1 << 20

// figures takes the newest figures from a run's metrics.jsonl. There may be none
// yet, and the last line may just be written: what cannot be read is left out.
func (s *runStatus) figures(path string) {
	f, err := os.Open(path)
	if err != nil {
		return
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, maxMetricsLine)
	for lines.Scan() {
		var m metrics.Record
		if json.Unmarshal(lines.Bytes(), &m) != nil {
			continue
		}
		switch m.Kind {
		case "train":
			s.Loss = m.Loss
		case "eval":
			s.Accuracy = m.Accuracy
		default:
			continue
		}
		s.Step, s.Epoch = &m.Step, &m.Epoch
	}
}
