package jobs

import (
	"cmp"
	"fmt"
	"strings"
)

// A Change is a setting of [train] whose value differs from its value in a checkpoint.
type Change struct {
	Key string // "train.optimizer.lr"
	Was string // value as JSON, empty if the key had no value
	Is  string // value as JSON, empty if the key has no value
}

// String returns the key with its old and new value.
func (c Change) String() string {
	return fmt.Sprintf("%s was %s and is %s", c.Key, cmp.Or(c.Was, "not set"), cmp.Or(c.Is, "not set"))
}

// Hint returns the fix for this change, or an empty string if [ChangedHint] is the only fix.
func (c Change) Hint() string {
	if c.Key == "train."+decayKey && c.Was == decayedAll {
		return "remove train.optimizer.decay or set it to \"all\" to resume: the checkpoint was trained with weight decay on all parameters"
	}
	return ""
}

// A ChangedError reports that a job cannot resume from a checkpoint, because settings that
// affect the training result have changed.
type ChangedError struct{ Changes []Change }

func (e *ChangedError) Error() string {
	all := make([]string, len(e.Changes))
	for i, c := range e.Changes {
		all[i] = c.String()
	}
	return "changed settings affect the training result: " + strings.Join(all, "; ")
}

// Hint returns how to train the changed job or how to resume the run.
func (e *ChangedError) Hint() string {
	for _, c := range e.Changes {
		if hint := c.Hint(); hint != "" && len(e.Changes) == 1 {
			return hint + "; otherwise " + ChangedHint
		}
	}
	return ChangedHint
}

// ChangedHint is the fix for a job that contradicts the checkpoints of its run.
const ChangedHint = "set a different name or --run-dir to train the changed job from scratch, or undo the change to resume the run"

// NeedsDecayOfAll reports whether the job must resume as [Job.WithDecayOfAll] from a checkpoint
// with this fingerprint. This is the case if the checkpoint was trained with weight decay on
// all parameters, as in versions without train.optimizer.decay, and the job file does not set
// the key.
func (j *Job) NeedsDecayOfAll(fingerprint map[string]string) bool {
	return j.Train != nil && !j.IsSet("train."+decayKey) && fingerprint["optimizer.weight_decay"] != "" &&
		j.Train.Fingerprint()[decayKey] != "" && fingerprint[decayKey] == ""
}

// WithDecayOfAll returns a copy of the job with train.optimizer.decay = "all". Its checkpoints
// have the same fingerprint as in versions without the key, so the run can resume from them in
// the same way.
func (j *Job) WithDecayOfAll() *Job {
	all, train := *j, *j.Train
	train.Optimizer.Decay = DecayAll
	all.Train = &train
	return &all
}

// CheckResume returns a [*ChangedError] if the job cannot resume from a checkpoint. The
// fingerprint and the digest are the checkpoint's [Train.Fingerprint] and [Job.TrainDigest].
// The paths of the job and of the fingerprint must be resolved. The weight decay can only
// contradict the checkpoint if the job sets train.optimizer.decay; see [Job.NeedsDecayOfAll].
func (j *Job) CheckResume(fingerprint map[string]string, digest string) error {
	if j.NeedsDecayOfAll(fingerprint) {
		j = j.WithDecayOfAll()
	}
	if j.Train == nil || digest == j.TrainDigest() {
		return nil
	}
	is := j.Train.Fingerprint()
	var changes []Change
	for _, key := range differences(fingerprint, is) {
		changes = append(changes, Change{
			Key: "train." + key,
			Was: cmp.Or(fingerprint[key], impliedValue(key)),
			Is:  cmp.Or(is[key], impliedValue(key)),
		})
	}
	if len(changes) == 0 {
		return nil
	}
	return &ChangedError{changes}
}
