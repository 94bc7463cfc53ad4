package checkpoint

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"syscall"

	"github.com/ddpbatch/ddpbatch/internal/format"
	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/internal/safefile"
	"github.com/ddpbatch/ddpbatch/trainer/safetensors"
)

// Save writes a checkpoint of m.Step into dir and returns its path. It creates dir with mode 0700
// if it is missing, but not its parent. It sets Format, Files, and the digests of m. If a verified
// checkpoint of the same run and the same position already exists, Save leaves it unchanged. It
// replaces any other checkpoint of the step, but returns an error if a different run or a newer
// version of the program wrote it.
func Save(dir string, m *Manifest, files Files) (path string, err error) {
	bytes := int64(0)
	for _, tensors := range files {
		for _, t := range tensors {
			bytes += 4 * int64(len(t.Data))
		}
	}
	s, err := begin(dir, m, bytes)
	if err != nil || s.Exists {
		return s.final, err
	}
	var written []File
	for _, n := range sortedKeys(files) {
		f, err := writeTensors(filepath.Join(s.TempDir, n), files[n])
		if err != nil {
			s.Abort()
			return "", s.wrapError(err)
		}
		written = append(written, f)
	}
	return s.Commit(written)
}

// A Writer is a checkpoint in progress, which is invisible until it is complete.
type Writer struct {
	// Exists reports that a verified checkpoint of the same position in the run already exists, so
	// nothing is left to do.
	Exists bool
	// TempDir is the directory for its files.
	TempDir string

	dir, final string
	m          *Manifest
	root       *os.Root // dir, in which files are renamed and removed; nil before the save has begun
}

// Begin starts a [Save] whose files several processes write. One process calls Begin and then,
// unless Exists is set, Commit or Abort. Files that are not in Commit's list are not part of the
// checkpoint.
func Begin(dir string, m *Manifest) (s Writer, err error) {
	bytes := int64(0)
	for _, shapes := range m.Sharded {
		for _, shape := range shapes {
			n := int64(4)
			for _, d := range shape {
				n *= int64(d)
			}
			bytes += n
		}
	}
	return begin(dir, m, bytes)
}

// begin starts a save of tensors with the given total size in bytes.
func begin(dir string, m *Manifest, bytes int64) (s Writer, err error) {
	s = Writer{dir: dir, final: filepath.Join(dir, name(m.Step)), m: m}
	if err := checkDir(dir); err != nil {
		return s, s.wrapError(err)
	}
	// Do not create the parent: a run directory that has been moved must not reappear at its old
	// path.
	if err := os.Mkdir(dir, 0o700); err != nil {
		if info, e := os.Stat(dir); e != nil || !info.IsDir() {
			return s, s.wrapError(err)
		}
	}
	root, err := openOwn(dir)
	if err != nil {
		return s, s.wrapError(err)
	}
	defer func() {
		if err != nil || s.Exists {
			root.Close()
		}
	}()
	old, _, err := openManifest(root, s.final)
	if errors.As(err, &NewerError{}) {
		return s, s.wrapError(err) // never replaced
	}
	if err == nil && old.Run != m.Run {
		return s, s.wrapError(fmt.Errorf("%q is a checkpoint of run %q, not of run %q", s.final, old.Run, m.Run))
	}
	if err == nil && old.Finished == m.Finished && old.Unevaluated == m.Unevaluated && verifyIn(context.Background(), root, s.final) == nil {
		s.Exists = true
		return s, nil
	}
	if err := clean(root); err != nil {
		return s, err
	}
	temp := tempPrefix + rand.Text()[:10]
	err = checkFree(dir, bytes, format.Bytes(bytes))
	if err == nil {
		err = root.Mkdir(temp, 0o700)
	}
	if err != nil {
		return s, s.wrapError(err)
	}
	s.root, s.TempDir = root, filepath.Join(dir, temp)
	return s, nil
}

func (s Writer) wrapError(err error) error {
	return fmt.Errorf("save checkpoint of step %d: %w", s.m.Step, addHint(s.dir, absolute(s.dir, err)))
}

// Path returns the path of the checkpoint, also before it exists.
func (s Writer) Path() string { return s.final }

// temp returns the name of the temporary directory.
func (s Writer) temp() string { return filepath.Base(s.TempDir) }

// Abort removes the files written so far. It does nothing if the save has not begun, or has ended.
func (s Writer) Abort() {
	if s.root != nil {
		_ = s.root.RemoveAll(s.temp()) // fails after the end, as intended
		s.root.Close()
	}
}

