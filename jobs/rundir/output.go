package rundir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const (
	launchLogPrefix = "launch-"
	launchLogSuffix = ".out"
	launchLogTime   = "20060102T150405.000Z" // UTC; names sort by time
	// maxLaunchLogs is the number of launches whose output is retained. It keeps a run that a
	// user launches repeatedly from filling the disk.
	maxLaunchLogs = 10
)

// A LaunchLog is the file with the output of one launch outside Slurm: the output of the ranks
// and the launcher. For a submitted job, the file is [Dir.BatchLog].
type LaunchLog struct {
	Path  string
	Began time.Time
}

// LaunchLogs returns the logs of launches outside Slurm, oldest first.
func (d Dir) LaunchLogs() ([]LaunchLog, error) {
	entries, err := d.readDir()
	if err != nil {
		return nil, fmt.Errorf("list the logs of launches: %w", err)
	}
	var logs []LaunchLog
	for _, e := range entries {
		text, ok := strings.CutPrefix(e.Name(), launchLogPrefix)
		text, ok2 := strings.CutSuffix(text, launchLogSuffix)
		if began, err := time.Parse(launchLogTime, text); ok && ok2 && err == nil && e.Type().IsRegular() {
			logs = append(logs, LaunchLog{filepath.Join(d.Path, e.Name()), began})
		}
	}
	slices.SortFunc(logs, func(a, b LaunchLog) int { return a.Began.Compare(b.Began) })
	return logs, nil
}

// CreateLaunchLog creates the log of a launch that starts at now. It removes the oldest logs
// so that at most ten remain. The caller must hold the launcher lock. If the removal fails,
// CreateLaunchLog returns both the file and an error.
func (d Dir) CreateLaunchLog(now time.Time) (*os.File, error) {
	logs, err := d.LaunchLogs()
	if err != nil {
		return nil, err
	}
	began := now.UTC().Truncate(time.Millisecond)
	if n := len(logs); n > 0 && !began.After(logs[n-1].Began) {
		// The clock was set back. The newest log must still have the latest time.
		began = logs[n-1].Began.Add(time.Millisecond)
	}
	name := launchLogPrefix + began.Format(launchLogTime) + launchLogSuffix
	f, err := d.openToWrite(name, os.O_WRONLY|os.O_APPEND|os.O_CREATE|os.O_EXCL)
	if err != nil {
		return nil, fmt.Errorf("create the log of a launch: %w", err)
	}
	if len(logs) < maxLaunchLogs {
		return f, nil
	}
	root, done, err := d.open()
	if err != nil {
		return f, err
	}
	defer done()
	for len(logs) >= maxLaunchLogs {
		if err := root.Remove(filepath.Base(logs[0].Path)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return f, fmt.Errorf("remove the log of an old launch: %w", err)
		}
		logs = logs[1:]
	}
	return f, nil
}

// readDir returns the entries of the directory.
func (d Dir) readDir() ([]fs.DirEntry, error) {
	root, done, err := d.open()
	if err != nil {
		return nil, err
	}
	defer done()
	return fs.ReadDir(root.FS(), ".")
}

// OpenBatchLog opens the log of a job for appending, and creates it if necessary. It is for a
// launcher that writes the log instead of Slurm. A job may start several launchers in
// sequence.
func (d Dir) OpenBatchLog(jobID string) (*os.File, error) {
	f, err := d.openToWrite(filepath.Base(d.BatchLog(jobID)), os.O_WRONLY|os.O_APPEND|os.O_CREATE)
	if err != nil {
		return nil, fmt.Errorf("open the log of job %s: %w", jobID, err)
	}
	return f, nil
}

// OutputLog returns the path of the file with the newest output of a run. This is the log of
// its last job, or the log of a later launch outside Slurm. The path is empty if the run was
// never submitted and has no launch logs.
func (d Dir) OutputLog(r Record) string {
	last := r.Last()
	if logs, err := d.LaunchLogs(); err == nil && len(logs) > 0 {
		// Submission times have a resolution of one second.
		if newest := logs[len(logs)-1]; last == nil || newest.Began.Truncate(time.Second).After(last.Time) {
			return newest.Path
		}
	}
	if last == nil {
		return ""
	}
	return d.BatchLog(last.JobID)
}
