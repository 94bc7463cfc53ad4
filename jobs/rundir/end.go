package rundir

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"time"
)

// maxEnd bounds ended.json.
const maxEnd = 64 << 10

// End is how a launcher ended.
type End struct {
	JobID   string    `json:"job_id,omitempty"`  // empty without Slurm
	Exit    int       `json:"exit"`              // the launcher's exit code
	Stopped bool      `json:"stopped,omitempty"` // its ranks were asked to stop, and did
	Time    time.Time `json:"time"`
}

// WriteEnd stores how the job ended.
func (d Dir) WriteEnd(e End) error {
	text, err := json.Marshal(e)
	if err != nil {
		return err
	}
	return d.write(endName, append(text, '\n'))
}

// ClearFailure removes the file that says how an earlier attempt failed, if there is one.
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

// ClearEnd forgets how an earlier job ended: another one begins.
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

// ReadEnd says how the last job ended here; false where nothing tells.
func (d Dir) ReadEnd() (End, bool) {
	text, err := d.readFile(endName, maxEnd)
	var e End
	if err != nil || json.Unmarshal(text, &e) != nil {
		return End{}, false
	}
	return e, true
}
