package slurm

import (
	"context"
	"fmt"
	"strings"
)

// Preemption is whether Slurm takes a job's nodes away for another job.
type Preemption string

const (
	NotPreempted Preemption = ""
	// Preempted is a job that has been told to go and still has its nodes: it runs in
	// the partition's GraceTime. If it ends by itself, 22.05 takes that for the job's
	// end and does not requeue it.
	Preempted Preemption = "preempted"
	// TakenBack is a job that Slurm itself is putting back into the queue, or ending.
	TakenBack Preemption = "taken back"
)

// Preemption asks the controller whether a job, or an element of an array ("18_3"),
// is being preempted. Restarts is how often it had been requeued when it started.
func (c Client) Preemption(ctx context.Context, id string, restarts int) (Preemption, error) {
	if err := checkIDs([]string{id}); err != nil {
		return NotPreempted, fmt.Errorf("asking about the preemption of %w", err)
	}
	out, err := c.run(ctx, "", "scontrol", "show", "job", "--oneliner", id)
	if err != nil {
		return NotPreempted, fmt.Errorf("asking about the preemption of job %s: %w", id, err)
	}
	return parsePreemption(out, restarts), nil
}

// parsePreemption reads what scontrol shows of a job. The command line and the names
// in it may hold anything; the fields that count come before them, and the first of
// a name is taken.
func parsePreemption(out string, restarts int) Preemption {
	fields := map[string]string{}
	for word := range strings.FieldsSeq(out) {
		key, value, ok := strings.Cut(word, "=")
		if _, twice := fields[key]; ok && !twice {
			fields[key] = told(value)
		}
	}
	// PreemptTime goes with the requeue; while it stands, and the job runs, its time
	// has come.
	switch running := fields["JobState"] == string(StateRunning); {
	case running && fields["PreemptTime"] != "":
		return Preempted
	case !running && (fields["PreemptTime"] != "" || numberOrUnknown(fields["Restarts"]) > restarts):
		return TakenBack
	}
	return NotPreempted
}
