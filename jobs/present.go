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

// isFile returns an error unless path is a file.
func isFile(path string) error { return present(path, false) }

// isFolder returns an error unless path is a directory.
func isFolder(path string) error { return present(path, true) }

// isVenv returns an error unless path is a virtual environment with an activation script.
func isVenv(path string) error {
	if err := isFolder(path); err != nil {
		return err
	}
	const script = "bin/activate"
	if _, err := os.Stat(filepath.Join(path, script)); err != nil {
		return fmt.Errorf("%q has no %s", path, script)
	}
	return nil
}

func present(path string, folder bool) error {
	want := "file"
	if folder {
		want = "folder"
	}
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("no such %s: %q", want, path)
	case err != nil:
		return fmt.Errorf("cannot look at %q: %w", path, errors.Unwrap(err))
	case info.IsDir() != folder:
		return fmt.Errorf("%q is not a %s", path, want)
	}
	return nil
}

// isFileOrPattern returns an error unless path is a file or its last part is a pattern that
// matches a file. In directory names, "*" is literal.
func isFileOrPattern(path string) error {
	err := isFile(path)
	folder, pattern := filepath.Dir(path), filepath.Base(path)
	if err == nil || !strings.ContainsAny(pattern, `*?[\`) {
		return err
	}
	if err := isFolder(folder); err != nil {
		return err
	}
	entries, err := os.ReadDir(folder)
	if err != nil {
		return fmt.Errorf("cannot look into %q: %w", folder, errors.Unwrap(err))
	}
	if !slices.ContainsFunc(entries, func(e fs.DirEntry) bool {
		match, err := filepath.Match(pattern, e.Name())
		return match && err == nil && isFile(filepath.Join(folder, e.Name())) == nil
	}) {
		return fmt.Errorf("no file in %q matches %q", folder, pattern)
	}
	return nil
}
