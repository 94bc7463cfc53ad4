package rundir

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ddpbatch/ddpbatch/internal/capped"
	"github.com/ddpbatch/ddpbatch/internal/hints"
)

const (
	recordFormat = 1
	// maxRecord is the maximum size of record.json in bytes. Ten thousand submissions fit.
	maxRecord = 8 << 20
	// maxElements is the maximum number of trials in a sweep. A job file cannot have as many.
	// The limit matters because commands read several files for each trial.
	maxElements = 20_000
	// maxSubmissions is the maximum number of submissions in a record, and maxChain the maximum number
	// of jobs of a chain. Commands that list runs query Slurm for each job of a chain.
	maxSubmissions, maxChain = 20_000, 1000
	// maxSweepChain is the maximum number of jobs that the chain of a sweep keeps when trials are
	// submitted again. The records of the trials have their own chains.
	maxSweepChain = 500
	// maxJobID is the largest job ID that squeue can parse. Slurm 22.05 uses a signed 32-bit
	// integer.
	maxJobID = math.MaxInt32
)

// A Record is the content of record.json: the identity of a run and its submissions.
type Record struct {
	Format      int         `json:"format"`
	Run         string      `json:"run"`  // random ID of the run, created with the run directory
	Name        string      `json:"name"` // name of the job
	Base        string      `json:"base"` // directory of the job file; the spec's relative paths start here
	Created     time.Time   `json:"created"`
	Version     string      `json:"version"` // version of ddpbatch that created the record
	Submissions submissions `json:"submissions"`
	// Chain holds the jobs that follow the last submission and have not run yet, in order. A job
	// moves to Submissions when it starts and the run is not complete. For a sweep, it holds the job
	// arrays that follow others. The record of each trial has its array tasks.
	Chain chain `json:"chain,omitempty"`

	// Pending is a submission without a job ID. Slurm may or may not have its job. It is
	// stored before the call of sbatch.
	Pending *Submission `json:"pending,omitempty"`

	// Sweep is set in the directory of a sweep. Each trial has a separate run.
	Sweep *SweepRecord `json:"sweep,omitempty"`
}

// submissions and chain are lists of limited length: another user may own the file.
type (
	submissions []Submission
	chain       []Submission
)

// UnmarshalJSON decodes an array of at most maxSubmissions submissions.
func (s *submissions) UnmarshalJSON(text []byte) (err error) {
	*s, err = capped.DecodeList[Submission](text, maxSubmissions)
	return err
}

// UnmarshalJSON decodes an array of at most maxChain submissions.
func (c *chain) UnmarshalJSON(text []byte) (err error) {
	*c, err = capped.DecodeList[Submission](text, maxChain)
	return err
}

// A SweepRecord lists the trials of a sweep.
type SweepRecord struct {
	Elements []ElementRecord `json:"elements"` // indexed by trial
}

// An ElementRecord is one trial of a sweep.
type ElementRecord struct {
	Values map[string]string `json:"values"` // job file keys that the trial sets, with their values as text
}

// A Submission is one submission of the run to Slurm.
type Submission struct {
	ID            string    `json:"id,omitempty"`     // random; also part of the job's comment in Slurm
	JobID         string    `json:"job_id,omitempty"` // "18", or "18_3" for a trial of a sweep; empty while pending
	Cluster       string    `json:"cluster,omitempty"`
	Time          time.Time `json:"time"`
	Host          string    `json:"host"` // host that it was submitted from
	User          string    `json:"user"`
	SpecSHA256    string    `json:"spec_sha256"`
	ScriptSHA256  string    `json:"script_sha256"`
	ProgramSHA256 string    `json:"program_sha256,omitempty"` // digest of the ddpbatch executable that submitted the job, which the job also runs
	Version       string    `json:"version"`                  // version of that executable
	Slurm         string    `json:"slurm,omitempty"`          // version of Slurm
	Site          string    `json:"site,omitempty"`
	Elements      []int     `json:"elements,omitempty"` // submitted trials of a sweep
	Follows       string    `json:"follows,omitempty"`  // ID of the preceding job of a chain
	Code          *Code     `json:"code,omitempty"`
}

// Code describes the user's program.
type Code struct {
	Folder string `json:"folder"`           // working directory of the program
	Commit string `json:"commit,omitempty"` // git commit; empty outside a work tree
	Branch string `json:"branch,omitempty"`
	Remote string `json:"remote,omitempty"` // without credentials
	Dirty  bool   `json:"dirty,omitempty"`  // whether the work tree had uncommitted changes

	Snapshot string `json:"snapshot,omitempty"` // directory of the copy that runs; empty if Folder itself is used
	SHA256   string `json:"sha256,omitempty"`   // digest of the snapshot
	Files    int    `json:"files,omitempty"`
	Bytes    int64  `json:"bytes,omitempty"`
}

// LastJob returns the job ID of the last submission, or an empty string before the first one.
func (r Record) LastJob() string {
	if s := r.Last(); s != nil {
		return s.JobID
	}
	return ""
}

// Last returns the last submission, or nil before the first one.
func (r Record) Last() *Submission {
	if len(r.Submissions) == 0 {
		return nil
	}
	return &r.Submissions[len(r.Submissions)-1]
}

// Of returns the submission with the given job ID, or nil if it does not exist.
func (r Record) Of(jobID string) *Submission {
	for _, list := range [][]Submission{r.Submissions, r.Chain} {
		for i := range list {
			if list[i].JobID == jobID {
				return &list[i]
			}
		}
	}
	return nil
}