// Commit writes the manifest, makes the checkpoint visible, and returns its path. If an error
// occurs before the checkpoint is visible, Commit removes all files. After a later error, such as
// a failed sync of the directory, the checkpoint remains visible, and the next save removes the
// checkpoint that it replaced. The same applies if Commit cannot remove the replaced checkpoint.
func (s Writer) Commit(files []File) (path string, err error) {
	visible := false
	defer func() {
		if visible {
			s.root.Close() // the temporary name may be that of the replaced checkpoint now
		} else {
			s.Abort()
		}
	}()
	m := s.m
	m.Format, m.Files, m.Created = Format, files, m.Created.UTC()
	text, err := m.encode()
	if err != nil {
		return "", s.wrapError(err)
	}
	temp, err := s.root.OpenRoot(s.temp())
	if err != nil {
		return "", s.wrapError(err)
	}
	defer temp.Close()
	if err := s.checkFiles(temp, files); err != nil {
		return "", s.wrapError(absolute(s.TempDir, err))
	}
	f, err := temp.OpenFile(manifestName, createFlags, 0o600)
	if err == nil {
		err = writeTo(f, func(w io.Writer) error {
			_, err := w.Write(text)
			return err
		})
	}
	if err != nil {
		return "", s.wrapError(absolute(s.TempDir, err))
	}
	if err := syncDir(temp); err != nil {
		return "", s.wrapError(absolute(s.TempDir, err))
	}
	replaced, err := replace(s.root, s.temp(), filepath.Base(s.final))
	if err != nil {
		return "", s.wrapError(err)
	}
	visible = true
	if err := syncDir(s.root); err != nil {
		return "", s.wrapError(err)
	}
	if replaced != "" {
		_ = s.root.RemoveAll(replaced) // if it fails, the next save removes the old checkpoint
	}
	return s.final, nil
}

// checkFiles returns an error if a file is not in the temporary directory. Files are written by their
// paths, so they are elsewhere if another directory was at the path.
func (s Writer) checkFiles(temp *os.Root, files []File) error {
	for _, f := range files {
		if info, err := temp.Lstat(f.Name); err == nil && info.Mode().IsRegular() && info.Size() == f.Bytes {
			continue
		}
		// Another node wrote the file. An NFS client reads its attributes again only when it opens it.
		size, err := sizeOf(temp, f.Name)
		if err != nil {
			return err
		}
		if size != f.Bytes {
			return fmt.Errorf("%q has %d bytes, want %d", filepath.Join(s.TempDir, f.Name), size, f.Bytes)
		}
	}
	return nil
}

// sizeOf returns the size of a regular file.
func sizeOf(dir *os.Root, name string) (int64, error) {
	f, err := safefile.OpenIn(dir, name, safefile.NoFollow)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// metadata holds the entries that readers written for PyTorch expect.
var metadata = map[string]string{"format": "pt"}

func writeTensors(path string, tensors []safetensors.Tensor) (File, error) {
	return writeHashed(path, func(w io.Writer) error { return safetensors.Write(w, tensors, metadataWith(checksumsOf(tensors))) })
}

// writeHashed writes a file and returns its size and checksums. The first call of Write must write
// the whole header.
func writeHashed(path string, write func(io.Writer) error) (File, error) {
	f := File{Name: filepath.Base(path)}
	sum := sha256.New()
	err := writeFile(path, func(w io.Writer) error {
		count := &counter{w: io.MultiWriter(w, sum)}
		err := write(count)
		f.Bytes, f.HeaderCRC = count.n, formatChecksum(count.first)
		return err
	})
	f.SHA256 = hex.EncodeToString(sum.Sum(nil))
	return f, err
}

// writeFile creates a file and syncs it to disk.
func writeFile(path string, write func(io.Writer) error) error {
	f, err := os.OpenFile(path, createFlags, 0o600)
	if err != nil {
		return err
	}
	return writeTo(f, write)
}

// createFlags are the flags to create a file of a checkpoint.
const createFlags = os.O_CREATE | os.O_EXCL | os.O_WRONLY

// writeTo writes a new file, syncs it to disk, and closes it.
func writeTo(f *os.File, write func(io.Writer) error) error {
	w := bufio.NewWriterSize(f, bufferBytes) // large tensors bypass it
	err := write(w)
	if err == nil {
		err = w.Flush()
	}
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return fmt.Errorf("write %q: %w", f.Name(), err)
	}
	return nil
}

type counter struct {
	w     io.Writer
	n     int64
	first uint32 // checksum of the first write
}

func (c *counter) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	if c.n == 0 {
		c.first = crc32.Checksum(b[:n], castagnoli)
	}
	c.n += int64(n)
	return n, err
}

func syncDir(dir *os.Root) error {
	d, err := dir.Open(".")
	if err != nil {
		return err
	}
	defer d.Close()
	if err := d.Sync(); err != nil {
		return fmt.Errorf("sync directory %q: %w", dir.Name(), err)
	}
	return nil
}

// addHint adds a hint to a file system error. Dir is the directory of the checkpoints.
func addHint(dir string, err error) error {
	switch {
	case errors.Is(err, syscall.EFBIG):
		hint := "raise the limit on the size of files (`ulimit -f`), or use a file system that supports larger files"
		if hasAny(dir) {
			hint += "; earlier checkpoints are intact"
		}
		return hints.Add(err, hint)
	case errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT):
		return hints.Add(err, fullHint(dir))
	}
	return err
}

// fullHint returns the hint for a full disk or an exceeded quota. Dir is the directory of the
// checkpoints.
func fullHint(dir string) string {
	if hasAny(dir) {
		return "the disk or your quota is full; earlier checkpoints are intact: free some space, then start the job again to resume from the newest one"
	}
	return "the disk or your quota is full, and nothing was saved yet: free some space, then start the job again"
}
