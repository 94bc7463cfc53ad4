package rundir

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

const (
	recordFormat = 1
	// maxRecord bounds record.json: ten thousand submissions fit.
	maxRecord = 8 << 20
)

// Record is what is known of a run: record.json.
type Record struct {
	Format      int          `json:"format"`
	Run         string       `json:"run"`  // random, made once for each run directory
	Name        string       `json:"name"` // of the job
	Base        string       `json:"base"` // folder of the job file: where relative paths of the spec start
	Created     time.Time    `json:"created"`
	Version     string       `json:"version"` // of the program that made it
	Submissions []Submission `json:"submissions"`
}

// Submission is one time that the run was handed to Slurm.
type Submission struct {
	JobID        string    `json:"job_id"`
	Cluster      string    `json:"cluster,omitempty"`
	Time         time.Time `json:"time"`
	Host         string    `json:"host"` // where it was submitted from
	User         string    `json:"user"`
	SpecSHA256   string    `json:"spec_sha256"`
	ScriptSHA256 string    `json:"script_sha256"`
	Version      string    `json:"version"` // of the program that submitted it
}

// LastJob is the id of the job that was submitted last, empty when there is none.
func (r Record) LastJob() string {
	if len(r.Submissions) == 0 {
		return ""
	}
	return r.Submissions[len(r.Submissions)-1].JobID
}

// ReadRecord reads the record. The error wraps fs.ErrNotExist where there is
// none.
func (d Dir) ReadRecord() (Record, error) {
	path := filepath.Join(d.Path, recordName)
	f, err := os.Open(path)
	if err != nil {
		return Record{}, fmt.Errorf("read run record: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxRecord+1))
	if err != nil {
		return Record{}, fmt.Errorf("read run record: %w", err)
	}
	r, err := parseRecord(text)
	if err != nil {
		return Record{}, fmt.Errorf("read run record %q: %w", path, err)
	}
	return r, nil
}

func parseRecord(text []byte) (Record, error) {
	const again = "start anew in another directory with --run-dir, and copy the checkpoints there if they are wanted"
	if len(text) > maxRecord {
		return Record{}, refuse(again, "it is larger than %d MiB", maxRecord>>20)
	}
	var r Record
	if err := json.Unmarshal(text, &r); err != nil {
		return Record{}, refuse(again, "it is damaged: %w", err)
	}
	switch {
	case r.Format > recordFormat:
		return Record{}, refuse("use the version of ddpbatch that wrote it, or a newer one",
			"its format is %d, and this version knows up to %d", r.Format, recordFormat)
	case r.Format < 1 || r.Run == "" || r.Name == "" || !filepath.IsAbs(r.Base):
		return Record{}, refuse(again, "it is damaged: format, run, name or base is missing")
	}
	for _, s := range r.Submissions {
		if !isJobID(s.JobID) {
			return Record{}, refuse(again, "it is damaged: %q is not a job id", s.JobID)
		}
	}
	return r, nil
}

// isJobID keeps what is not a number out of file names and command lines.
func isJobID(id string) bool {
	if id == "" || len(id) > 20 {
		return false
	}
	for _, c := range id {
		if c < '0' || c > '9' {
			return false
		}
	}
	return true
}

// WriteRecord replaces the record.
func (d Dir) WriteRecord(r Record) error {
	r.Format = recordFormat
	if r.Submissions == nil {
		r.Submissions = []Submission{}
	}
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	if _, err := parseRecord(text); err != nil {
		return errors.Join(errors.New("internal error: run record"), err)
	}
	return d.write(recordName, append(text, '\n'))
}
