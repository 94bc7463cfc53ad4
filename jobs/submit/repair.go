package submit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ddpbatch/ddpbatch/internal/exitcode"
	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/internal/safefile"
	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/jobs/rundir"
	"github.com/ddpbatch/ddpbatch/slurm"
	"github.com/ddpbatch/ddpbatch/trainer/checkpoint"
)

// A RepairRequest names the record to rebuild and the job of the run.
type RepairRequest struct {
	Dir  rundir.Dir
	Job  *jobs.Job
	Base string // directory of the job file; empty if unknown
	// Spec is the job file to store if the run directory does not have one.
	Spec    []byte
	Version string // version of ddpbatch
}

// Repaired is the result of a repair.
type Repaired struct {
	Record rundir.Record
	// Intact reports that the record was valid and is unchanged.
	Intact bool
	// Backup is the path of the old record; empty without an old record.
	Backup string
	// Checkpoints is the number of checkpoints with a readable manifest. Newest is the step of
	// the newest one.
	Checkpoints, Newest int
	// BaseGuessed reports that Record.Base was derived from the path of the run directory.
	BaseGuessed bool
}

// Repair rebuilds the record of a run directory from the directory, its checkpoints, and
// Slurm. If the checkpoints were copied from another run, Repair updates the run ID of an
// intact record to match them.
//
// Repair returns an error in the following cases, and then changes no files except locks:
//   - a launcher or a submission is running in the directory
//   - Slurm cannot report whether jobs are queued
//   - the checkpoints belong to several runs
//   - the request names a different job from the job of the run
func (s Submitter) Repair(ctx context.Context, req RepairRequest) (Repaired, error) {
	r, err := s.repair(ctx, req)
	if err != nil {
		var changed jobs.Diagnostics
		if errors.As(err, &changed) {
			return Repaired{}, err // it already has its final form
		}
		return Repaired{}, fmt.Errorf("repair run directory %q: %w", req.Dir.Path, err)
	}
	return r, nil
}

func (s Submitter) repair(ctx context.Context, req RepairRequest) (Repaired, error) {
	// Plan the repair before taking the locks. A lock creates a file that must not be removed
	// afterwards, so a request that fails or that has nothing to repair must not take it.
	first := s
	first.Say = func(string) {}
	if done, _, err := first.plan(ctx, req); err != nil || done.Intact {
		return done, err
	}
	launcher, err := req.Dir.Lock(rundir.Claim{Ended: QueryEnded(ctx, s.Slurm)})
	if err != nil {
		return Repaired{}, err
	}
	defer launcher()
	unlock, err := req.Dir.LockSubmission()
	if err != nil {
		return Repaired{}, err
	}
	defer unlock()
	done, record, err := s.plan(ctx, req)
	if err != nil || done.Intact {
		return done, err
	}
	if done.Backup, err = req.Dir.ReplaceRecord(record); err != nil {
		return done, err
	}
	done.Record = record
	if req.Spec != nil {
		_, err = req.Dir.Prepare(record.Name, record.Base, req.Version, req.Spec)
	}
	return done, err
}

// plan returns the record that the run directory needs. It does not write to the directory.
func (s Submitter) plan(ctx context.Context, req RepairRequest) (done Repaired, record rundir.Record, err error) {
	run, err := done.readCheckpoints(req.Dir)
	if err != nil {
		return done, record, err
	}
	if err := req.checkJob(); err != nil {
		return done, record, err
	}
	record, err = req.Dir.ReadRecord()
	switch {
	case err == nil && req.Base != "" && !req.Dir.IsElement() && record.Name != string(req.Job.Name):
		return done, record, jobMismatchError(record.Name, string(req.Job.Name))
	case err == nil && (run == "" || run == record.Run):
		done.Record, done.Intact = record, true
		return done, record, nil
	case err == nil: // the checkpoints were copied from another run
	case req.Dir.RecordIsNewer():
		return done, record, err
	default:
		if record, err = s.rebuild(ctx, req, &done); err != nil {
			return done, record, err
		}
	}
	if run != "" {
		record.Run = run
	}
	return done, record, nil
}

// checkJob returns an error if the named job file contradicts the newest checkpoint. The job
// file in the run directory needs no check: it was checked when the job was submitted or
// launched.
func (req RepairRequest) checkJob() error {
	if req.Base == "" {
		return nil
	}
	const hint = "pass the job file with which the run was started"
	if req.Job.Train == nil && req.Job.Sweep == nil && hasTrainerCheckpoint(req.Dir) {
		return hints.Errorf(hint, "its checkpoints are from the built-in trainer, but the job file has no [train]")
	}
	found, from, err := findAllChanges(req.Dir, req.Job, req.Base)
	if err != nil {
		return err
	}
	return addHintToLast(found, fmt.Sprintf("%s (checkpoint: %s)", hint, from))
}

