package rundir

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"
)

// Record is what is known of a run, as record.json.
type Record struct {
	Run     string    `json:"run"`  // made once per directory; checkpoints carry it
	Name    string    `json:"name"` // the job's
	Base    string    `json:"base"` // folder of the job file: its relative paths start there
	Created time.Time `json:"created"`
	Version string    `json:"version"` // program that made the directory
	// Submissions are in order; the last one is the job to ask about.
	Submissions []Submission `json:"submissions"`
}

// Submission is one job that was submitted for the run.
type Submission struct {
	JobID        string    `json:"job_id"`
	Time         time.Time `json:"time"`
	Host         string    `json:"host"`
	User         string    `json:"user"`
	SpecSHA256   string    `json:"spec_sha256"`
	ScriptSHA256 string    `json:"script_sha256"`
	Version      string    `json:"version"`
}

// ReadRecord reads the record.
func (d Dir) ReadRecord() (Record, error) {
	var r Record
	text, err := os.ReadFile(d.record())
	if err != nil {
		return r, fmt.Errorf("read record: %w", err)
	}
	if err := json.Unmarshal(text, &r); err != nil {
		return r, fmt.Errorf("read record %q: %w", d.record(), err)
	}
	return r, nil
}

// WriteRecord replaces the record.
func (d Dir) WriteRecord(r Record) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return d.Write(d.record(), append(text, '\n'))
}

// Prepare has the directory belong to the job of the given name and hold spec as
// its job file. A directory of another job is refused.
func (d Dir) Prepare(name, base, version string, spec []byte) (Record, error) {
	r, err := d.ReadRecord()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		r = Record{Run: rand.Text(), Name: name, Created: time.Now().UTC(), Version: version}
	case err != nil:
		return r, err
	case r.Name != name:
		return r, problem{fmt.Errorf("run directory %q belongs to job %q, not to %q", d.Path, r.Name, name),
			"choose another place with --run-dir"}
	}
	r.Base = base
	if err := d.Write(d.Spec(), spec); err != nil {
		return r, fmt.Errorf("keep the job file: %w", err)
	}
	return r, d.WriteRecord(r)
}
