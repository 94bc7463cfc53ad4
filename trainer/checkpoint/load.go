package checkpoint

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"syscall"

	"github.com/ddpbatch/ddpbatch/trainer/safetensors"
)

// Snapshot is a checkpoint that has been read and verified.
type Snapshot struct {
	Path     string
	Manifest Manifest
	Files    Files
}

// Unusable is returned by [Load] when there are checkpoints but none verifies.
type Unusable struct {
	Dir     string
	Skipped []error
}

// Error names the newest one's fault.
func (u *Unusable) Error() string {
	return fmt.Sprintf("none of the %d checkpoints in %q can be used; the newest: %v", len(u.Skipped), u.Dir, u.Skipped[0])
}

// Hint says what to do about it.
func (u *Unusable) Hint() string {
	return "restore one from a backup, or move the folder away to train from the start"
}

// Load returns the newest checkpoint of dir that verifies, and why newer ones
// were passed over. It returns [ErrNone] when there is none, and [*Unusable]
// when there are some and none verifies.
func Load(dir string) (*Snapshot, []error, error) {
	entries, err := List(dir)
	if err != nil {
		return nil, nil, err
	}
	var skipped []error
	for _, e := range entries {
		s, err := read(e)
		if err == nil {
			return s, skipped, nil
		}
		skipped = append(skipped, err)
	}
	if len(skipped) > 0 {
		return nil, skipped, &Unusable{dir, skipped}
	}
	return nil, nil, ErrNone
}

// Verify reads a checkpoint and compares every byte with its manifest.
func Verify(path string) error {
	m, err := readManifest(path)
	if err != nil {
		return fmt.Errorf("verify checkpoint %q: %w", path, err)
	}
	_, err = read(Entry{Path: path, Step: m.Step, Manifest: m})
	return err
}

func read(e Entry) (*Snapshot, error) {
	if e.Err != nil {
		return nil, fmt.Errorf("checkpoint of step %d: %w", e.Step, e.Err)
	}
	s := &Snapshot{Path: e.Path, Manifest: *e.Manifest, Files: Files{}}
	for _, f := range e.Manifest.Files {
		tensors, err := readTensors(e.Path, f)
		if err != nil {
			return nil, fmt.Errorf("checkpoint of step %d: %w", e.Step, err)
		}
		s.Files[f.Name] = tensors
	}
	return s, nil
}

func readTensors(dir string, want File) ([]safetensors.Tensor, error) {
	path := filepath.Join(dir, want.Name)
	f, err := open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() != want.Bytes {
		return nil, fmt.Errorf("%q has %d bytes, the manifest says %d", path, info.Size(), want.Bytes)
	}
	sum := sha256.New()
	tensors, _, err := safetensors.Read(io.TeeReader(f, sum), info.Size())
	// A damaged byte is damage first, whatever it makes of the header.
	if derr := digest(f, sum, path, want); derr != nil {
		return nil, derr
	}
	if err != nil {
		return nil, fmt.Errorf("%q: %w", path, err)
	}
	return tensors, nil
}

// digest adds what the reader left over, and compares.
func digest(rest io.Reader, sum hash.Hash, path string, want File) error {
	if _, err := io.Copy(sum, rest); err != nil {
		return fmt.Errorf("read %q: %w", path, err)
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != want.SHA256 {
		return fmt.Errorf("%q is damaged: its SHA-256 begins with %.12s, the manifest says %.12s", path, got, want.SHA256)
	}
	return nil
}

// open opens a regular file and follows no symbolic link, so that nobody can
// have another file loaded in a checkpoint's place.
func open(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if errors.Is(err, syscall.ELOOP) {
		return nil, fmt.Errorf("%q is a symbolic link; a checkpoint holds none", path)
	}
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%q is not a regular file", path)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}
