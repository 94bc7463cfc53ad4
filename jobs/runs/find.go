package runs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/ddpbatch/ddpbatch/internal/exitcode"
	"github.com/ddpbatch/ddpbatch/internal/format"
	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/internal/lazyregexp"
	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/jobs/rundir"
	"github.com/ddpbatch/ddpbatch/jobs/submit"
	"github.com/ddpbatch/ddpbatch/slurm"
)

// DefaultDir is the name of the default parent directory of run directories.
const DefaultDir = "runs"

// A Store finds runs. It must not be used by several goroutines at the same time.
type Store struct {
	// Dir is the directory that relative paths start at. Names select runs in its
	// subdirectory [DefaultDir].
	Dir   string
	Slurm slurm.Client
	// Note receives facts that the user should know and that do not prevent a result, such as
	// a run that is not readable. It may be nil.
	Note func(string)

	records map[string]cachedRecord // by run directory; see List
}

// cachedRecord is a record and the attributes of its file.
type cachedRecord struct {
	record rundir.Record
	file   fs.FileInfo
}

// Runs returns the default directory of runs.
func (s *Store) Runs() string { return filepath.Join(s.Dir, DefaultDir) }

// Abs returns path as an absolute path.
func (s *Store) Abs(path string) string {
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(s.Dir, path)
}

func (s *Store) note(format string, args ...any) {
	if s.Note != nil {
		s.Note(fmt.Sprintf(format, args...))
	}
}

// jobIDPattern matches the ID of a job or of an array task.
var jobIDPattern = lazyregexp.New(`^[0-9]+(_[0-9]+)?$`)

// isJobID reports whether arg has the form of a job ID or of an array task ID.
func isJobID(arg string) bool { return jobIDPattern().MatchString(arg) }

// trialPattern matches the name of a trial of a sweep, "SWEEP/INDEX".
var trialPattern = lazyregexp.New(`^([^/]+)/([0-9]+)$`)

// isName reports whether arg can be a name or an ID, in contrast to a path that the user
// wrote out.
func isName(arg string) bool {
	return arg != "." && arg != ".." && (!strings.Contains(arg, "/") || trialPattern().MatchString(arg))
}

// errEmptyName is the error for an unset shell variable. An empty path would select the current
// directory.
var errEmptyName = exitcode.Add(exitcode.Usage, errors.New("the name of the run is empty"))

// Find returns the run that arg names. The argument can be:
//
//   - a run directory
//   - a job file, for its default run directory
//   - the name of a directory below [DefaultDir]
//   - the ID of a job that was submitted from a directory below [DefaultDir]
//   - for a trial of a sweep, an array task ID such as "18_3", or "SWEEP/INDEX"
//
// A name selects the user's own run if there is one. Find passes a note if the run belongs to
// another user. If only the record is invalid, the run with the error has the directory.
func (s *Store) Find(arg string) (Run, error) {
	if arg == "" {
		return Run{}, errEmptyName
	}
	if run, ok, err := s.FindOwn(arg); ok {
		return run, err
	}
	run, err := s.findAny(arg)
	if err == nil && !IsOwn(run.Dir.Path) {
		s.note("%q is a run of another user, in %q", arg, run.Dir.Path)
	}
	return run, err
}

// FindOwn returns the user's own run that a name or an ID selects. It returns false if there is
// no such run, or if arg is a path or the user's own file. If only the record is invalid, the run with
// the error has the directory. If the record is missing, ok is true for a directory with checkpoints.
func (s *Store) FindOwn(arg string) (run Run, ok bool, err error) {
	if path, ok := s.OwnDir(arg); ok {
		if run, err := Open(path); run.Dir.Path != "" || (rundir.Dir{Path: path}).HasCheckpoints() {
			return run, true, err
		}
	}
	if !isJobID(arg) || isOwnEntry(s.Abs(arg)) || !entryExists(s.Abs(arg)) && !entryExists(filepath.Join(s.Runs(), arg)) {
		return Run{}, false, nil // findAny looks up a job ID if no file has its name
	}
	if run, err = s.findJob(arg); run.Dir.Path == "" || !IsOwn(run.Dir.Path) {
		return Run{}, false, nil
	}
	return run, true, err
}

// OwnDir returns the user's own directory that a name selects, whose record may be corrupt or missing.
// It returns false if there is no such directory, or if arg is a path or the user's own file.
func (s *Store) OwnDir(arg string) (path string, ok bool) {
	if arg == "" || !isName(arg) || isOwnEntry(s.Abs(arg)) {
		return "", false
	}
	path = filepath.Join(s.Runs(), arg)
	if m := trialPattern().FindStringSubmatch(arg); m != nil {
		if !isOwnEntry(filepath.Join(s.Runs(), m[1])) {
			return "", false
		}
		path = s.trialPath(m[1], m[2])
	}
	return path, isOwnEntry(path)
}

