package report

import (
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/jobs/rundir"
	"github.com/ddpbatch/ddpbatch/jobs/watch"
)

// The exit code is of the run as it stands: not of a job that was sent after a training was
// done, and cancelled.
func TestExitCodeOfTheState(t *testing.T) {
	for _, tt := range []struct {
		phase watch.Phase
		exit  int
		want  bool
	}{{watch.Done, 0, true}, {watch.Done, 130, false}, {watch.Failed, 4, true}, {watch.Cancelled, 130, true}, {watch.Training, 0, false}} {
		r := &Run{End: &rundir.End{Exit: tt.exit}}
		r.Status.Phase = tt.phase
		if got := strings.Contains(r.state().Text, "Exit code"); got != tt.want {
			t.Errorf("%s with exit code %d: told %v, want %v: %q", tt.phase, tt.exit, got, tt.want, r.state().Text)
		}
	}
}
