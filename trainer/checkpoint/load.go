package checkpoint

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/ddpbatch/ddpbatch/internal/ctxio"
	"github.com/ddpbatch/ddpbatch/internal/safefile"
	"github.com/ddpbatch/ddpbatch/trainer/safetensors"
)

// A Snapshot is a verified checkpoint with open files. Files reads from the open files that were
// hashed, even if something renames or removes them in the directory meanwhile. A Snapshot holds no
// file contents in memory.
type Snapshot struct {
	Path     string
	Manifest Manifest
	Files    map[string]*io.SectionReader // by name; reads fail after the context ends
	ctx      context.Context
	open     []*os.File
	manifest fs.FileInfo // of the open file that Manifest was read from
}

// Close closes the files.
func (s *Snapshot) Close() error {
	var errs []error
	for _, f := range s.open {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}

// CheckOwn returns an error if the manifest or an open file belongs to another user or is writable
// by others. Another user who can write to a directory above the checkpoints could have put
// checkpoints there between a check of the directory and [Load].
func (s *Snapshot) CheckOwn() error {
	if err := checkOwn(filepath.Join(s.Path, manifestName), s.manifest); err != nil {
		return err
	}
	for _, f := range s.open {
		info, err := f.Stat()
		if err == nil {
			err = checkOwn(filepath.Clean(f.Name()), info)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Tensors reads the tensors of one file of a checkpoint on demand.
type Tensors struct {
	name   string
	file   *io.SectionReader
	arrays map[string]safetensors.Array
}

// Tensors returns the tensors of a file. The file must have exactly the tensors in shapes, in
// float32.
func (s *Snapshot) Tensors(name string, shapes map[string][]int) (*Tensors, error) {
	f, ok := s.Files[name]
	if !ok {
		return nil, fmt.Errorf("no file %q", name)
	}
	arrays, _, err := safetensors.ReadHeader(io.NewSectionReader(f, 0, f.Size()), f.Size())
	if err != nil {
		return nil, fmt.Errorf("%q: %w", name, err)
	}
	t := &Tensors{name, f, map[string]safetensors.Array{}}
	for _, a := range arrays {
		t.arrays[a.Name] = a
	}
	for _, tensor := range sortedKeys(shapes) {
		a, ok := t.arrays[tensor]
		switch {
		case !ok:
			return nil, fmt.Errorf("%q: no tensor %q", name, tensor)
		case !slices.Equal(a.Shape, shapes[tensor]):
			return nil, fmt.Errorf("%q: tensor %q has shape %v, want %v", name, tensor, a.Shape, shapes[tensor])
		case a.DType != safetensors.F32:
			return nil, fmt.Errorf("%q: tensor %q has type %s, want %s", name, tensor, a.DType, safetensors.F32)
		}
	}
	for _, a := range arrays {
		if _, known := shapes[a.Name]; !known {
			return nil, fmt.Errorf("%q: unknown tensor %q", name, a.Name)
		}
	}
	return t, nil
}

// Read reads len(into) elements of a tensor in row-major order, starting at element offset. The
// tensor must have that many elements.
func (t *Tensors) Read(tensor string, offset int, into []float32) error {
	a := t.arrays[tensor]
	a.Begin += 4 * int64(offset)
	a.End = a.Begin + 4*int64(len(into))
	if err := a.ReadFloat32s(t.file, into); err != nil {
		return fmt.Errorf("%q: %w", t.name, err)
	}
	return nil
}

// UnusableError is the error of [Load] if checkpoints exist but none verifies.
type UnusableError struct {
	Dir     string
	Skipped []error
}

// Error includes the error of the newest checkpoint.
func (u *UnusableError) Error() string {
	return fmt.Sprintf("no usable checkpoint among the %d in %q; newest: %v", len(u.Skipped), u.Dir, u.Skipped[0])
}

// Hint returns the fix.
func (u *UnusableError) Hint() string {
	return "restore one from a backup, or move the directory away to train from the start"
}

// Load opens the newest checkpoint in dir that verifies, and returns why it skipped newer ones. If
// names are given, it opens only these files, and the checkpoint must have them. Load returns
// [ErrNotFound] if dir has no checkpoint and [*UnusableError] if no checkpoint verifies. It returns
// a [NewerError] instead of skipping a checkpoint of a newer version of the program. When the
// context ends, Load and reads of the files return its cause. Load does not change dir. The caller
// must close the Snapshot.
func Load(ctx context.Context, dir string, names ...string) (*Snapshot, []error, error) {
	entries, err := List(dir)
	if err != nil {
		return nil, nil, err
	}
	var skipped []error
	for _, e := range entries {
		s, err := e.Open(ctx, names...)
		if err == nil {
			return s, skipped, nil
		}
		if ctx.Err() != nil {
			return nil, skipped, err
		}
		if e.IsNewer() {
			return nil, skipped, err
		}
		skipped = append(skipped, err)
	}
	if len(skipped) > 0 {
		return nil, skipped, &UnusableError{dir, skipped}
	}
	return nil, nil, ErrNotFound
}

// Verify compares every byte of a checkpoint with its manifest. If the context ends first, Verify
// returns its cause.
func Verify(ctx context.Context, path string) error {
	root, err := safefile.OpenOwnersRoot(filepath.Dir(path))
	if err != nil {
		return fmt.Errorf("verify checkpoint %q: %w", path, err)
	}
	defer root.Close()
	return verifyIn(ctx, root, path)
}

// verifyIn verifies a checkpoint, like [Verify], in an open directory of checkpoints.
func verifyIn(ctx context.Context, root *os.Root, path string) error {
	m, file, err := openManifest(root, path)
	if err != nil {
		return fmt.Errorf("verify checkpoint %q: %w", path, err)
	}
	s, err := Entry{Path: path, Step: m.Step, Manifest: m, manifestFile: file}.openIn(ctx, root)
	if err != nil {
		return err
	}
	return s.Close()
}

// Open opens and verifies the named files of a checkpoint, or all files if names is empty. The caller
// must close the Snapshot.
func (e Entry) Open(ctx context.Context, names ...string) (*Snapshot, error) {
	root, err := safefile.OpenOwnersRoot(filepath.Dir(e.Path))
	if err != nil {
		return nil, fmt.Errorf("checkpoint of step %d: %w", e.Step, err)
	}
	defer root.Close()
	return e.openIn(ctx, root, names...)
}

// openIn opens a checkpoint, like [Entry.Open], in an open directory of checkpoints.
func (e Entry) openIn(ctx context.Context, root *os.Root, names ...string) (*Snapshot, error) {
	if e.Err != nil {
		return nil, fmt.Errorf("checkpoint of step %d: %w", e.Step, e.Err)
	}
	dir, err := openStep(root, e.Path)
	if err != nil {
		return nil, fmt.Errorf("checkpoint of step %d: %w", e.Step, err)
	}
	defer dir.Close()
	s := &Snapshot{Path: e.Path, Manifest: *e.Manifest, Files: map[string]*io.SectionReader{}, ctx: ctx, manifest: e.manifestFile}
	for _, f := range e.Manifest.Files {
		if err == nil && (len(names) == 0 || slices.Contains(names, f.Name) || slices.Contains(names, f.PartOf)) {
			err = s.add(dir, f)
		}
	}
	parts := groupParts(e.Manifest.Files)
	for file, shapes := range e.Manifest.Sharded {
		if err == nil && (len(names) == 0 || slices.Contains(names, file)) {
			err = s.join(file, shapes, parts[file])
		}
	}
	for _, n := range names {
		if err == nil && s.Files[n] == nil {
			err = fmt.Errorf("its manifest has no file %q", n)
		}
	}
	if err != nil {
		s.Close()
		return nil, fmt.Errorf("checkpoint of step %d: %w", e.Step, err)
	}
	return s, nil
}

// add opens a file in the directory of the checkpoint, and compares its bytes with the manifest. It
// checks the header first: a file that is larger than its tensors is corrupt and need not be read to
// the end.
func (s *Snapshot) add(dir *os.Root, want File) error {
	path := filepath.Join(s.Path, want.Name)
	f, info, err := openFile(dir, s.Path, want.Name)
	if err != nil {
		return err
	}
	s.open = append(s.open, f)
	if info.Size() != want.Bytes {
		return fmt.Errorf("%q has %d bytes, the manifest has %d%s", path, info.Size(), want.Bytes, want.locateCorruption(ctxio.ReaderAt(s.ctx, f), info.Size()))
	}
	content := io.NewSectionReader(ctxio.ReaderAt(s.ctx, f), 0, want.Bytes)
	if _, _, err := safetensors.ReadHeader(io.NewSectionReader(content, 0, want.Bytes), want.Bytes); err != nil {
		return fmt.Errorf("%q is corrupt: invalid header: %w", path, err)
	}
	sum := sha256.New()
	if _, err := io.Copy(sum, io.NewSectionReader(content, 0, want.Bytes)); err != nil {
		return fmt.Errorf("read %q: %w", path, err)
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != want.SHA256 {
		return fmt.Errorf("%q is corrupt: its SHA-256 begins with %.12s, the manifest has %.12s%s", path, got, want.SHA256, want.locateCorruption(content, want.Bytes))
	}
	s.Files[want.Name] = content
	return nil
}

// openStep opens the directory of a checkpoint, at path, in an open directory of checkpoints. It
// returns an error unless both belong to the same user, and only that user can write to the former.
func openStep(root *os.Root, path string) (*os.Root, error) {
	name := filepath.Base(path)
	if err := checkNoLink(root, path); err != nil {
		return nil, err
	}
	dir, err := safefile.OpenRootIn(root, name)
	if err != nil {
		return nil, absolute(root.Name(), err)
	}
	parent, err := root.Stat(".")
	if err == nil {
		var info fs.FileInfo
		if info, err = dir.Stat("."); err == nil {
			err = checkOwner(path, info, parent)
		}
	}
	if err != nil {
		dir.Close()
		return nil, err
	}
	return dir, nil
}

// openFile opens a regular file in the open directory of the checkpoint at path. It returns an error
// unless both belong to the same user, and only that user can write to the file. It follows no
// symbolic link, so that no other file can be loaded instead. Hard links are not a risk: no other
// user can create one in a directory that only the owner can write to.
func openFile(dir *os.Root, path, name string) (*os.File, fs.FileInfo, error) {
	path = filepath.Join(path, name)
	if err := checkNoLink(dir, path); err != nil {
		return nil, nil, err
	}
	f, err := safefile.OpenIn(dir, name, safefile.NoFollow)
	if err != nil {
		return nil, nil, absolute(filepath.Dir(path), err)
	}
	info, err := f.Stat()
	if err == nil {
		var parent fs.FileInfo
		if parent, err = dir.Stat("."); err == nil {
			err = checkOwner(path, info, parent)
		}
	}
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return f, info, nil
}

// checkNoLink returns an error if the file or directory at path, in the given open directory, is a
// symbolic link.
func checkNoLink(dir *os.Root, path string) error {
	if info, err := dir.Lstat(filepath.Base(path)); err == nil && info.Mode()&fs.ModeSymlink != 0 {
		return fmt.Errorf("%q is a symbolic link, which a checkpoint must not contain", path)
	}
	return nil
}