// trialPath returns the run directory of a trial of the sweep with this name. The index is the
// user's text, which can have leading zeros.
func (s *Store) trialPath(sweep, index string) string {
	return filepath.Join(s.Runs(), sweep, "elements", index)
}

// findAny returns the run that arg names, whoever owns it.
func (s *Store) findAny(arg string) (Run, error) {
	path, named := s.Abs(arg), filepath.Join(s.Runs(), arg)
	if IsRunDir(named) && !IsRunDir(path) && !strings.HasSuffix(arg, ".toml") {
		// The user's code or data often has the same name as the run.
		return Open(named)
	}
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) && entryExists(named) {
		// The error from a run directory that cannot be opened is more useful than "not
		// found".
		return Open(named)
	}
	switch {
	case err == nil && info.IsDir():
		return Open(path)
	case err == nil:
		job, err := readJob(arg, path)
		if err != nil {
			return Run{}, exitcode.Add(exitcode.Usage, err)
		}
		return Open(s.DirFor(job, filepath.Dir(path)).Path)
	case !errors.Is(err, fs.ErrNotExist):
		return Run{}, exitcode.Add(exitcode.Usage, err)
	case isJobID(arg):
		return s.findJob(arg)
	}
	if m := trialPattern().FindStringSubmatch(arg); m != nil {
		sweep := filepath.Join(s.Runs(), m[1])
		if info, err := os.Lstat(sweep); err == nil && info.Mode()&fs.ModeSymlink != 0 && !isOwnFile(info) {
			return Run{}, exitcode.Add(exitcode.Usage, fmt.Errorf("%q is a symbolic link of another user", sweep))
		}
		trial := s.trialPath(m[1], m[2])
		if _, err := os.Stat(trial); err == nil {
			return Open(trial)
		}
	}
	return Run{}, exitcode.Usagef("`ddpbatch status` lists the runs below "+DefaultDir+"/",
		"no run %q: not a run directory, a job file, or a job ID", arg)
}

// readJob parses the job file at path, which can be a file of another user with the name of a run.
// Diagnostics name it as the user did.
func readJob(name, path string) (*jobs.Job, error) {
	src, err := jobs.ReadRegular(path)
	if err != nil {
		return nil, err
	}
	return jobs.Parse(name, src)
}

// findJob returns the run with the given job ID from the default directory of runs. It prefers
// the user's own runs, because the record of another user's run can claim any job ID.
func (s *Store) findJob(id string) (Run, error) {
	found, unreadable, err := s.List(s.Runs())
	if err != nil {
		return Run{}, err
	}
	for _, err := range unreadable {
		s.note("%v", err)
		if hint := hints.Of(err); hint != "" {
			s.note("hint: %s", hint)
		}
	}
	slices.SortStableFunc(found, func(a, b Run) int {
		// A link of another user to a run of this user does not count.
		switch ownA, ownB := isOwnEntry(a.Dir.Path), isOwnEntry(b.Dir.Path); {
		case ownA == ownB:
			return 0
		case ownA:
			return -1
		}
		return 1
	})
	array, task, isTask := strings.Cut(id, "_")
	for _, r := range found {
		switch {
		case r.Record.Of(id) != nil:
			return r, nil
		case isTask && r.Record.Of(array) != nil:
			index, err := strconv.Atoi(task)
			if err != nil {
				return Run{}, exitcode.Add(exitcode.Usage, err)
			}
			return Open(r.Dir.Element(index).Path)
		}
	}
	return Run{}, exitcode.Usagef("name its run directory instead", "no run below %q was submitted as job %s", s.Runs(), id)
}

// FindWithJob is like Find, but also resolves an interrupted submission, so that the record
// contains the run's last job. It does not resolve submissions of other users, because it
// cannot change their records.
func (s *Store) FindWithJob(ctx context.Context, arg string) (Run, error) {
	run, err := s.Find(arg)
	if err != nil || run.Record.Pending == nil || !IsOwn(run.Dir.Path) {
		return run, err
	}
	dir, release, err := rundir.OpenOwn(run.Dir.Path)
	if err != nil {
		return run, err
	}
	defer release()
	submitter := submit.Submitter{Slurm: s.Slurm, Say: func(line string) { s.note("%s", line) }}
	if err := submitter.RecoverPending(ctx, dir); err != nil {
		return run, err
	}
	return Open(run.Dir.Path)
}

// FindDependency returns the run directory that a dependency of a job names. It searches from
// s.Dir, and then from base, the directory of the job file. The user's own run at base has precedence
// over a run of another user at s.Dir. FindDependency returns nil for a job ID that belongs to no known
// run.
func (s *Store) FindDependency(base, name string) (*rundir.Dir, error) {
	atBase := &Store{Dir: base, Slurm: s.Slurm, Note: s.Note}
	_, own := s.OwnDir(name)
	if !own && !isOwnEntry(s.Abs(name)) {
		if _, own = atBase.OwnDir(name); own {
			s = atBase
		}
	}
	run, err := s.Find(name)
	if err != nil && !IsSameDir(base, s.Dir) {
		if found, e := atBase.Find(name); e == nil && (!own && run.Dir.Path == "" || IsOwn(found.Dir.Path)) {
			run, err = found, nil
		}
	}
	if err == nil {
		return &run.Dir, run.CheckSweepSize()
	}
	if isJobID(name) {
		return nil, nil
	}
	return nil, err
}

