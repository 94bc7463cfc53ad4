package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/internal/safefile"
	"github.com/ddpbatch/ddpbatch/jobs/runs"
)

// fallbackDir is the directory in which Slurm starts a batch script or a step if it cannot open the
// directory of the job.
const fallbackDir = "/tmp"

// checkFallbackDir returns an error if Slurm started this process in fallbackDir. Other users can put
// a job file or a program there, which would then be used instead of the user's file. The directory of
// the job may exist again, or may not be the one that was missing. So checkFallbackDir also returns an
// error if one of the names is relative and leads to a file there that belongs to a different user. It
// ignores flags.
func (p *program) checkFallbackDir(names ...string) error {
	if id, _ := p.lookup("SLURM_JOB_ID"); id == "" || !runs.IsSameDir(p.Dir, fallbackDir) {
		return nil
	}
	if dir, ok := p.lookup("SLURM_SUBMIT_DIR"); ok && !runs.IsSameDir(dir, p.Dir) {
		if _, err := os.Stat(dir); err != nil {
			return hints.Errorf("submit the job from a directory that exists on all nodes", "the batch script runs in %s on %s, because its directory is not available: %w", fallbackDir, hostName(), err)
		}
	}
	for _, name := range names {
		if filepath.IsAbs(name) || strings.HasPrefix(name, "-") {
			continue
		}
		for path := filepath.Clean(name); path != "."; path = filepath.Dir(path) {
			if owner, found := untrustedOwner(filepath.Join(p.Dir, path)); found {
				return hints.Errorf("name your own file by its absolute path",
					"%q belongs to user %d; Slurm starts a job in %s if %s does not have the job's directory", filepath.Join(fallbackDir, path), owner, fallbackDir, hostName())
			}
		}
	}
	return nil
}

// untrustedOwner returns the owner of a file, or of the symbolic link at its path, if this is neither
// this user nor root.
func untrustedOwner(path string) (uid int, found bool) {
	for _, stat := range []func(string) (fs.FileInfo, error){os.Lstat, os.Stat} {
		if info, err := stat(path); err == nil {
			if uid, ok := safefile.Owner(info); ok && !safefile.IsTrusted(uid) {
				return uid, true
			}
		}
	}
	return 0, false
}
