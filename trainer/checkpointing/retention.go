package checkpointing

import (
	"math"

	"github.com/ddpbatch/ddpbatch/trainer/checkpoint"
	"github.com/ddpbatch/ddpbatch/trainer/ddp"
)

// Improved reports whether an evaluation with these metrics has the best result so far. If so, it
// stores the result in s.Best.
func (s *Saver) Improved(metrics map[string]float64) bool {
	now, measured := metrics[s.Retention.Best]
	if s.Retention.Best == "" || !measured || math.IsNaN(now) {
		return false
	}
	if math.IsNaN(s.Best) || now != s.Best && (now > s.Best) == s.Retention.Highest {
		s.Best = now
		return true
	}
	return false
}

// CheckSpace returns an error if the next save would fail: if it would reject the directory, or if
// the disk is too full. The error scarce is a warning: the disk has too little space for all
// checkpoints to keep.
func (s *Saver) CheckSpace() (scarce, err error) {
	if err := checkpoint.CheckPrivate(s.Dir); err != nil {
		return nil, err
	}
	entries, err := checkpoint.List(s.Dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if e.Manifest == nil {
			continue
		}
		if err := checkpoint.CheckSpace(s.Dir, e.Manifest, 1); err != nil {
			return nil, err
		}
		more := s.Retention.Newest + 1 - len(entries) // a new one is written before an old one is removed
		if s.State.Sharder.Strategy != ddp.DDP {
			more++ // at the end, the parts and the consolidated files exist at the same time
		}
		return checkpoint.CheckSpace(s.Dir, e.Manifest, more), nil
	}
	return nil, nil
}
