package slurm

import (
	"context"
	"errors"
	"os/exec"
	"strings"
)

// sacctFormat has the name last, which may hold the separator. sacct is asked
// for text and not for JSON: what --parsable2 prints has not changed since
// before 22.05, while the JSON did with nearly every version and cannot be
// limited to a few fields.
const sacctFormat = "JobID,JobIDRaw,State,ExitCode,NodeList,Elapsed,Start,End,JobName"

const sacctColumns = 9

// sacct adds what the accounts know about the jobs, in one call; nothing where
// the cluster keeps none, or has no sacct.
func (c Client) sacct(ctx context.Context, jobs []string, known answers) error {
	out, err := c.run(ctx, "", "sacct", "--noheader", "--parsable2", "--allocations", "--jobs="+strings.Join(jobs, ","), "--format="+sacctFormat)
	if err != nil {
		var failed *CommandError
		noAccounts := errors.As(err, &failed) && strings.Contains(failed.Stderr, "accounting storage is disabled")
		if noAccounts || errors.Is(err, exec.ErrNotFound) {
			return nil
		}
		return err
	}
	wanted := setOf(jobs)
	for _, r := range parseSacct(out) {
		known.add(r, wanted)
	}
	return nil
}

// parseSacct reads the lines of sacctFormat. Its ids are "18", "18_3" or
// "18_[4-5%2]" for arrays, and "18+0" for the components of a heterogeneous job.
func parseSacct(out string) []jobRecord {
	var records []jobRecord
	for line := range strings.Lines(out) {
		f := strings.SplitN(strings.TrimRight(line, "\n"), "|", sacctColumns)
		if len(f) < sacctColumns {
			continue
		}
		r := jobRecord{raw: f[1], state: JobState{
			State: parseState(f[2]), Nodes: told(f[4]), Elapsed: told(f[5]), Start: told(f[6]), End: told(f[7]), Name: f[8], Restarts: -1,
		}}
		if array, tasks, ok := strings.Cut(f[0], "_"); ok {
			r.array, r.tasks = array, tasks
		}
		if !isID(r.raw) || r.tasks != "" && !isID(r.array) {
			continue
		}
		if r.state.Done() {
			r.state.ExitCode = told(f[3])
		}
		records = append(records, r)
	}
	return records
}
