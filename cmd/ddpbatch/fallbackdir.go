package main

import (
	"errors"
	"fmt"
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
// the job may exist again, or may not be the one that was missing, and the batch script may have changed
// to a directory below fallbackDir. So checkFallbackDir also returns an error if that directory, or one of
// the files in fallbackDir, belongs to a different user. It ignores files with an absolute path, and missing
// files unless required is set: another user could create a file after the check.
func (p *program) checkFallbackDir(required bool, files ...string) error {
	if id, _ := p.lookup("SLURM_JOB_ID"); id == "" {
		return nil
	}
	isFallback := runs.IsSameDir(p.Dir, fallbackDir)
	if dir, ok := p.lookup("SLURM_SUBMIT_DIR"); ok && isFallback && !runs.IsSameDir(dir, p.Dir) {
		if _, err := os.Stat(dir); err != nil {
			return hints.Errorf("submit the job from a directory that exists on all nodes, or change to a directory other than "+fallbackDir,
				"the batch script runs in %s on %s, because its directory is not available: %w", fallbackDir, hostName(), err)
		}
	}
	paths := []string{p.Dir}
	for _, name := range files {
		// The owner of a directory below fallbackDir chooses the files in it.
		if name = filepath.Clean(name); !filepath.IsAbs(name) && (isFallback || strings.HasPrefix(name, "..")) {
			paths = append(paths, filepath.Join(p.Dir, name))
		}
	}
	for i, path := range paths {
		var err error
		for ; filepath.IsAbs(path) && path != "/" && !runs.IsSameDir(path, fallbackDir); path = filepath.Dir(path) {
			switch owner, found, missing := untrustedOwner(path); {
			case found:
				err = hints.Errorf("name your own file by its absolute path, or start in a directory that belongs to you",
					"%q belongs to user %d; Slurm starts a job in %s if %s does not have the job's directory", path, owner, fallbackDir, hostName())
			case missing != nil && (required || i == 0):
				err = exitError{exitUsage, fmt.Errorf("check who owns %q: %w", path, errors.Unwrap(missing))}
			}
		}
		if err != nil && runs.IsSameDir(path, fallbackDir) {
			return err
		}
	}
	return nil
}

// commandFiles returns the words of a command that can be names of files: words with a slash or a dot,
// such values in words such as --config=FILE, and the module after -m. A first word without a slash is in
// PATH, unless startsScript is set.
func commandFiles(argv []string, startsScript bool) (files []string) {
	for i, word := range argv {
		if _, value, ok := strings.Cut(word, "="); ok && strings.ContainsAny(value, "/.") {
			files = append(files, value)
		}
		switch {
		case i > 0 && argv[i-1] == "-m":
			module, _, _ := strings.Cut(word, ".")
			files = append(files, module, module+".py")
		case strings.HasPrefix(word, "-"), i == 0 && !startsScript && !strings.Contains(word, "/"), !strings.ContainsAny(word, "/."):
		default:
			files = append(files, word)
		}
	}
	return files
}

// untrustedOwner returns the owner of a file, or of the symbolic link at its path, if this is neither
// this user nor root. The error reports a file that does not exist or cannot be examined.
func untrustedOwner(path string) (uid int, found bool, err error) {
	for _, stat := range []func(string) (fs.FileInfo, error){os.Lstat, os.Stat} {
		info, err := stat(path)
		if err != nil {
			return 0, false, err
		}
		if uid, ok := safefile.Owner(info); ok && !safefile.IsTrusted(uid) {
			return uid, true, nil
		}
	}
	return 0, false, nil
}
