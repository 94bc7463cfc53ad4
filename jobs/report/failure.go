package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/ddpbatch/ddpbatch/jobs/rundir"
	"github.com/ddpbatch/ddpbatch/trainer/rendezvous"
)

// Failure is failure.json, as the launcher writes it.
type Failure struct {
	JobID   string                  `json:"job_id,omitempty"` // empty without Slurm
	Time    time.Time               `json:"time"`
	Attempt int                     `json:"attempt"`
	Exit    int                     `json:"exit"`
	First   *rendezvous.Failure     `json:"first"`
	Ranks   []rendezvous.RankStatus `json:"ranks"`
}

// Of says whether it may be how that job failed: a later one that ended before its launcher
// began has left an earlier one's failure as it was.
func (f *Failure) Of(job string) bool { return f.JobID == job || f.JobID == "" || job == "" }

// maxFailure bounds failure.json: ten thousand ranks with a message each have 5 MB.
const maxFailure = 64 << 20

// ReadFailure reads it; nil where there is none.
func ReadFailure(path string) (*Failure, error) {
	text, err := rundir.ReadSome(path, maxFailure)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var f Failure
	if err := json.Unmarshal(text, &f); err != nil {
		return nil, fmt.Errorf("failure.json is damaged: %w", err)
	}
	return &f, nil
}
