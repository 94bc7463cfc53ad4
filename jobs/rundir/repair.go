package rundir

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/ddpbatch/ddpbatch/jobs"
)

// oldSuffix is the suffix of a record that a repair replaced.
const oldSuffix = ".old"

// NewRecord returns the record of a new run with a random ID. Base is the directory of the job
// file.
func NewRecord(name, base, version string) Record {
	return Record{Run: randomID(), Name: name, Base: base, Created: time.Now().UTC().Truncate(time.Second), Version: version}
}

// SalvageRecord returns the fields of a corrupt record that precede the corruption. It omits
// invalid values.
func (d Dir) SalvageRecord() (r Record) {
	text, err := d.readFile(recordName, maxRecord)
	if err != nil {
		return Record{}
	}
	read := json.NewDecoder(bytes.NewReader(text))
	if t, err := read.Token(); err != nil || t != json.Delim('{') {
		return Record{}
	}
	for read.More() {
		key, err := read.Token()
		if err != nil {
			break
		}
		if key == "submissions" {
			if r.Submissions, err = salvageList(read); err != nil {
				break
			}
			continue
		}
		var value json.RawMessage
		if read.Decode(&value) != nil {
			break
		}
		name, _ := json.Marshal(key)
		one := fmt.Sprintf("{%s: %s}", name, value)
		var field Record
		if json.Unmarshal([]byte(one), &field) == nil {
			_ = json.Unmarshal([]byte(one), &r)
		}
	}
	if !IsRunID(r.Run) {
		r.Run = ""
	}
	if !filepath.IsAbs(r.Base) {
		r.Base = ""
	}
	if r.Pending != nil && !isSubmissionID(r.Pending.ID) {
		r.Pending = nil
	}
	invalid := func(s Submission) bool { return !isJobID(s.JobID) || s.ID != "" && !isSubmissionID(s.ID) }
	r.Submissions, r.Chain = slices.DeleteFunc(r.Submissions, invalid), slices.DeleteFunc(r.Chain, invalid)
	return r
}

// salvageList returns the submissions that precede the corruption.
func salvageList(read *json.Decoder) (all []Submission, err error) {
	if t, err := read.Token(); err != nil || t != json.Delim('[') {
		return nil, errors.Join(err, errors.New("submissions are not a list"))
	}
	for read.More() {
		var s Submission
		if err := read.Decode(&s); err != nil {
			return all, err
		}
		all = append(all, s)
	}
	_, err = read.Token()
	return all, err
}

// RecordIsNewer reports whether a later version of ddpbatch wrote the record.
func (d Dir) RecordIsNewer() bool {
	_, err := d.ReadRecord()
	var newer newerRecord
	return errors.As(err, &newer)
}

// JobIDs returns the IDs of the jobs that left files in the directory, sorted as text.
func (d Dir) JobIDs() []string {
	var ids []string
	attempts, _ := d.ReadAttempts() // ignore the error and use the events that were read
	for _, a := range attempts {
		ids = append(ids, a.JobID)
	}
	if end, ok := d.ReadEnd(); ok {
		ids = append(ids, end.JobID)
	}
	entries, _ := d.readDir() // ignore the error: other files may have the jobs
	for _, e := range entries {
		id := strings.TrimSuffix(strings.TrimPrefix(e.Name(), "slurm-"), ".out")
		if e.Name() == filepath.Base(d.BatchLog(id)) {
			ids = append(ids, id)
		}
	}
	ids = slices.DeleteFunc(ids, func(id string) bool { return !isJobID(id) })
	slices.Sort(ids)
	return slices.Compact(ids)
}

// ReplaceRecord writes r in place of a corrupt or missing record. It renames the old file and
// returns its new path. The path is empty if there was no old file.
func (d Dir) ReplaceRecord(r Record) (kept string, err error) {
	if err := validRecord(r); err != nil {
		return "", err
	}
	root, done, err := d.open()
	if err != nil {
		return "", fmt.Errorf("keep the old run record: %w", err)
	}
	defer done()
	switch err := root.Rename(recordName, recordName+oldSuffix); {
	case err == nil:
		kept = filepath.Join(d.Path, recordName+oldSuffix)
	case !errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("keep the old run record: %w", err)
	}
	return kept, d.WriteRecord(r)
}

// Existing returns the directory at an absolute path if it can hold a run of this user. It
// creates nothing and does not require a record.
func Existing(path string) (Dir, error) {
	path = filepath.Clean(path)
	info, err := check(path)
	if err != nil {
		return Dir{}, fmt.Errorf("open run directory %q: %w", path, err)
	}
	return Dir{Path: path, checked: info}, nil
}

// repairHint returns a hint to rebuild the corrupt or missing record of the run directory at
// path.
func repairHint(path string) string {
	return "rebuild the record from the checkpoints with " + repairCommand(path)
}

// repairCommand returns the command that repairs the run directory at path. If the directory
// does not contain a job file, the user must name one.
func repairCommand(path string) string {
	command := "ddpbatch repair " + jobs.ShellQuote(path)
	if _, err := os.Stat(filepath.Join(path, specName)); err != nil {
		command += " --job job.toml"
	}
	return "`" + command + "`"
}

// IsRepairable reports whether a directory without a record contains files of a run:
// checkpoints, or both the job file and the site profile.
func (d Dir) IsRepairable() bool {
	exists := func(path string) bool { _, err := os.Lstat(path); return err == nil }
	return d.HasCheckpoints() || exists(d.Spec()) && exists(d.Site())
}