// hasTrainerCheckpoint reports whether the built-in trainer wrote a checkpoint in the directory.
func hasTrainerCheckpoint(dir rundir.Dir) bool {
	entries, err := checkpoint.List(dir.Checkpoints())
	return err == nil && slices.ContainsFunc(entries, func(e checkpoint.Entry) bool {
		return e.Manifest != nil && len(e.Manifest.Spec) > 0
	})
}

// jobMismatchError returns the error for a job file whose name differs from the name of the run's
// job.
func jobMismatchError(run, file string) error {
	return hints.Errorf("pass the job file of that run with --job", "the directory belongs to job %q, but the job file is for job %q", run, file)
}

// readCheckpoints counts the checkpoints of this user, and returns the ID of the run that wrote all of
// them, or an empty string without checkpoints. It returns an error if they belong to several runs, or
// if no manifest is readable.
func (done *Repaired) readCheckpoints(dir rundir.Dir) (run string, err error) {
	entries, err := checkpoint.List(dir.Checkpoints())
	// Another user may have put a different directory at the path of the run directory.
	entries = slices.DeleteFunc(entries, func(e checkpoint.Entry) bool { return e.Manifest != nil && !e.IsOwn() })
	if err != nil || len(entries) == 0 {
		return "", err
	}
	steps := map[string][]string{}
	for _, e := range entries {
		if e.Manifest == nil {
			continue
		}
		if done.Checkpoints++; done.Checkpoints == 1 {
			done.Newest = e.Step
		}
		if run = e.Manifest.Run; run != "" && !rundir.IsRunID(run) {
			return "", hints.Errorf("remove that checkpoint", "the checkpoint in %q has %q, which is not the ID of a run", e.Path, run)
		}
		steps[run] = append(steps[run], fmt.Sprint(e.Step))
	}
	switch len(steps) {
	case 0:
		return "", noManifestError(entries[0].Err)
	case 1:
		return run, nil
	}
	var groups []string
	for _, id := range slices.Sorted(maps.Keys(steps)) {
		groups = append(groups, fmt.Sprintf("steps %s of run %q", strings.Join(steps[id], ", "), id))
	}
	return "", hints.Errorf("move the checkpoints of the other runs out of "+dir.Checkpoints()+", and repair again",
		"its checkpoints belong to several runs: %s", strings.Join(groups, "; "))
}

// noManifestError returns the error for a checkpoint directory without a readable manifest.
func noManifestError(newest error) error {
	return exitcode.Add(exitcode.NoCheckpoint, hints.Errorf("restore a checkpoint from a backup, or move the directory checkpoints away to train from scratch",
		"no checkpoint has a readable manifest; newest: %w", newest))
}

// rebuild returns a record with all available information.
func (s Submitter) rebuild(ctx context.Context, req RepairRequest, done *Repaired) (rundir.Record, error) {
	salvaged := req.Dir.SalvageRecord()
	name := string(req.Job.Name)
	if salvaged.Name != "" && salvaged.Name != name {
		return salvaged, jobMismatchError(salvaged.Name, name)
	}
	var sweep *rundir.Record
	var index int
	if req.Dir.IsElement() {
		parent, at, release, err := req.Dir.OpenSweep()
		if err != nil {
			return salvaged, err
		}
		defer release()
		record, err := parent.ReadRecord()
		if err != nil {
			return salvaged, fmt.Errorf("read the record of its sweep: %w", err)
		}
		sweep, index = &record, at
	}
	base, guessed := findBase(req, salvaged, sweep)
	if base == "" {
		return salvaged, hints.Errorf("name the run's job file with --job FILE",
			"the directory of its job file is unknown, and no directory above it that only you control has the job's files")
	}
	done.BaseGuessed = guessed
	record := rundir.NewRecord(name, base, req.Version)
	record.Run, record.Version = cmp.Or(salvaged.Run, record.Run), cmp.Or(salvaged.Version, record.Version)
	if !salvaged.Created.IsZero() {
		record.Created = salvaged.Created
	}
	if req.Job.Sweep != nil {
		record.Sweep = sweepRecord(req.Job.Sweep)
	}
	record.Pending = salvaged.Pending
	if sweep != nil {
		addSubmissionsOfElement(&record, *sweep, index)
	} else {
		record.Submissions, record.Chain = salvaged.Submissions, salvaged.Chain
	}
	if record.Sweep == nil {
		for _, id := range req.Dir.JobIDs() {
			record.StartChained(id)
		}
	}
	if sweep != nil {
		return record, nil
	}
	var err error
	record.Submissions, err = s.submissions(ctx, req.Dir, record)
	if p := record.Pending; p != nil && slices.ContainsFunc(record.Submissions, func(s rundir.Submission) bool { return s.ID == p.ID }) {
		record.Pending = nil
	}
	return record, err
}

