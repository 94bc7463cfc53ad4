package rundir

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"time"
)

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
func (d Dir) WriteEnd(e End) error {
	text, err := json.Marshal(e)
	if err != nil {
		return err
	}
	return d.write(endName, append(text, '\n'))
}

// ClearFailure removes the failure report of an earlier attempt. It is not an error if the
// file does not exist.
func (d Dir) ClearFailure() error {
	root, done, err := d.open()
	if err == nil {
		defer done()
		err = root.Remove(failureName)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove %q: %w", d.Failure(), err)
	}
	return nil
}

// ClearEnd removes the result of the previous job when a new job starts.
func (d Dir) ClearEnd() error {
	root, done, err := d.open()
	if err == nil {
		defer done()
		err = root.Remove(endName)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("begin in run directory %q: %w", d.Path, err)
	}
	return nil
}

// ReadEnd returns how the last job ended. It returns false if ended.json is missing or
// invalid.
func (d Dir) ReadEnd() (End, bool) {
	text, err := d.readFile(endName, maxEnd)
	var e End
	if err != nil || json.Unmarshal(text, &e) != nil {
		return End{}, false
	}
	return e, true
}
