package checkpoint

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/ddpbatch/ddpbatch/trainer/safetensors"
)

// Save writes a checkpoint of m.Step into dir, which it creates with mode 0700
// where it is missing, and returns its path. m.Files is filled in. A checkpoint
// of the same place in the same run that verifies is left as it is; another one
// of the step is replaced.
func Save(dir string, m *Manifest, files Files) (path string, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("save checkpoint of step %d: %w", m.Step, err)
	}
	final := filepath.Join(dir, name(m.Step))
	if old, err := readManifest(final); err == nil && old.Run == m.Run && old.Finished == m.Finished && old.Unevaluated == m.Unevaluated && Verify(final) == nil {
		return final, nil
	}
	if err := Clean(dir); err != nil {
		return "", err
	}
	temp, err := os.MkdirTemp(dir, tempPrefix)
	if err != nil {
		return "", fmt.Errorf("save checkpoint of step %d: %w", m.Step, explain(err))
	}
	defer func() {
		if err != nil {
			os.RemoveAll(temp)
		}
	}()
	m.Format, m.Files, m.Created = Format, nil, m.Created.UTC()
	names := make([]string, 0, len(files))
	for n := range files {
		names = append(names, n)
	}
	slices.Sort(names)
	for _, n := range names {
		f, err := writeTensors(filepath.Join(temp, n), files[n])
		if err != nil {
			return "", fmt.Errorf("save checkpoint of step %d: %w", m.Step, explain(err))
		}
		m.Files = append(m.Files, f)
	}
	if m.Digest, err = m.sum(); err != nil {
		return "", fmt.Errorf("save checkpoint of step %d: %w", m.Step, err)
	}
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return "", fmt.Errorf("save checkpoint of step %d: %w", m.Step, err)
	}
	if err := writeFile(filepath.Join(temp, manifestName), func(w io.Writer) error {
		_, err := w.Write(append(text, '\n'))
		return err
	}); err != nil {
		return "", fmt.Errorf("save checkpoint of step %d: %w", m.Step, explain(err))
	}
	if err := syncDir(temp); err != nil {
		return "", fmt.Errorf("save checkpoint of step %d: %w", m.Step, err)
	}
	replaced, err := setAside(final) // nothing is lost before the new one is there
	if err != nil {
		return "", fmt.Errorf("replace checkpoint of step %d: %w", m.Step, err)
	}
	if err := os.Rename(temp, final); err != nil {
		return "", fmt.Errorf("save checkpoint of step %d: %w", m.Step, err)
	}
	if err := syncDir(dir); err != nil {
		return "", fmt.Errorf("save checkpoint of step %d: %w", m.Step, err)
	}
	if err := os.RemoveAll(replaced); err != nil {
		return "", fmt.Errorf("replace checkpoint of step %d: %w", m.Step, err)
	}
	return final, nil
}

// metadata of the tensor files is what PyTorch users' readers expect and nothing
// else: equal tensors make equal files.
var metadata = map[string]string{"format": "pt"}

func writeTensors(path string, tensors []safetensors.Tensor) (File, error) {
	f := File{Name: filepath.Base(path)}
	sum := sha256.New()
	err := writeFile(path, func(w io.Writer) error {
		count := &counter{w: io.MultiWriter(w, sum)}
		err := safetensors.Write(count, tensors, metadata)
		f.Bytes = count.n
		return err
	})
	f.SHA256 = hex.EncodeToString(sum.Sum(nil))
	return f, err
}

// writeFile writes a new file, and returns once it is on the disk.
func writeFile(path string, write func(io.Writer) error) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	w := bufio.NewWriterSize(f, 1<<20)
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
	w io.Writer
	n int64
}

func (c *counter) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
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
		return fmt.Errorf("sync folder %q: %w", path, err)
	}
	return nil
}

// full is a disk or quota with no room left.
type full struct{ error }

func (f full) Unwrap() error { return f.error }

// Hint says what to do about it.
func (full) Hint() string {
	return "the disk or your quota is full; earlier checkpoints are intact: free some room, then start the job again to go on from the newest one"
}

func explain(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return full{err}
	}
	return err
}