// findBase returns the directory where the job file's relative paths start. Without other
// information, it is the innermost directory above the run directory that contains the job's
// files. The next submission with the job file corrects it. Directories of other users, and
// directories that every user can write to, do not count, because the job would run the files
// of another user. The result is empty if no directory is suitable.
func findBase(req RepairRequest, salvaged rundir.Record, sweep *rundir.Record) (base string, guessed bool) {
	switch {
	case req.Base != "":
		return req.Base, false
	case salvaged.Base != "":
		return salvaged.Base, false
	case sweep != nil:
		return sweep.Base, false
	}
	around := filepath.Dir(req.Dir.Path)
	if filepath.Base(around) == "runs" {
		around = filepath.Dir(around)
	}
	for base := around; ; base = filepath.Dir(base) {
		if isOwnDir(base) && req.Job.CheckFiles(base) == nil {
			return base, true
		}
		if base == filepath.Dir(base) {
			break
		}
	}
	if isOwnDir(around) {
		return around, true
	}
	return "", false
}

// isOwnDir reports whether the directory belongs to this user, and not all users can write to it.
func isOwnDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && safefile.CheckOwner(info) == nil && info.Mode().Perm()&0o002 == 0
}

// addSubmissionsOfElement adds to the record of a trial the submissions of its sweep that included the
// trial, and the chain of the last one. index is the index of the trial.
func addSubmissionsOfElement(record *rundir.Record, sweep rundir.Record, index int) {
	last := ""
	for _, s := range slices.Concat([]rundir.Submission(sweep.Submissions), sweep.Chain) {
		if !slices.Contains(s.Elements, index) || s.Follows != "" && s.Follows != last {
			continue
		}
		last = s.JobID
		s.JobID, s.Elements = fmt.Sprintf("%s_%d", s.JobID, index), nil
		if s.Follows != "" {
			s.Follows = fmt.Sprintf("%s_%d", s.Follows, index)
		}
		record.Add(s)
	}
}

// submissions returns all known submissions of the run that are not in its chain, ordered by job ID. The
// sources are the rebuilt part of the record, the trials of a sweep, the jobs' files, and Slurm. It does
// not query Slurm if nothing was submitted from the directory.
func (s Submitter) submissions(ctx context.Context, dir rundir.Dir, record rundir.Record) ([]rundir.Submission, error) {
	all, pending := []rundir.Submission(record.Submissions), record.Pending
	isChained := func(id string) bool {
		return slices.ContainsFunc(record.Chain, func(s rundir.Submission) bool { return s.JobID == id })
	}
	byJob := func(id string) *rundir.Submission {
		i := slices.IndexFunc(all, func(s rundir.Submission) bool { return s.JobID == id })
		if i < 0 {
			i = len(all)
			all = append(all, rundir.Submission{JobID: id})
		}
		return &all[i]
	}
	if record.Sweep != nil {
		for index := range record.Sweep.Elements {
			trial, err := dir.Element(index).ReadRecord()
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, fmt.Errorf("read the record of a trial: %w", err)
			}
			for _, sub := range trial.Submissions {
				if isChained(arrayJobID(sub.JobID)) {
					continue
				}
				merged := byJob(arrayJobID(sub.JobID))
				elements := append(merged.Elements, index)
				slices.Sort(elements)
				sub.JobID, sub.Elements = merged.JobID, slices.Compact(elements)
				*merged = sub
			}
		}
	} else {
		for _, id := range dir.JobIDs() {
			byJob(id)
		}
	}
	if _, err := os.Stat(dir.Script()); len(all) == 0 && pending == nil && errors.Is(err, fs.ErrNotExist) {
		return nil, nil // the run was never submitted
	}
	found, err := s.Slurm.FindByScript(ctx, dir.Script())
	switch {
	case errors.Is(err, exec.ErrNotFound):
		s.Say("warning: cannot query the jobs of this run: Slurm is not installed on this machine")
	case hints.Of(err) != "":
		return nil, err
	case err != nil:
		return nil, hints.Errorf("repair it again when the controller responds", "%w", err)
	}
	for _, job := range found {
		id, isOwn := strings.CutPrefix(job.Comment, rundir.Submission{}.Comment())
		id, _, _ = strings.Cut(id, " ") // the rest is slurm.comment
		if isChained(job.ID) || isOwn && pending != nil && pending.ID == id && pending.Follows != "" {
			continue // the job itself, or the next submission, adds a pending job to the chain
		}
		if merged := byJob(job.ID); isOwn && merged.ID == "" {
			merged.ID = id
		}
	}
	slices.SortStableFunc(all, func(a, b rundir.Submission) int { return slurm.CompareIDs(a.JobID, b.JobID) })
	return all, nil
}
