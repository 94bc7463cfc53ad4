package rundir

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/ddpbatch/ddpbatch/internal/hints"
)

const (
	recordFormat = 1
	// maxRecord bounds record.json: ten thousand submissions fit.
	maxRecord = 8 << 20
	// maxElements is the maximum number of elements in a sweep. It is more than a job file
	// can have. Commands read several files for each element.
	maxElements = 20_000
	// maxJobID is the largest number of a job that squeue parses. Slurm 22.05 has a signed
	// int for it.
	maxJobID = math.MaxInt32
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

	// Pending is a submission of which it is not known whether Slurm has it: its
	// job has no id yet. It stands here before sbatch is called.
	Pending *Submission `json:"pending,omitempty"`

	// Sweep is set in the directory of a sweep, whose runs are its elements.
	Sweep *SweepRecord `json:"sweep,omitempty"`
}

// SweepRecord says what the elements of a sweep are.
type SweepRecord struct {
	Elements []ElementRecord `json:"elements"` // by index
}

// ElementRecord is one element of a sweep.
type ElementRecord struct {
	Values map[string]string `json:"values"` // keys of the job file that it sets, as text
}

// Submission is one time that the run was handed to Slurm.
type Submission struct {
	ID            string    `json:"id,omitempty"`     // random; Slurm has it in the job's comment
	JobID         string    `json:"job_id,omitempty"` // "18", or "18_3" for an element of a sweep; empty while pending
	Cluster       string    `json:"cluster,omitempty"`
	Time          time.Time `json:"time"`
	Host          string    `json:"host"` // where it was submitted from
	User          string    `json:"user"`
	SpecSHA256    string    `json:"spec_sha256"`
	ScriptSHA256  string    `json:"script_sha256"`
	ProgramSHA256 string    `json:"program_sha256,omitempty"` // of the program that submitted it, which the job runs
	Version       string    `json:"version"`                  // of that program
	Slurm         string    `json:"slurm,omitempty"`          // Slurm's version
	Site          string    `json:"site,omitempty"`
	Elements      []int     `json:"elements,omitempty"` // of a sweep
	Code          *Code     `json:"code,omitempty"`
}

// Code is what is known of the user's program.
type Code struct {
	Folder string `json:"folder"`           // where it is run from
	Commit string `json:"commit,omitempty"` // of git; empty outside of a work tree
	Branch string `json:"branch,omitempty"`
	Remote string `json:"remote,omitempty"` // without credentials
	Dirty  bool   `json:"dirty,omitempty"`  // there were changes that no commit has

	Snapshot string `json:"snapshot,omitempty"` // folder of the copy that runs; empty where Folder itself does
	SHA256   string `json:"sha256,omitempty"`   // of the snapshot
	Files    int    `json:"files,omitempty"`
	Bytes    int64  `json:"bytes,omitempty"`
}

// LastJob is the id of the job that was submitted last, empty when there is none.
func (r Record) LastJob() string {
	if s := r.Last(); s != nil {
		return s.JobID
	}
	return ""
}

// Last is the last submission, nil when there is none.
func (r Record) Last() *Submission {
	if len(r.Submissions) == 0 {
		return nil
	}
	return &r.Submissions[len(r.Submissions)-1]
}

// Of is the submission of a job, nil if the run was never submitted as it.
func (r Record) Of(jobID string) *Submission {
	for i := range r.Submissions {
		if r.Submissions[i].JobID == jobID {
			return &r.Submissions[i]
		}
	}
	return nil
}

// ReadRecord reads the record. The error wraps fs.ErrNotExist where there is
// none.
func (d Dir) ReadRecord() (Record, error) {
	path := filepath.Join(d.Path, recordName)
	text, err := d.readFile(recordName, maxRecord+1)
	if err != nil {
		return Record{}, fmt.Errorf("read run record: %w", err)
	}
	r, err := parseRecord(text)
	var newer newerRecord
	if errors.As(err, &newer) {
		return Record{}, fmt.Errorf("read run record %q: %w", path, err)
	}
	if err != nil {
		return Record{}, fmt.Errorf("read run record %q: %w", path, hints.Errorf(RepairHint(d.Path), "%w", err))
	}
	return r, nil
}

func parseRecord(text []byte) (Record, error) {
	if len(text) > maxRecord {
		return Record{}, fmt.Errorf("it is larger than %d MiB", maxRecord>>20)
	}
	var r Record
	if err := json.Unmarshal(text, &r); err != nil {
		return Record{}, fmt.Errorf("it is damaged: %w", err)
	}
	if r.Format < 1 {
		return Record{}, errors.New("it is damaged: format is missing")
	}
	return r, validRecord(r)
}

// validRecord reports what is wrong with a record.
func validRecord(r Record) error {
	switch {
	case r.Format > recordFormat:
		return newerRecord(r.Format)
	case r.Run == "" || r.Name == "" || !filepath.IsAbs(r.Base):
		return errors.New("it is damaged: run, name or base is missing")
	}
	if r.Sweep != nil && len(r.Sweep.Elements) > maxElements {
		return fmt.Errorf("it is damaged: its sweep has more than %d elements", maxElements)
	}
	for _, s := range r.Submissions {
		if !isJobID(s.JobID) {
			return fmt.Errorf("it is damaged: %q is not a job id", s.JobID)
		}
	}
	if r.Pending != nil && r.Pending.ID == "" {
		return errors.New("it is damaged: a pending submission has no id")
	}
	return nil
}

// newerRecord is a record of a format that a later version of this program wrote.
type newerRecord int

// Error names both formats.
func (n newerRecord) Error() string {
	return fmt.Sprintf("its format is %d, and this version knows up to %d", int(n), recordFormat)
}

// Hint says what to do about it.
func (newerRecord) Hint() string {
	return "use the version of ddpbatch that wrote it, or a newer one"
}

// isJobID reports whether id is the ID of a job, such as "18", or of an array task, such as
// "18_3". IDs become parts of file names and command lines. One that Slurm cannot parse
// would make squeue fail for all runs of a command.
func isJobID(id string) bool {
	job, task, isTask := strings.Cut(id, "_")
	return job != "0" && isNumber(job) && (!isTask || isNumber(task))
}

// isNumber reports whether s is a number as Slurm prints it, without leading zeros.
func isNumber(s string) bool {
	n, err := strconv.ParseUint(s, 10, 32)
	return err == nil && n <= maxJobID && s == strconv.FormatUint(n, 10)
}

// NewSubmission is a submission with an id of its own.
func NewSubmission() Submission {
	return Submission{ID: randomID(), Time: time.Now().UTC().Truncate(time.Second)}
}

// Comment is what Slurm is given to know the submission by.
func (s Submission) Comment() string { return "ddpbatch:" + s.ID }

// randomID is 16 hexadecimal digits.
func randomID() string {
	var id [8]byte
	rand.Read(id[:]) // never fails
	return hex.EncodeToString(id[:])
}

// WriteRecord replaces the record.
func (d Dir) WriteRecord(r Record) error {
	r.Format = recordFormat
	if r.Submissions == nil {
		r.Submissions = []Submission{}
	}
	if err := validRecord(r); err != nil {
		return errors.Join(errors.New("internal error: run record"), err)
	}
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return d.write(recordName, append(text, '\n'))
}
