package report

import (
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/jobs/rundir"
	"github.com/ddpbatch/ddpbatch/jobs/watch"
)

// TestExitCodeOfTheState checks that the exit code belongs to the run: it must not be from a
// job that was submitted after the training was complete, and then canceled.
func TestExitCodeOfTheState(t *testing.T) {
	for _, tt := range []struct {
		phase watch.Phase
		exit  int
		want  bool
	}{{watch.Done, 0, true}, {watch.Done, 130, false}, {watch.Failed, 4, true}, {watch.Cancelled, 130, true}, {watch.Training, 0, false}} {
		r := &Run{End: &rundir.End{Exit: tt.exit}}
		r.Status.Phase = tt.phase
		if got := strings.Contains(r.describeState().Text, "Exit code"); got != tt.want {
			t.Errorf("%s with exit code %d: told %v, want %v: %q", tt.phase, tt.exit, got, tt.want, r.describeState().Text)
		}
	}
}
