package slurm

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
)

// commentFormat has the comment last, for it may hold the separator.
const commentFormat = "JobID:0|,ArrayJobID:0|,ArrayTaskID:0|,HetJobID:0|,Comment:0"

const commentColumns = 5

// FindByComment returns the ids of the caller's own jobs with exactly this
// comment, oldest first: the answer to whether a submission that got no answer
// has made a job. It takes one squeue call. An array is named once, with its own
// id, and so is a heterogeneous job.
//
// It finds jobs of every state for as long as the controller remembers them: a
// job that ended longer than MinJobAge ago (300 s by default) is not found. The
// accounts are not asked, because they keep comments on few clusters
// (AccountingStoreFlags=job_comment).
func (c Client) FindByComment(ctx context.Context, comment string) (ids []string, err error) {
	if err := checkComment(comment); err != nil {
		return nil, fmt.Errorf("looking for a job: %w", err)
	}
	out, err := c.run(ctx, "", "squeue", "--noheader", "--states=all", "--me", "--Format="+commentFormat)
	if err != nil {
		return nil, fmt.Errorf("looking for the job with the comment %q: %w", comment, err)
	}
	return parseComments(out, comment), nil
}

// A SubmittedJob is a job that [Client.FindByScript] has found.
type SubmittedJob struct {
	ID      string
	Comment string
}

// scriptFormat has the script last. A comment that holds the separator hides the script.
const scriptFormat = commentFormat + "|,Command:0"

// FindByScript returns the caller's own jobs whose batch script has this path, oldest
// first. What it knows, and how it names arrays, is as with [Client.FindByComment].
func (c Client) FindByScript(ctx context.Context, path string) (found []SubmittedJob, err error) {
	out, err := c.run(ctx, "", "squeue", "--noheader", "--states=all", "--me", "--Format="+scriptFormat)
	if err != nil {
		return nil, fmt.Errorf("look for jobs of %q: %w", path, err)
	}
	return parseScripts(out, path), nil
}

// parseScripts returns the jobs of the lines of scriptFormat with this script.
func parseScripts(out, path string) (found []SubmittedJob) {
	for line := range strings.Lines(out) {
		f := strings.SplitN(strings.TrimRight(line, "\n"), "|", commentColumns+1)
		if len(f) <= commentColumns || strings.TrimRight(f[5], " ") != path {
			continue
		}
		if id := jobOfLine(f); id != "" {
			found = append(found, SubmittedJob{ID: id, Comment: strings.TrimRight(f[4], " ")})
		}
	}
	slices.SortFunc(found, func(a, b SubmittedJob) int { return CompareIDs(a.ID, b.ID) })
	return slices.CompactFunc(found, func(a, b SubmittedJob) bool { return a.ID == b.ID })
}

// parseComments picks the ids of the lines of commentFormat with this comment.
func parseComments(out, comment string) []string {
	var ids []string
	for line := range strings.Lines(out) {
		f := strings.SplitN(strings.TrimRight(line, "\n"), "|", commentColumns)
		if len(f) < commentColumns || strings.TrimRight(f[4], " ") != comment {
			continue
		}
		if id := jobOfLine(f); id != "" {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, CompareIDs)
	return slices.Compact(ids)
}

// jobOfLine returns the id of the job, the array or the heterogeneous job that a line is
// about; empty if it is none.
func jobOfLine(f []string) string {
	id := strings.TrimSpace(f[0])
	if told(f[2]) != "" {
		id = strings.TrimSpace(f[1])
	} else if leader := told(f[3]); leader != "" && leader != "0" {
		id = leader
	}
	if !isID(id) {
		return ""
	}
	return id
}

// CompareIDs orders jobs by their ids, "9" before "10" and "18_3" before "18_10".
func CompareIDs(a, b string) int {
	jobA, elementA, _ := strings.Cut(a, "_")
	jobB, elementB, _ := strings.Cut(b, "_")
	return cmp.Or(cmp.Compare(len(jobA), len(jobB)), strings.Compare(jobA, jobB),
		cmp.Compare(len(elementA), len(elementB)), strings.Compare(elementA, elementB))
}

// checkComment accepts what squeue prints as it is, on one line.
func checkComment(comment string) error {
	if comment == "" || strings.TrimSpace(comment) != comment {
		return fmt.Errorf("the comment %q is empty, or begins or ends with a space", comment)
	}
	for _, r := range comment {
		if r < ' ' || r > '~' || r == '"' || r == '\'' {
			return fmt.Errorf("the comment %q holds %q: only ASCII letters, digits and signs but quotes are kept as they are", comment, r)
		}
	}
	return nil
}
