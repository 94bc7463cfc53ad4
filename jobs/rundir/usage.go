package rundir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/ddpbatch/ddpbatch/internal/safefile"
)

const (
	// usageName is the directory with the measurements of package usage.
	usageName = "usage"
	// maxUsageAttempts is the number of attempts of which the files of nodes are retained:
	// measurements, and states of components.
	maxUsageAttempts = 5
	// maxUsageNodes is the maximum number of nodes whose files are read, and maxUsageBytes the
	// maximum size of these files: the directory may belong to another user.
	maxUsageNodes = 4096
	maxUsageBytes = 64 << 20
	// maxUsageEntries is the maximum number of names that are read. A launcher retains up to twice
	// maxUsageAttempts for each node, so this suffices for 20,000 nodes.
	maxUsageEntries = 200_000
)

// Usage returns the path of the file with the measurements of a node in an attempt. Attempts
// count from 1 across all launchers, nodes from 0.
func (d Dir) Usage(attempt, node int) string {
	return filepath.Join(d.Path, usageName, nodeFile(attempt, node))
}

// nodeFile returns the name of the file of a node in an attempt.
func nodeFile(attempt, node int) string {
	return fmt.Sprintf("attempt-%04d-node-%05d.json", attempt, node)
}

// WriteUsage replaces the file of [Dir.Usage] without a sync, and removes files of the node from old
// attempts.
func (d Dir) WriteUsage(attempt, node int, text []byte) error {
	err := d.writeNodeFile(usageName, attempt, node, text)
	if err != nil {
		return fmt.Errorf("write %q: %w", d.Usage(attempt, node), err)
	}
	return nil
}

// writeNodeFile replaces the file of a node in an attempt, without a sync, and removes files of the
// node from old attempts. name is the directory with such files. Only one process of each node
// may write.
func (d Dir) writeNodeFile(name string, attempt, node int, text []byte) error {
	dir, err := d.openSubdir(name)
	if err != nil {
		return err
	}
	defer dir.Close()
	temp := fmt.Sprintf("%s%s-%05d", tempPrefix, name, node)
	if err := dir.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := dir.WriteFile(temp, text, 0o600); err != nil {
		return err
	}
	if err := dir.Rename(temp, nodeFile(attempt, node)); err != nil {
		return err
	}
	for old := attempt - maxUsageAttempts; old > max(0, attempt-2*maxUsageAttempts); old-- {
		if err := dir.Remove(nodeFile(old, node)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// ReadUsage returns the files of the newest attempt that has any, at most limit bytes of each. It
// skips files that it cannot read.
func (d Dir) ReadUsage(limit int64) (files [][]byte, err error) {
	if files, err = d.readNodeFiles(usageName, limit); err != nil {
		return nil, fmt.Errorf("list the measurements of the ranks: %w", err)
	}
	return files, nil
}

// readNodeFiles returns the files of the newest attempt in a directory with files of nodes.
func (d Dir) readNodeFiles(dir string, limit int64) (files [][]byte, err error) {
	root, done, err := d.open()
	if err != nil {
		return nil, err
	}
	defer done()
	entries, err := safefile.ReadSomeIn(root, dir, maxUsageEntries)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	newest, names := 0, []string(nil)
	for _, e := range entries {
		var attempt, node int
		if _, err := fmt.Sscanf(e.Name(), "attempt-%d-node-%d.json", &attempt, &node); err != nil || e.Name() != nodeFile(attempt, node) {
			continue
		}
		if attempt > newest {
			newest, names = attempt, nil
		}
		if attempt == newest {
			names = append(names, e.Name())
		}
	}

	all := 0
	for _, name := range names[:min(len(names), maxUsageNodes)] {
		if all > maxUsageBytes {
			break
		}
		text, err := readSome(limit, func() (*os.File, error) { return d.openBelow(filepath.Join(dir, name)) })
		if err == nil {
			files, all = append(files, text), all+len(text)
		}
	}
	return files, nil
}
