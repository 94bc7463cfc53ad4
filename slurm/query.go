package slurm

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// State returns what Slurm tells about the jobs, one answer for each id, in
// order.
//
// One squeue call asks for all of them. A job that is done or gone is then looked
// up by scontrol, which remembers it for MinJobAge (300 s by default), and one
// that is gone there too by sacct, on clusters that keep accounts. What nobody
// knows is [StateUnknown]: a job that ended long ago, or that never was.
// An error means that Slurm did not answer.
func (c Client) State(ctx context.Context, ids ...string) ([]JobState, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	for _, id := range ids {
		if !isID(id) {
			return nil, fmt.Errorf("asking for the state of job %q: an id is a number", id)
		}
	}
	known, err := c.squeue(ctx, ids)
	if err != nil {
		return nil, fmt.Errorf("asking for the state of job %s: %w", strings.Join(ids, ","), err)
	}
	var gone []string
	for _, id := range ids {
		if j, ok := known[id]; ok && !j.Done() {
			continue
		}
		j, ok, err := c.scontrolJob(ctx, id)
		if err != nil {
			return nil, fmt.Errorf("asking for the state of job %s: %w", id, err)
		}
		if ok {
			known[id] = j
		} else if _, ok := known[id]; !ok {
			gone = append(gone, id)
		}
	}
	if len(gone) > 0 {
		accounts, err := c.sacct(ctx, gone)
		if err != nil {
			return nil, fmt.Errorf("asking for the state of job %s: %w", strings.Join(gone, ","), err)
		}
		for id, j := range accounts {
			known[id] = j
		}
	}
	states := make([]JobState, len(ids))
	for i, id := range ids {
		j, ok := known[id]
		if !ok {
			j = JobState{ID: id, State: StateUnknown, Reason: "Slurm does not know this job, or has forgotten it", Restarts: -1}
		}
		states[i] = j
	}
	return states, nil
}

// squeueFormat is id, state, reason, nodes, elapsed, start, end and name. The
// name is last because it alone may hold the separator.
const squeueFormat = "%i|%T|%r|%N|%M|%S|%e|%j"

func (c Client) squeue(ctx context.Context, ids []string) (map[string]JobState, error) {
	out, err := c.run(ctx, "", "squeue", "--noheader", "--states=all", "--jobs="+strings.Join(ids, ","), "--format="+squeueFormat)
	if err != nil && !unknownJob(err) {
		return nil, err
	}
	return parseSqueue(out, ids), nil
}

// scontrolJob asks for one job; false where the controller has forgotten it.
func (c Client) scontrolJob(ctx context.Context, id string) (JobState, bool, error) {
	out, err := c.run(ctx, "", "scontrol", "show", "job", id)
	if err != nil {
		if unknownJob(err) {
			err = nil
		}
		return JobState{}, false, err
	}
	j, ok := parseScontrolJob(out, id)
	return j, ok, nil
}

// sacctFormat is like squeueFormat, with the exit code and without a reason.
const sacctFormat = "JobIDRaw,State,ExitCode,NodeList,Elapsed,Start,End,JobName"

// sacct asks the accounts; nothing where the cluster keeps none.
func (c Client) sacct(ctx context.Context, ids []string) (map[string]JobState, error) {
	out, err := c.run(ctx, "", "sacct", "--noheader", "--parsable2", "--allocations", "--jobs="+strings.Join(ids, ","), "--format="+sacctFormat)
	if err != nil {
		var failed *CommandError
		if errors.As(err, &failed) && strings.Contains(failed.Stderr, "accounting storage is disabled") {
			return nil, nil
		}
		return nil, err
	}
	return parseSacct(out, ids), nil
}

// unknownJob says whether a program failed only because Slurm has no such job.
func unknownJob(err error) bool {
	var failed *CommandError
	return errors.As(err, &failed) && strings.Contains(failed.Stderr, "Invalid job id specified")
}
