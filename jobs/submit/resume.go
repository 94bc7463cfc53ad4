package submit

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"

	"github.com/ddpbatch/ddpbatch/internal/exitcode"
	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/jobs/rundir"
	"github.com/ddpbatch/ddpbatch/trainer/checkpoint"
)

// CheckResume compares a job with the newest checkpoint in its run directory. For a sweep, it
// compares each trial with that trial's newest checkpoint. It returns [jobs.Diagnostics] with
// every setting that prevents the job from resuming. Base is the directory where the job's
// relative paths start.
//
// CheckResume reads only manifests. It ignores unreadable checkpoints if there is a readable
// one, because the job itself reports them. It returns an error if no checkpoint is readable,
// if a newer version of ddpbatch wrote the newest one, or if a different run wrote it, because
// the job would fail.
func CheckResume(dir rundir.Dir, job *jobs.Job, base string) error {
	if _, err := os.Stat(dir.Path); err != nil {
		return nil // there is nothing to resume
	}
	if err := checkRunID(dir); err != nil {
		return err
	}
	found, from, err := findAllChanges(dir, job, base)
	if err != nil {
		return err
	}
	return addHintToLast(found, fmt.Sprintf("%s (checkpoint: %s)", jobs.ChangedHint, from))
}

// findAllChanges returns the settings of a job, or of a sweep's trials, that contradict the
// newest checkpoint. from is the path of the last such checkpoint. For the error, see
// [findChanges].
func findAllChanges(dir rundir.Dir, job *jobs.Job, base string) (found jobs.Diagnostics, from string, err error) {
	if job.Sweep == nil {
		return findChanges(dir, job, base)
	}
	seen := map[jobs.Diagnostic]bool{}
	for _, e := range job.Sweep.Trials {
		changed, path, err := findChanges(dir.Element(e.Index), e.Job, base)
		if err != nil {
			return nil, "", err
		}
		for _, d := range changed {
			// Report a setting of the whole sweep for the first trial only.
			if !seen[d] {
				seen[d] = true
				found, from = append(found, d), path
			}
		}
	}
	return found, from, nil
}

// addHintToLast returns the contradictions as an error with a hint on the last one, or nil
// without contradictions.
func addHintToLast(found jobs.Diagnostics, hint string) error {
	if len(found) == 0 {
		return nil
	}
	last := &found[len(found)-1]
	if last.Allowed != "" {
		hint = last.Allowed + "; otherwise " + hint
	}
	last.Allowed = hint
	return found
}

// findChanges returns the settings of a single job that contradict its newest checkpoint, and the
// checkpoint's path. The error means that the job cannot resume: a newer version of ddpbatch
// wrote the newest checkpoint, or no manifest is readable.
func findChanges(dir rundir.Dir, job *jobs.Job, base string) (found jobs.Diagnostics, from string, err error) {
	entries, err := checkpoint.List(dir.Checkpoints())
	if err != nil || job.Train == nil {
		return nil, "", nil
	}
	for _, e := range entries {
		if e.IsNewer() {
			return nil, "", fmt.Errorf("resume from step %d: %w", e.Step, e.Err)
		}
		if e.Manifest == nil || len(e.Manifest.Spec) == 0 {
			continue
		}
		train, resolved := *job.Train, *job
		resolved.Train = &train
		resolved.ResolvePaths(base)
		var changed *jobs.ChangedError
		if err := resolved.CheckResume(e.Manifest.Spec, e.Manifest.SpecDigest); !errors.As(err, &changed) {
			return nil, "", nil
		}
		for _, c := range changed.Changes {
			d := job.Near(c.Key)
			d.Message = fmt.Sprintf("%s: is %s, but was %s in the run so far", c.Key, cmp.Or(c.Is, "not set"), cmp.Or(c.Was, "not set"))
			d.Allowed = c.Hint()
			found = append(found, d)
		}
		return found, e.Path, nil
	}
	if len(entries) > 0 && !slices.ContainsFunc(entries, maybeReadable) {
		return nil, "", fmt.Errorf("resume in %q: %w", dir.Path, noManifestError(entries[0].Err))
	}
	return nil, "", nil
}

// maybeReadable reports whether the manifest of e is readable here, or may be readable on a node.
// An I/O error or a stale NFS handle on this host does not mean that the file is corrupt.
func maybeReadable(e checkpoint.Entry) bool {
	return e.Manifest != nil || errors.Is(e.Err, syscall.EIO) || errors.Is(e.Err, syscall.ESTALE)
}

// checkRunID returns an error if a different run wrote the newest checkpoint.
func checkRunID(dir rundir.Dir) error {
	record, err := dir.ReadRecord()
	if err != nil {
		return nil // the code that uses the record reports this error
	}
	entries, err := checkpoint.List(dir.Checkpoints())
	if err != nil {
		return nil
	}
	for _, e := range entries {
		if e.Manifest == nil {
			continue
		}
		if e.Manifest.Run != record.Run {
			return foreignCheckpointError{hints.Errorf("move the checkpoints away to train from scratch, or, to resume from them, run `ddpbatch repair "+
				jobs.ShellQuote(dir.Path)+"`", "a different run wrote the checkpoint of step %d in %q", e.Step, dir.Path)}
		}
		return nil
	}
	return nil
}

// foreignCheckpointError is the error for a run directory with checkpoints of another run.
type foreignCheckpointError struct{ error }

// Unwrap returns the underlying error, which has a hint.
func (f foreignCheckpointError) Unwrap() error { return f.error }

// ExitCode returns the exit code for a job that contradicts its run's checkpoints.
func (foreignCheckpointError) ExitCode() int { return exitcode.Usage }
