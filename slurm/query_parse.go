package slurm

import (
	"slices"
	"strings"
)

// parseSqueue reads the lines of squeueFormat. Lines that are cut off, or about
// a job that was not asked for, are passed over.
func parseSqueue(out string, ids []string) map[string]JobState {
	jobs := make(map[string]JobState)
	for line := range strings.Lines(out) {
		f := strings.SplitN(strings.TrimRight(line, "\n"), "|", 8)
		if len(f) < 8 || !wanted(jobs, ids, f[0]) {
			continue
		}
		jobs[f[0]] = JobState{
			ID: f[0], State: parseState(f[1]), Reason: told(f[2]), Nodes: told(f[3]),
			Elapsed: told(f[4]), Start: told(f[5]), End: told(f[6]), Name: f[7], Restarts: -1,
		}
	}
	return jobs
}

// parseSacct reads the lines of sacctFormat.
func parseSacct(out string, ids []string) map[string]JobState {
	jobs := make(map[string]JobState)
	for line := range strings.Lines(out) {
		f := strings.SplitN(strings.TrimRight(line, "\n"), "|", 8)
		if len(f) < 8 || !wanted(jobs, ids, f[0]) {
			continue
		}
		j := JobState{
			ID: f[0], State: parseState(f[1]), Nodes: told(f[3]),
			Elapsed: told(f[4]), Start: told(f[5]), End: told(f[6]), Name: f[7], Restarts: -1,
		}
		if j.Done() {
			j.ExitCode = told(f[2])
		}
		jobs[f[0]] = j
	}
	return jobs
}

// wanted says whether id was asked for and not yet answered. The first answer
// counts: what follows it may be the tail of a name with a line break in it.
func wanted(jobs map[string]JobState, ids []string, id string) bool {
	_, have := jobs[id]
	return !have && slices.Contains(ids, id)
}

// parseScontrolJob reads the record of a job from `scontrol show job`: a line
// "JobId=12 JobName=a b c", then indented lines of key=value pairs. The name ends
// its line and may hold spaces and "=", so each key is looked for on the lines
// after it.
func parseScontrolJob(out, id string) (JobState, bool) {
	for record := range strings.SplitSeq(out, "\n\n") {
		head, rest, _ := strings.Cut(record, "\n")
		head, name, ok := strings.Cut(head, " JobName=")
		jobID, others, _ := strings.Cut(strings.TrimPrefix(head, "JobId="), " ")
		if !ok || jobID != id || strings.Contains(others, "ArrayJobId=") {
			continue
		}
		fields := scontrolFields(rest)
		j := JobState{
			ID: id, Name: name, State: parseState(fields["JobState"]), Reason: told(fields["Reason"]),
			Nodes: told(fields["NodeList"]), Elapsed: told(fields["RunTime"]),
			Start: told(fields["StartTime"]), End: told(fields["EndTime"]), Restarts: -1,
		}
		if n, err := smallNumber(fields["Restarts"]); err == nil {
			j.Restarts = n
		}
		if j.Done() {
			j.ExitCode = told(fields["ExitCode"])
		}
		return j, true
	}
	return JobState{}, false
}

// scontrolFields reads key=value pairs; of a key that stands twice the first
// counts. The texts of a user (Command, Comment, StdOut) come after all keys that
// are read here.
func scontrolFields(s string) map[string]string {
	fields := make(map[string]string)
	for pair := range strings.FieldsSeq(s) {
		key, value, ok := strings.Cut(pair, "=")
		if _, have := fields[key]; ok && !have {
			fields[key] = value
		}
	}
	return fields
}

// told turns the words for "nothing" of the client programs into nothing.
func told(s string) string {
	switch s = strings.TrimSpace(s); s {
	case "(null)", "N/A", "None", "None assigned", "Unknown", "NONE", "n/a":
		return ""
	}
	return s
}
