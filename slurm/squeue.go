package slurm

import (
	"context"
	"strconv"
	"strings"
	"time"
)

// squeueFormat asks for columns as wide as what is in them (width 0), each with
// a separator after it (squeue(1), -O). The two that may hold a separator come
// last: a state's description, and the name, which may hold anything.
const squeueFormat = "JobID:0|,ArrayJobID:0|,ArrayTaskID:0|,State:0|,NodeList:0|,TimeUsed:0|,StartTime:0|,EndTime:0|," +
	"RestartCnt:0|,exit_code:0|,Reason:0|,Name:0"

const squeueColumns = 12

// squeue adds what the controller knows about the jobs, in one call: as JSON
// where the version of Slurm can be trusted with it, and as text otherwise, or
// where the JSON cannot be read.
func (c Client) squeue(ctx context.Context, jobs []string, known answers) error {
	list := "--jobs=" + strings.Join(jobs, ",")
	wanted := setOf(jobs)
	if hasJSON(c.Version) {
		out, err := c.run(ctx, "", "squeue", "--json", "--states=all", list)
		if unknownJob(err) {
			return nil
		}
		if err == nil {
			if records, err := parseSqueueJSON([]byte(out), time.Now()); err == nil {
				for _, r := range records {
					known.add(r, wanted)
				}
				return nil
			}
		} else if !isRefusal(err) {
			return err
		}
	}
	out, err := c.run(ctx, "", "squeue", "--noheader", "--states=all", "--array", list, "--Format="+squeueFormat)
	if err != nil && !unknownJob(err) {
		return err
	}
	for _, r := range parseSqueue(out) {
		known.add(r, wanted)
	}
	return nil
}

// parseSqueue reads the lines of squeueFormat. Lines that are cut off are passed
// over.
func parseSqueue(out string) []jobRecord {
	var records []jobRecord
	for line := range strings.Lines(out) {
		f := strings.SplitN(strings.TrimRight(line, "\n"), "|", squeueColumns)
		if len(f) < squeueColumns {
			continue
		}
		for i := range f[:squeueColumns-1] {
			f[i] = told(f[i])
		}
		r := jobRecord{raw: f[0], state: JobState{
			State: parseState(f[3]), Nodes: f[4], Elapsed: f[5], Start: f[6], End: f[7],
			Restarts: numberOrUnknown(f[8]), Reason: f[10], Name: strings.TrimRight(f[11], " "),
		}}
		if f[2] != "" {
			r.array, r.tasks = f[1], f[2]
		}
		if !isID(r.raw) || r.tasks != "" && !isID(r.array) {
			continue
		}
		if r.state.Done() {
			r.state.ExitCode = exitCode(f[9])
		}
		records = append(records, r)
	}
	return records
}

// numberOrUnknown reads a count; -1 where it is not told.
func numberOrUnknown(s string) int {
	if n, err := smallNumber(s); err == nil {
		return n
	}
	return -1
}

// exitCode turns what squeue prints for an exit code, the number that wait(2)
// gives, into Slurm's usual "code:signal".
func exitCode(s string) string {
	if n, err := smallNumber(s); err == nil {
		return waitStatus(n)
	}
	return s
}

func waitStatus(n int) string {
	return strconv.Itoa(n>>8&0xff) + ":" + strconv.Itoa(n&0x7f)
}

// told turns the words for "nothing" of the client programs into nothing.
func told(s string) string {
	switch s = strings.TrimSpace(s); s {
	case "(null)", "N/A", "None", "None assigned", "Unknown", "NONE", "n/a":
		return ""
	}
	return s
}
