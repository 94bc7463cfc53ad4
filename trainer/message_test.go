package trainer

import (
	"strings"
	"testing"
)

// TestResumeMessageCountsEpochs checks the message of a run that resumes, also if the job
// configures fewer epochs than are done.
func TestResumeMessageCountsEpochs(t *testing.T) {
	for _, c := range []struct {
		epoch, epochs int
		want, not     string
	}{
		{2, 8, "2 of 8 epochs done", "train.epochs"},
		{3, 1, "3 epochs done, train.epochs = 1", "3 of 1"},
	} {
		got := Event{Kind: Started, Step: 171, Epoch: c.epoch, Epochs: c.epochs, Path: "step-171"}.String()
		if !strings.Contains(got, c.want) || strings.Contains(got, c.not) || !strings.Contains(got, "resuming after step 171") {
			t.Errorf("%d of %d epochs: %q", c.epoch, c.epochs, got)
		}
	}
}
