package slurm

import (
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

// parseComments picks the ids of the lines of commentFormat with this comment.
func parseComments(out, comment string) []string {
	var ids []string
	for line := range strings.Lines(out) {
		f := strings.SplitN(strings.TrimRight(line, "\n"), "|", commentColumns)
		if len(f) < commentColumns || strings.TrimRight(f[4], " ") != comment {
			continue
		}
		id := strings.TrimSpace(f[0])
		if told(f[2]) != "" {
			id = strings.TrimSpace(f[1])
		} else if leader := told(f[3]); leader != "" && leader != "0" {
			id = leader
		}
		if isID(id) {
			ids = append(ids, id)
		}
	}
	// Ids grow, and as text a shorter one is the smaller.
	slices.SortFunc(ids, func(a, b string) int {
		if len(a) != len(b) {
			return len(a) - len(b)
		}
		return strings.Compare(a, b)
	})
	return slices.Compact(ids)
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
