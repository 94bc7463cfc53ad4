package jobs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// checkFile returns an error unless path is a file.
func checkFile(path string) error { return checkExists(path, false) }

// checkDirectory returns an error unless path is a directory.
func checkDirectory(path string) error { return checkExists(path, true) }

// checkVenv returns an error unless path is a virtual environment with an activation script.
func checkVenv(path string) error {
	if err := checkDirectory(path); err != nil {
		return err
	}
	const script = "bin/activate"
	if _, err := os.Stat(filepath.Join(path, script)); err != nil {
		return fmt.Errorf("%q has no %s", path, script)
	}
	return nil
}

// checkExists returns an error unless path is a file or, with directory, a directory.
func checkExists(path string, directory bool) error {
	want := "file"
	if directory {
		want = "directory"
	}
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("no such %s: %q", want, path)
	case err != nil:
		return fmt.Errorf("stat %q: %w", path, errors.Unwrap(err))
	case info.IsDir() != directory:
		return fmt.Errorf("%q is not a %s", path, want)
	}
	return nil
}

// checkFileOrPattern returns an error unless path is a file or its last part is a pattern that
// matches a file. In directory names, "*" is literal.
func checkFileOrPattern(path string) error {
	err := checkFile(path)
	dir, pattern := filepath.Dir(path), filepath.Base(path)
	if err == nil || !strings.ContainsAny(pattern, `*?[\`) {
		return err
	}
	if err := checkDirectory(dir); err != nil {
		return err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("read directory %q: %w", dir, errors.Unwrap(err))
	}
	if !slices.ContainsFunc(entries, func(e fs.DirEntry) bool {
		match, err := filepath.Match(pattern, e.Name())
		return match && err == nil && checkFile(filepath.Join(dir, e.Name())) == nil
	}) {
		return fmt.Errorf("no file in %q matches %q", dir, pattern)
	}
	return nil
}
