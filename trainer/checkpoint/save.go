package checkpoint

import (
	"bufio"
	"context"
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
	"github.com/ddpbatch/ddpbatch/trainer/safetensors"
)

// Save writes a checkpoint of m.Step into dir and returns its path. It creates dir with mode 0700
// if it is missing, but not its parent. It sets m.Files. If a verified checkpoint of the same run
// and the same position already exists, Save leaves it unchanged. It replaces any other checkpoint
// of the step, unless a different run wrote it.
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
			return "", s.wrapError(addHint(dir, err))
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
}

// Begin starts a [Save] whose files several processes write. One process calls Begin and Commit.
// Files that are not in Commit's list are not part of the checkpoint.
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
	old, err := readManifest(s.final)
	if errors.As(err, &NewerError{}) {
		return s, s.wrapError(err) // never replaced
	}
	if err == nil && old.Run != m.Run {
		return s, s.wrapError(fmt.Errorf("%q is a checkpoint of run %q, not of run %q", s.final, old.Run, m.Run))
	}
	if err == nil && old.Finished == m.Finished && old.Unevaluated == m.Unevaluated && Verify(context.Background(), s.final) == nil {
		s.Exists = true
		return s, nil
	}
	if err := Clean(dir); err != nil {
		return s, err
	}
	if err := checkFree(dir, bytes, format.Bytes(bytes)); err != nil {
		return s, s.wrapError(err)
	}
	if s.TempDir, err = os.MkdirTemp(dir, tempPrefix); err != nil {
		return s, s.wrapError(addHint(dir, err))
	}
	return s, nil
}

func (s Writer) wrapError(err error) error {
	return fmt.Errorf("save checkpoint of step %d: %w", s.m.Step, err)
}

// Path returns the path of the checkpoint, also before it exists.
func (s Writer) Path() string { return s.final }

// Abort removes the files written so far.
func (s Writer) Abort() { os.RemoveAll(s.TempDir) }

// Commit writes the manifest, makes the checkpoint visible, and returns its path. On error it
// removes all files.
func (s Writer) Commit(files []File) (path string, err error) {
	defer func() {
		if err != nil {
			s.Abort()
		}
	}()
	m := s.m
	m.Format, m.Files, m.Created = Format, files, m.Created.UTC()
	text, err := m.encode()
	if err != nil {
		return "", s.wrapError(err)
	}
	if err := writeFile(filepath.Join(s.TempDir, manifestName), func(w io.Writer) error {
		_, err := w.Write(text)
		return err
	}); err != nil {
		return "", s.wrapError(addHint(s.dir, err))
	}
	if err := syncDir(s.TempDir); err != nil {
		return "", s.wrapError(err)
	}
	replaced, err := replace(s.TempDir, s.final)
	if err != nil {
		return "", s.wrapError(err)
	}
	if err := syncDir(s.dir); err != nil {
		return "", s.wrapError(err)
	}
	if err := os.RemoveAll(replaced); err != nil {
		return "", fmt.Errorf("replace checkpoint of step %d: %w", m.Step, err)
	}
	return s.final, nil
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
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	w := bufio.NewWriterSize(f, bufferBytes) // large tensors bypass it
	err = write(w)
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
		return fmt.Errorf("write %q: %w", path, err)
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

func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := d.Sync(); err != nil {
		return fmt.Errorf("sync directory %q: %w", path, err)
	}
	return nil
}

// fullError is the error for a full disk or an exceeded quota.
type fullError struct {
	error
	earlier bool // the directory has checkpoints
}

func (f fullError) Unwrap() error { return f.error }

// Hint returns the fix.
func (f fullError) Hint() string {
	if f.earlier {
		return "the disk or your quota is full; earlier checkpoints are intact: free some space, then start the job again to resume from the newest one"
	}
	return "the disk or your quota is full, and nothing was saved yet: free some space, then start the job again"
}

// fileSizeError is the error for a file that exceeds the process's file size limit.
type fileSizeError struct {
	error
	earlier bool // the directory has checkpoints
}

func (t fileSizeError) Unwrap() error { return t.error }

// Hint returns the fix.
func (t fileSizeError) Hint() string {
	hint := "raise the limit on the size of files (`ulimit -f`), or use a file system that supports larger files"
	if t.earlier {
		hint += "; earlier checkpoints are intact"
	}
	return hint
}

// addHint adds a hint to a file system error. Dir is the directory of the checkpoints.
func addHint(dir string, err error) error {
	if errors.Is(err, syscall.EFBIG) {
		return fileSizeError{err, hasAny(dir)}
	}
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return fullError{err, hasAny(dir)}
	}
	return err
}
