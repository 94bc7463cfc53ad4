// Package rundir is the folder that holds everything of one run: the job file as
// submitted, the batch script, logs, figures and checkpoints.
//
// It promises that the folder and what this package writes in it are readable
// by their owner only, that a file is replaced whole or not at all, and that a
// folder which another user could tamper with is refused.
//
// It does not know what the files mean, and its lock holds among processes of
// one machine: two machines on a network file system are kept apart by the
// check for a queued or running job before submission, not by it.
package rundir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// Dir is a run directory.
type Dir struct {
	Path string // absolute
}

// problem is a folder that cannot be used, and what to do about it.
type problem struct {
	error
	hint string
}

func (p problem) Unwrap() error { return p.error }

// Hint says what to do about it.
func (p problem) Hint() string { return p.hint }

// Create makes the run directory at path (absolute), with mode 0700, or accepts
// the one that is there.
func Create(path string) (Dir, error) {
	d := Dir{path}
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return d, problem{fmt.Errorf("make run directory %q: %w", path, err), "choose another place with --run-dir"}
	}
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return d, problem{fmt.Errorf("make run directory %q: %w", path, err), "choose another place with --run-dir"}
	}
	return d, d.check()
}

// Open accepts a run directory that is there and holds a record.
func Open(path string) (Dir, error) {
	d := Dir{path}
	if _, err := os.Stat(d.record()); err != nil {
		return d, problem{fmt.Errorf("%q is not a run directory: %w", path, err), "name the directory that ddpbatch submit or launch printed"}
	}
	return d, d.check()
}

// check refuses a folder that is not this user's own, and one that cannot be
// written to: Slurm would fail the job without any log.
func (d Dir) check() error {
	info, err := os.Lstat(d.Path)
	if err != nil {
		return fmt.Errorf("run directory: %w", err)
	}
	another := "choose another place with --run-dir"
	switch stat := info.Sys().(*syscall.Stat_t); {
	case info.Mode()&fs.ModeSymlink != 0:
		return problem{fmt.Errorf("run directory %q is a symbolic link", d.Path), "name the directory that it leads to"}
	case !info.IsDir():
		return problem{fmt.Errorf("run directory %q is not a directory", d.Path), another}
	case int(stat.Uid) != os.Geteuid():
		return problem{fmt.Errorf("run directory %q belongs to user %d, not to you (%d)", d.Path, stat.Uid, os.Geteuid()), another}
	case info.Mode().Perm()&0o022 != 0:
		return problem{fmt.Errorf("run directory %q can be written by others (mode %04o)", d.Path, info.Mode().Perm()),
			"take the right away: chmod go-w DIR"}
	}
	probe, err := os.CreateTemp(d.Path, ".probe-")
	if err != nil {
		return problem{fmt.Errorf("run directory %q cannot be written: %w", d.Path, err), another}
	}
	probe.Close()
	return os.Remove(probe.Name())
}

// Spec is the job file as submitted.
func (d Dir) Spec() string { return filepath.Join(d.Path, "job.toml") }

// Script is the batch script as submitted.
func (d Dir) Script() string { return filepath.Join(d.Path, "job.sbatch") }

// BatchLog is what the batch script and the ranks of a job print.
func (d Dir) BatchLog(jobID string) string {
	return filepath.Join(d.Path, "slurm-"+jobID+".out")
}

// RankLog is a rank's own log, as JSON lines.
func (d Dir) RankLog(rank int) string {
	return filepath.Join(d.Path, "logs", fmt.Sprintf("rank-%05d.jsonl", rank))
}

// Metrics is the file of the run's figures, as JSON lines.
func (d Dir) Metrics() string { return filepath.Join(d.Path, "metrics.jsonl") }

// Checkpoints is the folder of checkpoints.
func (d Dir) Checkpoints() string { return filepath.Join(d.Path, "checkpoints") }

// Failure tells how the last attempt failed; there is none after a success.
func (d Dir) Failure() string { return filepath.Join(d.Path, "failure.json") }

// Rendezvous is where the ranks of a step without a launcher find rank 0.
func (d Dir) Rendezvous(jobID, stepID string, restart int) string {
	return filepath.Join(d.Path, fmt.Sprintf("rendezvous-%s-%s-%d.json", jobID, stepID, restart))
}

func (d Dir) record() string { return filepath.Join(d.Path, "record.json") }

// Write replaces a file of the directory, whole or not at all, with mode 0600.
func (d Dir) Write(path string, text []byte) error {
	temp, err := os.CreateTemp(d.Path, ".write-")
	if err != nil {
		return err
	}
	defer os.Remove(temp.Name())
	_, err = temp.Write(text)
	if err == nil {
		err = temp.Sync()
	}
	if cerr := temp.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return fmt.Errorf("write %q: %w", path, err)
	}
	return os.Rename(temp.Name(), path)
}