// HasChain reports whether the last submission is followed by a chain of jobs, or by a job of a
// chain whose submission is not complete.
func (r Record) HasChain() bool {
	return len(r.Chain) > 0 || r.Pending != nil && r.Pending.Follows != ""
}

// Add adds a submission with a job ID. A job of a chain does not become the last submission until
// [Record.StartChained]. Any other submission ends the chain of a single run.
func (r *Record) Add(s Submission) {
	if s.Follows != "" {
		r.Chain = append(r.Chain, s)
		return
	}
	r.Submissions = append(r.Submissions, s)
	if r.Sweep == nil {
		r.Chain = nil
	} else { // the chains of other trials may continue
		r.Chain = r.Chain[max(0, len(r.Chain)-maxSweepChain):]
	}
}

// ChainAfter returns the IDs of the jobs of the chain that follow the given job, in order.
func (r Record) ChainAfter(jobID string) (ids []string) {
	for _, s := range r.Chain {
		if s.Follows == jobID {
			ids, jobID = append(ids, s.JobID), s.JobID
		}
	}
	return ids
}

// StartChained makes a job of the chain the last submission, and drops the jobs before it, which
// were canceled. It returns false if the job is not in the chain.
func (r *Record) StartChained(jobID string) bool {
	i := slices.IndexFunc(r.Chain, func(s Submission) bool { return s.JobID == jobID })
	if i < 0 {
		return false
	}
	r.Submissions, r.Chain = append(r.Submissions, r.Chain[i]), r.Chain[i+1:]
	return true
}

// ReadRecord reads record.json. The error wraps fs.ErrNotExist if the file does not exist.
func (d Dir) ReadRecord() (Record, error) {
	path := d.Record()
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
		return Record{}, fmt.Errorf("read run record %q: %w", path, hints.Errorf(repairHint(d.Path), "%w", err))
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

// validRecord returns an error if r is invalid or has a newer format.
func validRecord(r Record) error {
	switch {
	case r.Format > recordFormat:
		return newerRecord(r.Format)
	case r.Run == "" || r.Name == "" || !filepath.IsAbs(r.Base):
		return errors.New("it is damaged: run, name or base is missing")
	case !IsRunID(r.Run):
		return fmt.Errorf("it is damaged: %q is not the ID of a run", r.Run)
	}
	if len(r.Submissions) > maxSubmissions || len(r.Chain) > maxChain {
		return fmt.Errorf("it is damaged: it has more than %d submissions, or more than %d jobs in a chain", maxSubmissions, maxChain)
	}
	if r.Sweep != nil && len(r.Sweep.Elements) > maxElements {
		return fmt.Errorf("it is damaged: its sweep has more than %d trials", maxElements)
	}
	for _, s := range slices.Concat([]Submission(r.Submissions), r.Chain) {
		if !isJobID(s.JobID) {
			return fmt.Errorf("it is damaged: %q is not a job id", s.JobID)
		}
		// Jobs of user-written scripts have no submission ID.
		if s.ID != "" && !isSubmissionID(s.ID) {
			return fmt.Errorf("it is damaged: %q is not a submission ID", s.ID)
		}
	}
	if r.Pending != nil && !isSubmissionID(r.Pending.ID) {
		return fmt.Errorf("it is damaged: %q is not a submission ID", r.Pending.ID)
	}
	return nil
}

// IsRunID reports whether id can be the ID of a run. IDs become parts of paths. All versions create
// them with [randomID]; other programs may write different ones into checkpoints.
func IsRunID(id string) bool {
	const valid = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-"
	return id != "" && len(id) <= 64 && strings.Trim(id, valid) == ""
}

// isSubmissionID reports whether id has the form of [randomID]. IDs become names of
// directories, which are removed with their content.
func isSubmissionID(id string) bool {
	digits, err := hex.DecodeString(id)
	return err == nil && len(digits) == 8
}

// A newerRecord is the format number of a record that a later version of ddpbatch wrote.
type newerRecord int

// Error returns the record's format and the newest supported format.
func (n newerRecord) Error() string {
	return fmt.Sprintf("its format is %d, and this version knows up to %d", int(n), recordFormat)
}

// Hint returns which version of ddpbatch to use.
func (newerRecord) Hint() string {
	return "use the version of ddpbatch that wrote it, or a newer one"
}

// isJobID reports whether id is a job ID, such as "18", or an array task ID, such as "18_3".
// IDs become parts of file names and command lines. A single ID that Slurm cannot parse makes
// squeue fail for all runs of a command.
func isJobID(id string) bool {
	job, task, isTask := strings.Cut(id, "_")
	return job != "0" && isNumber(job) && (!isTask || isNumber(task))
}

// isNumber reports whether s is a number in Slurm's format, without leading zeros.
func isNumber(s string) bool {
	n, err := strconv.ParseUint(s, 10, 32)
	return err == nil && n <= maxJobID && s == strconv.FormatUint(n, 10)
}

// NewSubmission returns a submission with a new random ID and the current time.
func NewSubmission() Submission {
	return Submission{ID: randomID(), Time: time.Now().UTC().Truncate(time.Second)}
}

// Comment returns the job comment that identifies the submission in Slurm.
func (s Submission) Comment() string { return "ddpbatch:" + s.ID }

// randomID returns 16 random hexadecimal digits.
func randomID() string {
	var id [8]byte
	rand.Read(id[:]) // never fails
	return hex.EncodeToString(id[:])
}

// WriteRecord replaces record.json. It returns an error if r is invalid.
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
