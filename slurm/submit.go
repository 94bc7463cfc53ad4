package slurm

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
)

// SubmitRequest is a batch script to hand to Slurm.
type SubmitRequest struct {
	// Script is the absolute path of the script. sbatch reads it once, and
	// `scontrol show job` shows the path as the job's command.
	Script string

	// Dir is the folder the job starts in; empty for the caller's.
	Dir string

	// Comment is kept with the job; [Client.FindByComment] finds the job by it. A
	// comment that no other submission has makes a submission safe to repeat:
	// where one is [Uncertain], look for its comment first. Empty for none.
	Comment string

	// Dependencies are other jobs to wait for; all must come true.
	Dependencies []Dependency

	// Extra are options for sbatch. They override the script's #SBATCH lines.
	// Options that change what sbatch prints or where it submits (--wait,
	// --test-only, --clusters) do not belong here.
	Extra []string
}

// Submit hands a batch script to sbatch and returns the job's id.
//
// The job inherits the client's environment as scrubbed; see [Scrub] for what is
// left out. An error does not always mean that there is no job; [Uncertain] says
// where it may be there all the same. For an array the id is the array's.
func (c Client) Submit(ctx context.Context, req SubmitRequest) (jobID string, err error) {
	if !filepath.IsAbs(req.Script) {
		return "", fmt.Errorf("submitting %q: the script's path is not absolute", req.Script)
	}
	argv := []string{"sbatch", "--parsable"}
	if req.Comment != "" {
		if err := checkComment(req.Comment); err != nil {
			return "", fmt.Errorf("submitting %q: %w", req.Script, err)
		}
		argv = append(argv, "--comment="+req.Comment)
	}
	if len(req.Dependencies) > 0 {
		option, err := dependencyOption(req.Dependencies)
		if err != nil {
			return "", fmt.Errorf("submitting %q: %w", req.Script, err)
		}
		argv = append(argv, option)
	}
	argv = append(append(argv, req.Extra...), req.Script)
	out, err := c.run(ctx, req.Dir, argv...)
	if err != nil {
		return "", fmt.Errorf("submitting %q: %w", req.Script, err)
	}
	jobID, err = parseSubmitted(out)
	if err != nil {
		return "", fmt.Errorf("submitting %q: %w", req.Script, err)
	}
	return jobID, nil
}

// parseSubmitted finds the id in what sbatch --parsable prints: "123", or
// "123;cluster". Site wrappers and plugins print lines of their own before it.
func parseSubmitted(out string) (string, error) {
	found := ""
	for line := range strings.Lines(out) {
		id, _, _ := strings.Cut(strings.TrimSpace(line), ";")
		if isID(id) {
			found = id
		}
	}
	if found == "" {
		return "", noIDError{printed: out}
	}
	return found, nil
}

// noIDError is an sbatch that succeeded without saying what it did.
type noIDError struct{ printed string }

func (e noIDError) Error() string {
	if e.printed == "" {
		return "sbatch succeeded but printed no job id"
	}
	return fmt.Sprintf("sbatch succeeded but printed no job id: %s", excerpt(e.printed, 0))
}

// Hint says how not to submit twice.
func (e noIDError) Hint() string {
	return mayBeSubmitted
}
