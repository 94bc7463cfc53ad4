package rundir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/ddpbatch/ddpbatch/internal/safefile"
)

// attemptPrefix is the prefix of the names of directories with the output of an attempt.
const attemptPrefix = "attempt-"

// RankOutput returns the path of the directory with the output of the ranks of an attempt of a
// user's program. Attempts are numbered from 1 across all launchers.
func (d Dir) RankOutput(attempt int) string {
	return filepath.Join(d.Path, logsName, fmt.Sprintf("%s%04d", attemptPrefix, attempt))
}

// An OutputDir is the open directory with the output of the ranks of one attempt. Ranks on several
// nodes write to it at the same time.
type OutputDir struct {
	root *os.Root
	path string
}

// CreateRankOutput opens the directory of [Dir.RankOutput] for writing. It creates the directory
// if necessary. The caller calls Close.
func (d Dir) CreateRankOutput(attempt int) (*OutputDir, error) {
	o, err := d.createRankOutput(filepath.Base(d.RankOutput(attempt)))
	if err != nil {
		return nil, fmt.Errorf("create the directory for the output of ranks: %w", err)
	}
	return o, nil
}

func (d Dir) createRankOutput(name string) (*OutputDir, error) {
	logs, err := d.openSubdir(logsName)
	if err != nil {
		return nil, err
	}
	defer logs.Close()
	attempt, err := openSubdir(logs, name)
	if err != nil {
		return nil, err
	}
	return &OutputDir{attempt, filepath.Join(d.Path, logsName, name)}, nil
}

// openSubdir opens a directory in the run directory, and creates it with mode 0700 if necessary.
func (d Dir) openSubdir(name string) (*os.Root, error) {
	root, done, err := d.open()
	if err != nil {
		return nil, err
	}
	defer done()
	return openSubdir(root, name)
}

// openSubdir opens a directory in root, and creates it with mode 0700 if necessary.
func openSubdir(root *os.Root, name string) (*os.Root, error) {
	if err := root.Mkdir(name, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	return safefile.OpenRootIn(root, name)
}

// Create opens a file for writing, and does not change its content. It creates the file with mode
// 0600 if necessary.
func (o *OutputDir) Create(name string) (*os.File, error) {
	return openToWrite(o.root, filepath.Join(o.path, name), os.O_CREATE|os.O_WRONLY)
}

// Remove removes a file, if it exists.
func (o *OutputDir) Remove(name string) error {
	if err := o.root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove %q: %w", filepath.Join(o.path, name), err)
	}
	return nil
}

// Close closes the directory. Open files stay open.
func (o *OutputDir) Close() { o.root.Close() }

// OutputAttempts returns the attempts whose output is in the directory, in ascending order.
func (d Dir) OutputAttempts() ([]int, error) {
	logs, err := d.openLogs()
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer logs.Close()
	return outputAttempts(logs)
}

func (d Dir) openLogs() (*os.Root, error) {
	root, done, err := d.open()
	if err != nil {
		return nil, err
	}
	defer done()
	return safefile.OpenRootIn(root, logsName)
}

func outputAttempts(logs *os.Root) (attempts []int, err error) {
	entries, err := fs.ReadDir(logs.FS(), ".")
	if err != nil {
		return nil, fmt.Errorf("list the output of attempts: %w", err)
	}
	for _, e := range entries {
		digits, ok := strings.CutPrefix(e.Name(), attemptPrefix)
		if n, err := strconv.Atoi(digits); ok && err == nil && n > 0 && e.IsDir() {
			attempts = append(attempts, n)
		}
	}
	slices.Sort(attempts)
	return attempts, nil
}

// ListRankOutput returns the names of the files with output of an attempt, sorted.
func (d Dir) ListRankOutput(attempt int) (names []string, err error) {
	logs, err := d.openLogs()
	if err != nil {
		return nil, err
	}
	defer logs.Close()
	entries, err := safefile.ReadDirIn(logs, filepath.Base(d.RankOutput(attempt)))
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, err
}

// OpenRankOutput opens a file with output of an attempt for reading.
func (d Dir) OpenRankOutput(attempt int, name string) (*os.File, error) {
	path, err := filepath.Rel(d.Path, d.RankOutput(attempt))
	if err != nil {
		return nil, err
	}
	return d.openBelow(filepath.Join(path, name))
}

// RemoveOldOutput removes the output of all attempts except the newest. keep is the number of
// attempts whose output remains. No rank may write the output of the attempts that it removes.
func (d Dir) RemoveOldOutput(keep int) error {
	logs, err := d.openLogs()
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer logs.Close()
	attempts, err := outputAttempts(logs)
	for _, n := range attempts[:max(0, len(attempts)-keep)] {
		err = errors.Join(err, logs.RemoveAll(filepath.Base(d.RankOutput(n))))
	}
	if err != nil {
		return fmt.Errorf("remove the output of old attempts: %w", err)
	}
	return nil
}
