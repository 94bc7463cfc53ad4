package rundir

import "time"

// maxEnd is the maximum size of ended.json in bytes.
const maxEnd = 64 << 10

// An End describes how a launcher ended.
type End struct {
	JobID   string    `json:"job_id,omitempty"`  // empty without Slurm
	Exit    int       `json:"exit"`              // the launcher's exit code
	Stopped bool      `json:"stopped,omitempty"` // whether the ranks stopped on request
	Time    time.Time `json:"time"`
}

// WriteEnd replaces ended.json with e.
func (d Dir) WriteEnd(e End) error { return d.writeJSON(endName, e) }

// ClearFailure removes the failure report of an earlier attempt. It is not an error if the
// file does not exist.
func (d Dir) ClearFailure() error { return d.remove(failureName) }

// ClearEnd removes the result of the previous job when a new job starts.
func (d Dir) ClearEnd() error { return d.remove(endName) }

// ReadEnd returns how the last job ended. It returns false if ended.json is missing or
// invalid.
func (d Dir) ReadEnd() (End, bool) { return readJSON[End](d, endName, maxEnd) }
