package slurm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// maxIDsPerCall keeps --jobs under the 128 KiB that Linux allows one argument: an
// id has 10 digits at most.
const maxIDsPerCall = 8000

// State returns what Slurm tells about jobs, one answer for each id, in order.
// An id is a job's number ("18") or names one element of a job array ("18_3");
// an element is also known by its own number (SLURM_JOB_ID inside it). For the
// number of an array the answer sums its elements up, as far as they are known
// (see [Client.Elements], which tells each of them).
//
// It takes two calls at most for any number of ids (two for every 8000, and one
// more where squeue's JSON cannot be read, see [Client].Version). squeue
// tells of all jobs that the controller remembers, which it does for MinJobAge
// after their end (300 s by default). What it does not know is looked up with
// one sacct call, on clusters that keep accounts. What nobody knows is
// [StateUnknown]: a job that ended long ago, or that never was. An error means
// that Slurm did not answer.
//
// What is wrong with some ids costs the others nothing: those that Slurm does
// not know are unknown, and so are those that only accounts which do not answer
// could know, with that as the reason.
func (c Client) State(ctx context.Context, ids ...string) ([]JobState, error) {
	if err := checkIDs(ids); err != nil {
		return nil, fmt.Errorf("asking for the state of %w", err)
	}
	known, missing, err := c.ask(ctx, ids, answers.complete)
	if err != nil || missing != nil && known.empty() {
		return nil, fmt.Errorf("asking for the state of job %s: %w", someOf(ids), cmp.Or(err, missing))
	}
	var states []JobState
	for _, id := range ids {
		j, ok := known.get(id)
		if !ok || missing != nil && !known.complete(id) {
			j = c.forgotten(id)
			if missing != nil {
				j.Reason = missing.Error()
			}
		}
		states = append(states, j)
	}
	return states, nil
}

// forgotten is what is known of a job that Slurm does not know.
func (c Client) forgotten(id string) JobState {
	if c.Remember != nil {
		if j, ok := c.Remember(id); ok {
			return j
		}
	}
	return unknown(id)
}

// Elements returns what Slurm tells about the elements of a job array, by index,
// in two calls at most. Pending elements, which Slurm keeps as one record
// ("18_[2-5%4]"), are told one by one.
//
// Elements that ended more than MinJobAge ago are missing on a cluster without
// accounts: whoever knows which there are asks [Client.State] for "18_0" and so
// on, and learns that they are unknown. A job that is no array has no elements.
func (c Client) Elements(ctx context.Context, id string) ([]JobState, error) {
	if !isID(id) {
		return nil, fmt.Errorf("asking for the elements of job %q: the id of an array is a number", id)
	}
	// A job that is no array is known, and has no elements. All of an array's
	// are known only to the accounts.
	enough := func(a answers, id string) bool {
		_, plain := a.byID[id]
		return plain
	}
	known, missing, err := c.ask(ctx, []string{id}, enough)
	if err = cmp.Or(err, missing); err != nil {
		return nil, fmt.Errorf("asking for the elements of job %s: %w", id, err)
	}
	return known.array(id), nil
}

// ask asks squeue about all ids and sacct about those of which squeue does not
// know enough. missing is why the accounts could not be asked.
func (c Client) ask(ctx context.Context, ids []string, enough func(answers, string) bool) (known answers, missing, err error) {
	known = newAnswers()
	if err := inChunks(ids, func(jobs []string) error { return c.squeue(ctx, jobs, known) }); err != nil {
		return known, nil, err
	}
	var rest []string
	for _, id := range ids {
		if !enough(known, id) {
			rest = append(rest, id)
		}
	}
	return known, inChunks(rest, func(jobs []string) error { return c.sacct(ctx, jobs, known) }), nil
}

// inChunks calls ask with the jobs of the ids, each once. The programs are asked
// for whole arrays: how squeue filters for one element of a record of pending
// ones differs between versions.
func inChunks(ids []string, ask func(jobs []string) error) error {
	seen := make(map[string]bool)
	for _, id := range ids {
		job, _, _ := strings.Cut(id, "_")
		seen[job] = true
	}
	for jobs := range slices.Chunk(slices.Sorted(maps.Keys(seen)), maxIDsPerCall) {
		if err := ask(jobs); err != nil {
			return err
		}
	}
	return nil
}

func setOf(ids []string) map[string]bool {
	set := make(map[string]bool, len(ids))
	for _, id := range ids {
		set[id] = true
	}
	return set
}

func unknown(id string) JobState {
	j := JobState{ID: id, State: StateUnknown, Reason: "Slurm does not know this job, or has forgotten it", Restarts: -1}
	if array, element, _ := cutID(id); element != "" {
		j.ArrayJobID, j.ArrayTask = array, element
	}
	return j
}

// someOf lists ids for a message, the first few of many.
func someOf(ids []string) string {
	const few = 5
	if len(ids) > few+1 {
		return fmt.Sprintf("%s and %d more", strings.Join(ids[:few], ","), len(ids)-few)
	}
	return strings.Join(ids, ",")
}

// unknownJob says whether a program failed only because Slurm has no such job.
func unknownJob(err error) bool {
	var failed *CommandError
	return errors.As(err, &failed) && strings.Contains(failed.Stderr, "Invalid job id specified")
}
