package submit

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"

	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/jobs/rundir"
	"github.com/ddpbatch/ddpbatch/trainer/checkpoint"
)

// CheckResume compares a job with the newest checkpoint in its run directory, and each
// element of a sweep with the newest checkpoint of that element. It returns
// [jobs.Diagnostics] with every setting that prevents the job from resuming. Base is
// the directory where the job's relative paths start.
//
// It reads manifests only, and it ignores checkpoints that it cannot read if there is one
// that it can: the job itself reports these. If there is none, the job would fail, so that
// is an error, as is a checkpoint of a newer version of the program.
func CheckResume(dir rundir.Dir, job *jobs.Job, base string) error {
	if _, err := os.Stat(dir.Path); err != nil {
		return nil // there is nothing to resume
	}
	if err := checkRun(dir); err != nil {
		return err
	}
	found, from, err := contradictions(dir, job, base)
	if err != nil {
		return err
	}
	return withHint(found, fmt.Sprintf("%s (checkpoint: %s)", jobs.ChangedHint, from))
}

// contradictions returns the settings of a job, or of the elements of a sweep, that
// contradict the newest checkpoint, and the path of the last such checkpoint. The error
// is that of [changes].
func contradictions(dir rundir.Dir, job *jobs.Job, base string) (found jobs.Diagnostics, from string, err error) {
	if job.Sweep == nil {
		return changes(dir, job, base)
	}
	seen := map[jobs.Diagnostic]bool{}
	for _, e := range job.Sweep.Elements {
		changed, path, err := changes(dir.Element(e.Index), e.Job, base)
		if err != nil {
			return nil, "", err
		}
		for _, d := range changed {
			// A setting of the whole sweep is reported for the first element only.
			if !seen[d] {
				seen[d] = true
				found, from = append(found, d), path
			}
		}
	}
	return found, from, nil
}

// withHint returns the contradictions as an error that ends with a hint, or nil.
func withHint(found jobs.Diagnostics, hint string) error {
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

// changes returns the settings of a single job that contradict its newest checkpoint,
// and the path of that checkpoint. The error says that the job cannot resume: a newer
// version of the program wrote the newest checkpoint, or no manifest can be read.
func changes(dir rundir.Dir, job *jobs.Job, base string) (found jobs.Diagnostics, from string, err error) {
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
		if err := resolved.CheckResume(e.Manifest.Spec, e.Manifest.SpecSum); !errors.As(err, &changed) {
			return nil, "", nil
		}
		for _, c := range changed.Changes {
			d := job.Near(c.Key)
			d.Message = fmt.Sprintf("%s: is %s, but was %s in the training so far", c.Key, cmp.Or(c.Is, "not set"), cmp.Or(c.Was, "not set"))
			d.Allowed = c.Hint()
			found = append(found, d)
		}
		return found, e.Path, nil
	}
	if len(entries) > 0 && !slices.ContainsFunc(entries, mayBeRead) {
		return nil, "", fmt.Errorf("resume in %q: %w", dir.Path, noManifest{entries[0].Err})
	}
	return nil, "", nil
}

// mayBeRead reports whether the manifest of a checkpoint can be read, perhaps only on a
// node: an error of this host's disk or network says nothing about the file.
func mayBeRead(e checkpoint.Entry) bool {
	return e.Manifest != nil || errors.Is(e.Err, syscall.EIO) || errors.Is(e.Err, syscall.ESTALE)
}

// checkRun refuses a run directory whose newest checkpoint another run has written.
func checkRun(dir rundir.Dir) error {
	record, err := dir.ReadRecord()
	if err != nil {
		return nil // whoever uses the record reports this
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
			return foreign{hints.Errorf("move the checkpoints away to train from the start; or, if they were copied here to resume from them, run `ddpbatch repair "+
				jobs.ShellQuote(dir.Path)+"`", "the checkpoint of step %d in %q was written by another run", e.Step, dir.Path)}
		}
		return nil
	}
	return nil
}

// foreign is a run directory with checkpoints of another run.
type foreign struct{ error }

// Unwrap returns the refusal, which has a hint.
func (f foreign) Unwrap() error { return f.error }

// ExitCode is the code of a job that contradicts its run's checkpoints.
func (foreign) ExitCode() int { return 2 }
