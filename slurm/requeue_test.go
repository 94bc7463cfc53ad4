package slurm

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestRequeue(t *testing.T) {
	fake := newFakeSlurm(t, map[string]string{"scontrol": record})
	for _, id := range []string{"12", "18_3"} {
		if err := fake.Requeue(t.Context(), id, 0); err != nil {
			t.Error(err)
		}
	}
	for _, id := range []string{"", "--all", "18_[1-2]"} {
		if err := fake.Requeue(t.Context(), id, 0); err == nil {
			t.Errorf("%q was requeued", id)
		}
	}
	want := [][]string{{"scontrol", "requeue", "12"}, {"scontrol", "requeue", "18_3"}}
	if got := fake.calls(t); !slices.EqualFunc(got, want, slices.Equal) {
		t.Errorf("called %q, want %q", got, want)
	}
}

// Slurm ends the batch script's processes when it requeues the job, also the scontrol
// that asked. Only what Slurm says of the job afterwards counts.
func TestRequeueUntilSlurmAnswers(t *testing.T) {
	const (
		runs     = "JobState=RUNNING Restarts=1"
		requeued = "JobState=COMPLETING Restarts=2"
		gone     = "JobState=CANCELLED Restarts=1"
		first    = `test -e "$FAKE/first" || { : >"$FAKE/first"; kill -TERM $$; }; `
		show     = `/bin/cat "$FAKE/job"`
		accepted = `echo "` + requeued + `" >"$FAKE/job"` + "\n"
		dies     = `kill -TERM $$`
		silent   = `echo "slurm_requeue error: Unable to contact slurm controller (connect failure)" >&2; exit 1`
		refuses  = `echo "Requested operation is presently disabled for job 7" >&2; exit 1`
	)
	for name, tt := range map[string]struct {
		job           string
		requeue, show string // what scontrol does
		asked         int
		err           string // empty: it is requeued
	}{
		"scontrol is killed after Slurm has taken it":  {job: runs, requeue: accepted + dies, show: show, asked: 1},
		"so is the next one, which looks at the job":   {job: runs, requeue: accepted + dies, show: first + show, asked: 1},
		"scontrol is killed before Slurm has taken it": {job: runs, requeue: first + accepted, show: show, asked: 2},
		"the controller was away":                      {job: runs, requeue: `test -e "$FAKE/first" || { : >"$FAKE/first"; ` + silent + `; }; ` + accepted, show: show, asked: 2},
		"it is refused as it was taken before":         {job: requeued, requeue: refuses, show: show, asked: 1},
		"it is refused":                                {job: runs, requeue: refuses, show: show, asked: 1, err: "presently disabled"},
		"the job was cancelled meanwhile":              {job: gone, requeue: dies, show: show, asked: 1, err: "signal: terminated"},
		"Slurm does not know the job":                  {job: runs, requeue: refuses, show: `echo "slurm_load_jobs error: Invalid job id specified" >&2; exit 1`, asked: 1, err: "presently disabled"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fake := newFakeSlurm(t, map[string]string{"scontrol": record + "if test $1 = show; then\n" + tt.show + "\nelse\n" + tt.requeue + "\nfi"})
			if err := os.WriteFile(filepath.Join(fake.dir, "job"), []byte(tt.job+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			err := fake.Requeue(t.Context(), "7", 1)
			if (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) || errors.As(err, new(*UnansweredError)) {
				t.Errorf("error %v, want %q", err, tt.err)
			}
			asked := 0
			for _, call := range fake.calls(t) {
				if call[1] == "requeue" {
					asked++
				}
			}
			if asked != tt.asked {
				t.Errorf("asked %d times, want %d", asked, tt.asked)
			}
		})
	}
	t.Run("no answer at all", func(t *testing.T) {
		t.Parallel()
		fake := newFakeSlurm(t, map[string]string{"scontrol": dies})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := fake.Requeue(ctx, "7", 1); !errors.As(err, new(*UnansweredError)) {
			t.Errorf("error %v, want that Slurm has not answered", err)
		}
	})
}
