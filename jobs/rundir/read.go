package rundir

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/ddpbatch/ddpbatch/internal/safefile"
)

const (
	// maxSpec is the number of bytes to read from a job file. It exceeds the limit of
	// [jobs.Parse].
	maxSpec = 1<<20 + 1
	// maxSite is the number of bytes to read from a site profile.
	maxSite = 1<<20 + 1
)

// OpenFile opens the file at path in a run directory for reading. Because the directory may
// belong to another user, OpenFile rejects symbolic links and FIFOs.
func OpenFile(path string) (*os.File, error) { return safefile.Open(path, safefile.NoFollow) }

// ReadSome returns up to most bytes of a file in a run directory. It opens the file with
// [OpenFile].
func ReadSome(path string, most int64) ([]byte, error) {
	return readSome(most, func() (*os.File, error) { return OpenFile(path) })
}

func readSome(most int64, open func() (*os.File, error)) ([]byte, error) {
	f, err := open()
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, most))
}

// openFile opens the file with the given name in the directory, with the checks of [OpenFile].
// If the directory is held, it opens the file relative to the open directory.
func (d Dir) openFile(name string) (*os.File, error) {
	if d.root == nil {
		return OpenFile(filepath.Join(d.Path, name))
	}
	return d.openBelow(name)
}

// openBelow opens a file by its path relative to the directory. The path must not lead outside
// the directory through a symbolic link.
func (d Dir) openBelow(path string) (*os.File, error) {
	root, done, err := d.open()
	if err != nil {
		return nil, err
	}
	defer done()
	f, err := safefile.OpenIn(root, path, safefile.NoFollow)
	var where *fs.PathError
	if errors.As(err, &where) {
		err = &fs.PathError{Op: "open", Path: filepath.Join(d.Path, path), Err: where.Err}
	}
	return f, err
}

// OpenPath opens the file at a path below the directory for reading, such as [Dir.Metrics] or
// [Dir.OutputLog], with the checks of [OpenFile]. If the directory is held, it opens the file below
// the open directory.
func (d Dir) OpenPath(path string) (*os.File, error) {
	name, err := filepath.Rel(d.Path, path)
	if err != nil {
		return nil, err
	}
	return d.openBelow(name)
}

// StatPath returns the attributes of the file at a path below the directory. It does not follow a
// link at the path.
func (d Dir) StatPath(path string) (fs.FileInfo, error) {
	name, err := filepath.Rel(d.Path, path)
	if err != nil {
		return nil, err
	}
	root, done, err := d.open()
	if err != nil {
		return nil, err
	}
	defer done()
	return root.Lstat(name)
}

// readFile returns up to most bytes of a file in the directory.
func (d Dir) readFile(name string, most int64) ([]byte, error) {
	return readSome(most, func() (*os.File, error) { return d.openFile(name) })
}

// readJSON decodes a file of the directory of up to most bytes. It returns false if the file is
// missing or invalid.
func readJSON[T any](d Dir, name string, most int64) (T, bool) {
	text, err := d.readFile(name, most)
	var v, zero T
	if err != nil || json.Unmarshal(text, &v) != nil {
		return zero, false
	}
	return v, true
}

// ReadSpec returns the job file as submitted.
func (d Dir) ReadSpec() ([]byte, error) {
	text, err := d.readFile(specName, maxSpec)
	if err != nil {
		return nil, fmt.Errorf("read the stored job file: %w", err)
	}
	return text, nil
}

// ReadSite returns the site profile as of the submission.
func (d Dir) ReadSite() ([]byte, error) {
	text, err := d.readFile(siteName, maxSite)
	if err != nil {
		return nil, fmt.Errorf("read the stored profile of the job's site: %w", err)
	}
	return text, nil
}

// Digest returns the SHA-256 digest of text in hexadecimal.
func Digest(text []byte) string { return fmt.Sprintf("%x", sha256.Sum256(text)) }

// JobDigest returns the SHA-256 digest of all data that a job reads from its run directory
// before it runs a command. The data are the job file, the site profile, which contains shell
// commands, and the directory where the job file's relative paths start. Queued batch scripts
// contain the digest, so its definition must not change.
func JobDigest(spec, site []byte, base string) string {
	text := fmt.Sprintf("ddpbatch job 1\nspec %x\nsite %x\nbase %q\n", sha256.Sum256(spec), sha256.Sum256(site), base)
	return Digest([]byte(text))
}

// ReadRendezvous returns the content of rank 0's rendezvous file. It rejects files that other
// users can access: another user's file would make this rank join that user's run.
func (d Dir) ReadRendezvous(jobID, stepID string, restart int) ([]byte, error) {
	return d.readPrivate(filepath.Base(d.Rendezvous(jobID, stepID, restart)))
}

// OpenRankLog opens the log of a rank for reading.
func (d Dir) OpenRankLog(rank int) (*os.File, error) {
	return d.openBelow(filepath.Join(logsName, filepath.Base(d.RankLog(rank))))
}

// OpenTrace opens a file in the trace directory for reading.
func (d Dir) OpenTrace(name string) (*os.File, error) {
	return d.openBelow(filepath.Join(tracesName, name))
}
