package rundir

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/ddpbatch/ddpbatch/internal/safefile"
)

const (
	// maxSpec is the number of bytes that are read of a job file. It is more than
	// [jobs.Parse] accepts.
	maxSpec = 1<<20 + 1
	// maxSite is the same limit for a site's profile.
	maxSite = 1<<20 + 1
)

// OpenFile opens a file of a run directory for reading, by its path. The directory may
// belong to another user: links are not followed, and a FIFO is an error.
func OpenFile(path string) (*os.File, error) { return safefile.Open(path, safefile.NoFollow) }

// ReadSome returns up to most bytes of a file of a run directory. It opens the file like
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

// openFile is [OpenFile] for a name in the directory. If the directory is held, it opens
// the file there.
func (d Dir) openFile(name string) (*os.File, error) {
	if d.root == nil {
		return OpenFile(filepath.Join(d.Path, name))
	}
	return d.openBelow(name)
}

// openBelow is openFile for a relative path. A link in the path may not lead out of the
// directory.
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

// readFile returns up to most bytes of a file in the directory.
func (d Dir) readFile(name string, most int64) ([]byte, error) {
	return readSome(most, func() (*os.File, error) { return d.openFile(name) })
}

// ReadSpec returns the job file as it was submitted.
func (d Dir) ReadSpec() ([]byte, error) {
	text, err := d.readFile(specName, maxSpec)
	if err != nil {
		return nil, fmt.Errorf("read the stored job file: %w", err)
	}
	return text, nil
}

// ReadSite returns the profile of the job's site as it was at submission.
func (d Dir) ReadSite() ([]byte, error) {
	text, err := d.readFile(siteName, maxSite)
	if err != nil {
		return nil, fmt.Errorf("read the stored profile of the job's site: %w", err)
	}
	return text, nil
}

// JobDigest returns the SHA-256 of what a job takes from its run directory before it runs
// anything: the job file, the profile of its site, which holds shell commands, and the
// folder where relative paths of the job file start. Batch scripts in the queue hold it, so
// its definition cannot change.
func JobDigest(spec, site []byte, base string) string {
	text := fmt.Sprintf("ddpbatch job 1\nspec %x\nsite %x\nbase %q\n", sha256.Sum256(spec), sha256.Sum256(site), base)
	return fmt.Sprintf("%x", sha256.Sum256([]byte(text)))
}

// ReadRendezvous returns the content of rank 0's file. The file of another user would make
// this rank join that user's run, so it must be accessible to this user only.
func (d Dir) ReadRendezvous(jobID, stepID string, restart int) ([]byte, error) {
	return d.readPrivate(filepath.Base(d.Rendezvous(jobID, stepID, restart)))
}

// OpenRankLog opens a rank's own log for reading.
func (d Dir) OpenRankLog(rank int) (*os.File, error) {
	return d.openBelow(filepath.Join(logsName, filepath.Base(d.RankLog(rank))))
}

// OpenTrace opens a file in the folder of the ranks' timelines for reading.
func (d Dir) OpenTrace(name string) (*os.File, error) {
	return d.openBelow(filepath.Join(tracesName, name))
}