// minRecordAge is the minimum age of a record whose file attributes identify it. The clock of a
// file system may have a resolution of a second and differ from the clock of this host.
const minRecordAge = time.Minute

// List returns the runs in a directory, sorted by name, and an error for each run that it cannot
// read, but at most 5 for each other user. It omits runs of other users with very large records,
// with one error for each of these users. It also omits symbolic links of other users, with one error for
// all of them, and runs of other users whose checkpoints are reached through such a link. Both results are empty
// if the directory does not exist. A repeated call reads only records that have changed.
func (s *Store) List(dir string) (found []Run, unreadable []error, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, err
	}
	budget := newReadBudget(maxForeignRecords)
	var skipped skippedRuns
	read := map[string]bool{}
	links := 0
	for _, e := range entries {
		d := rundir.Dir{Path: filepath.Join(dir, e.Name())}
		if e.Type()&fs.ModeSymlink != 0 && isForeignLink(d.Path) { // the target can be on a file server that does not answer
			links++
			continue
		}
		cost := func() int64 { return recordCost(d) }
		user, foreign := foreignOwner(d.Path)
		if foreign && !budget.take(user, cost) {
			continue
		}
		read[d.Path] = true
		record, err := s.readRecord(d)
		if foreign && isForeignLink(d.Checkpoints()) {
			err = foreignLinkError(d.Checkpoints())
		} else if errors.Is(err, fs.ErrNotExist) && d.HasCheckpoints() {
			_, err = rundir.Open(d.Path)
		} else if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
			continue // not a run directory
		}
		if err != nil {
			skipped.add(user, foreign, err)
			continue
		}
		found = append(found, Run{d, record})
	}
	// Another user can replace runs by others with new names, again and again.
	maps.DeleteFunc(s.records, func(path string, _ cachedRecord) bool {
		return filepath.Dir(path) == filepath.Clean(dir) && !read[path]
	})
	unreadable = append(skipped.errors(), budget.errors()...)
	if links > 0 {
		unreadable = append(unreadable, hints.Errorf("name such a run by its path", "left out: %s of other users below %q", format.Count(links, "symbolic link"), dir))
	}
	return found, unreadable, nil
}

// readRecord returns the record of a run directory, from the cache if its file has not changed.
func (s *Store) readRecord(d rundir.Dir) (rundir.Record, error) {
	file, err := os.Lstat(d.Record())
	if err != nil {
		file = nil
	}
	old, ok := s.records[d.Path]
	if ok && file != nil && isUnchanged(old.file, file) {
		return old.record, nil
	}
	record, err := d.ReadRecord()
	if err == nil && file != nil && time.Since(file.ModTime()) > minRecordAge {
		if s.records == nil {
			s.records = make(map[string]cachedRecord)
		}
		s.records[d.Path] = cachedRecord{record, file}
	}
	return record, err
}

// isUnchanged reports whether two results of stat describe the same content. Records and
// directories get a new modification time with each change.
func isUnchanged(before, now fs.FileInfo) bool {
	return os.SameFile(before, now) && before.ModTime().Equal(now.ModTime()) && before.Size() == now.Size()
}

// DirFor returns the default run directory of a job: NAME in the directory of runs. Base is the
// directory of the job file.
//
// If that directory is not the user's own run of the job, DirFor also searches for runs/NAME in the
// directory of the job file and in its parents. Otherwise, the same command in a different
// directory would silently start a second run.
func (s *Store) DirFor(job *jobs.Job, base string) rundir.Dir {
	here := rundir.Dir{Path: filepath.Join(s.Runs(), string(job.Name))}
	// The record of another user's run could claim to be a run of the job.
	if IsOwn(here.Path) && isRunOf(here, job, base) {
		return here
	}
	// Do not search directories of other users: /home, for example, can be an automount point.
	for parent := base; IsOwn(parent) || parent == base; parent = filepath.Dir(parent) {
		dir := rundir.Dir{Path: filepath.Join(parent, DefaultDir, string(job.Name))}
		if IsOwn(dir.Path) && isRunOf(dir, job, base) {
			return dir
		}
		if parent == filepath.Dir(parent) {
			break
		}
	}
	return here
}

// isRunOf reports whether dir contains a run of the job, or a run with a corrupt record. The
// error of a corrupt record names the command that repairs it.
func isRunOf(dir rundir.Dir, job *jobs.Job, base string) bool {
	record, err := dir.ReadRecord()
	if err != nil {
		return hints.Of(err) != "" && !errors.Is(err, fs.ErrNotExist)
	}
	return record.Name == string(job.Name) && IsSameDir(record.Base, base)
}
