// Package dcp reads distributed checkpoints of PyTorch (torch.distributed.checkpoint), which FSDP
// and torchtitan save, for example.
//
// Such a checkpoint is a directory. The file .metadata describes all tensors and their chunks. The
// files of the ranks (*.distcp) hold the chunks, each in the format of torch.save. A tensor may be
// divided along any dimensions. Other values, such as learning rates, are also in these files.
//
// [Checkpoint.WriteSafetensors] and [Checkpoint.WriteTorch] write the whole tensors into one file.
// They hold one tensor in memory.
//
// The package guarantees that nothing in a checkpoint is executed, that a hostile checkpoint needs
// memory in proportion to the size of its files, and that each element of a tensor is read exactly
// once and has the checksum with which it was written. Files outside of the directory are not read.
//
// It does not read checkpoints of torch.save, compressed chunks, or checkpoints of big-endian
// machines. It computes nothing: types and values stay as they are.
package dcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/internal/safefile"
	"github.com/ddpbatch/ddpbatch/trainer/safetensors"
)

const (
	metadataFile = ".metadata"
	suffix       = ".distcp"
	// maxMetadata is the maximum size in bytes of .metadata. A chunk needs about 170 bytes.
	maxMetadata = 128 << 20
	// maxSiblings is the maximum number of entries of a directory that Newest and IsCheckpoint read.
	maxSiblings = 1000
	// maxOpen is the maximum number of files that are open at the same time.
	maxOpen = 128

	hintIncomplete = "copy the complete directory of the checkpoint, or export an earlier checkpoint"
)

// Checkpoint is an open checkpoint. The caller must close it. It is not safe for concurrent use.
type Checkpoint struct {
	Dir     string
	Tensors []*Tensor
	Values  []*Value // values other than tensors

	root  *os.Root
	files map[string]*os.File // open files
}

// entry is the name of a tensor or value.
type entry struct {
	Name  string // path, joined by dots
	path  []any  // keys: strings of dicts and int64 indices of lists
	order int    // position in the checkpoint
}

// Tensor is a tensor that is stored in chunks.
type Tensor struct {
	entry
	Shape []int
	dtype string // such as "torch.float32"
	// chunks do not overlap and cover the tensor after Checkpoint.Check.
	chunks []chunk
}

// Value is a Python value other than a tensor.
type Value struct {
	entry
	at location
}

// chunk is a part of a tensor.
type chunk struct {
	offsets, sizes []int
	at             location
}

// location is a range of bytes of a file.
type location struct {
	file           string
	offset, length int64
}

// dtypes maps PyTorch's types to types of safetensors.
var dtypes = map[string]safetensors.DType{
	"torch.float64": "F64", "torch.float32": safetensors.F32, "torch.float16": safetensors.F16, "torch.bfloat16": safetensors.BF16,
	"torch.float8_e4m3fn": "F8_E4M3", "torch.float8_e5m2": "F8_E5M2",
	"torch.int64": safetensors.I64, "torch.int32": safetensors.I32, "torch.int16": "I16", "torch.int8": "I8",
	"torch.uint64": "U64", "torch.uint32": "U32", "torch.uint16": "U16", "torch.uint8": safetensors.U8, "torch.bool": "BOOL",
}

// IsCheckpoint reports whether a directory is a distributed checkpoint, which may be incomplete.
func IsCheckpoint(dir string) bool {
	root, err := safefile.OpenRoot(dir)
	if err != nil {
		return false
	}
	defer root.Close()
	if _, err := root.Lstat(metadataFile); err == nil {
		return true
	}
	entries, err := safefile.ReadSomeIn(root, ".", maxSiblings)
	for _, e := range entries {
		if err == nil && strings.HasSuffix(e.Name(), suffix) {
			return true
		}
	}
	return false
}

// Newest returns the name of the distributed checkpoint in a directory with the highest number at the
// end of its name, such as "step-1000". A name without a number counts as 0. Newest returns "" if dir
// has no distributed checkpoint. It reads at most 1,000 entries of dir.
func Newest(dir string) string {
	root, err := safefile.OpenRoot(dir)
	if err != nil {
		return ""
	}
	defer root.Close()
	entries, err := safefile.ReadSomeIn(root, ".", maxSiblings)
	if err != nil {
		return ""
	}
	newest, highest := "", -1
	for _, e := range entries {
		if _, err := root.Lstat(filepath.Join(e.Name(), metadataFile)); err != nil {
			continue
		}
		digits := e.Name()[len(strings.TrimRight(e.Name(), "0123456789")):]
		if n, _ := strconv.Atoi(digits); n > highest {
			newest, highest = e.Name(), n
		}
	}
	return newest
}

// Open opens the checkpoint in a directory and reads its metadata.
func Open(dir string) (*Checkpoint, error) {
	root, err := safefile.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	c := &Checkpoint{Dir: dir, root: root, files: map[string]*os.File{}}
	if err := c.readMetadata(); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// Close closes all files.
func (c *Checkpoint) Close() {
	c.closeFiles()
	c.root.Close()
}

func (c *Checkpoint) closeFiles() {
	for name, f := range c.files {
		f.Close()
		delete(c.files, name)
	}
}

func (c *Checkpoint) readMetadata() error {
	path := filepath.Join(c.Dir, metadataFile)
	raw, err := safefile.ReadIn(c.root, metadataFile, maxMetadata, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return hints.Errorf("export an earlier checkpoint",
			"%q is incomplete: it does not have the file %s, which PyTorch writes last", c.Dir, metadataFile)
	}
	if err == nil {
		err = c.parse(raw, maxMetadataBudget)
	}
	if err != nil {
		return fmt.Errorf("read %q: %w", path, err)
	}
	return nil
}

// Select removes all tensors and values except those below a path, such as "model", and removes the
// path from their names. A path with the name of a tensor selects this tensor.
func (c *Checkpoint) Select(path string) error {
	var tensors []*Tensor
	for _, t := range c.Tensors {
		if t.relativeTo(path) {
			tensors = append(tensors, t)
		}
	}
	var values []*Value
	for _, v := range c.Values {
		if v.relativeTo(path) {
			values = append(values, v)
		}
	}
	if len(tensors) == 0 {
		return hints.Errorf("choose from "+c.parts(), "no tensor below %q in %q", path, c.Dir)
	}
	c.Tensors, c.Values = tensors, values
	return nil
}

// relativeTo makes an entry relative to a path. It reports false if the entry is not below it.
func (e *entry) relativeTo(path string) bool {
	below := e.path
	for i, key := range e.path {
		word := fmt.Sprint(key)
		if rest, found := strings.CutPrefix(path, word); found && (rest == "" || rest[0] == '.') {
			below = e.path[i+1:]
			if path = strings.TrimPrefix(rest, "."); rest == "" {
				break
			}
			continue
		}
		rest, found := strings.CutPrefix(word, path+".")
		if !found {
			return false
		}
		below = append([]any{rest}, e.path[i+1:]...)
		path = ""
		break
	}
	if path != "" {
		return false
	}
	if len(below) == 0 {
		below = e.path[len(e.path)-1:]
	}
	e.path, e.Name = below, join(below)
	return true
}

// join joins the keys of a path.
func join(path []any) string {
	words := make([]string, len(path))
	for i, key := range path {
		words[i] = fmt.Sprint(key)
	}
	return strings.Join(words, ".")
}

// parts lists the first keys of all tensors.
func (c *Checkpoint) parts() string {
	const limit = 10
	var words []string
	known := map[string]bool{}
	for _, t := range c.Tensors {
		word := fmt.Sprint(t.path[0])
		if known[word] {
			continue
		}
		if known[word] = true; len(words) == limit {
			words = append(words, "...")
			break
		}
		words = append(words, fmt.Sprintf("%q", word))
	}
	return strings.Join(words, ", ")
}

// open returns an open file of the checkpoint, and its size.
func (c *Checkpoint) open(name string) (*os.File, int64, error) {
	f, ok := c.files[name]
	if !ok {
		if !filepath.IsLocal(name) {
			return nil, 0, fmt.Errorf("the name %q is outside of the directory", name)
		}
		var err error
		if f, err = safefile.OpenIn(c.root, name, 0); errors.Is(err, fs.ErrNotExist) {
			return nil, 0, hints.Errorf(hintIncomplete, "file %q is missing", name)
		} else if err != nil {
			return nil, 0, err
		}
		if len(c.files) >= maxOpen {
			c.closeFiles()
		}
		c.files[name] = f
	}
	info, err := f.Stat()
	if err != nil {
		return nil, 0, err
	}
	return f, info.Size(), nil
}

// section returns the bytes at a location.
func (c *Checkpoint) section(at location) (*io.SectionReader, error) {
	f, size, err := c.open(at.file)
	if err != nil {
		return nil, err
	}
	if at.offset < 0 || at.length < 0 || at.length > size || at.offset > size-at.length {
		return nil, hints.Errorf(hintIncomplete, "file %q is truncated: it has %d bytes, but the data are %d bytes from byte %d", at.file, size, at.length, at.offset)
	}
	return io.NewSectionReader(f, at.offset, at.length), nil
}

// Check checks that all files are complete, that the chunks cover each tensor exactly once, and that
// the types are supported. It does not read the data.
//
// The chunks and values in a file have at most as many bytes as the file, as PyTorch writes them. So the
// time to read a checkpoint is proportional to the size of its files: .metadata could name the same
// archive a million times.
func (c *Checkpoint) Check(ctx context.Context) error {
	unread := map[string]int64{} // bytes by file
	if len(c.Tensors) == 0 {
		return fmt.Errorf("%q does not have tensors", c.Dir)
	}
	for _, t := range c.Tensors {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		err := c.check(t)
		for _, ch := range t.chunks {
			if err == nil {
				err = c.takeBytes(unread, ch.at)
			}
		}
		if err != nil {
			return fmt.Errorf("tensor %q of %q: %w", t.Name, c.Dir, err)
		}
	}
	for _, v := range c.Values {
		if err := c.takeBytes(unread, v.at); err != nil {
			return fmt.Errorf("value %q of %q: %w", v.Name, c.Dir, err)
		}
	}
	return nil
}

// takeBytes checks that a file contains a location, and subtracts its length from the unread bytes of the
// file.
func (c *Checkpoint) takeBytes(unread map[string]int64, at location) error {
	if _, err := c.section(at); err != nil {
		return err
	}
	left, known := unread[at.file]
	if !known {
		var err error
		if _, left, err = c.open(at.file); err != nil {
			return err
		}
	}
	if left -= at.length; left < 0 {
		return fmt.Errorf("the chunks and values in file %q have more bytes than the file: several are at one location", at.file)
	}
	unread[at.file] = left
	return nil
}

// check checks that a tensor is supported, that its chunks cover it, and that the files contain them.
func (c *Checkpoint) check(t *Tensor) error {
	if dtypes[t.dtype] == "" {
		return hints.Errorf("select other tensors with --only", "type %s is not supported", t.dtype)
	}
	if err := t.checkCoverage(); err != nil {
		return err
	}
	// The data are not compressed, so a tensor does not need more memory than its files have bytes.
	var want int64
	sizes := map[fileID]int64{}
	for _, ch := range t.chunks {
		s, err := c.section(ch.at)
		if err != nil {
			return err
		}
		n := ch.elements() * int64(t.width())
		if s.Size() < n {
			return fmt.Errorf("the chunk at %v has %d bytes, want at least %d", ch.offsets, s.Size(), n)
		}
		want += n
		id, size, err := c.identify(ch.at.file)
		if err != nil {
			return err
		}
		sizes[id] = size
	}
	for _, size := range sizes {
		want -= size
	}
	if want > 0 {
		return fmt.Errorf("its chunks have %d bytes more than their files: several chunks are at one location", want)
	}
	return nil
}

// fileID identifies a file, which can have several names. It is 0 on systems without such numbers.
type fileID struct{ device, inode uint64 }

// identify returns the identity and the size of a file of the checkpoint.
func (c *Checkpoint) identify(name string) (id fileID, size int64, err error) {
	f, size, err := c.open(name)
	if err != nil {
		return id, 0, err
	}
	info, err := f.Stat()
	if err != nil {
		return id, 0, err
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		id = fileID{uint64(stat.Dev), stat.Ino}
	}
	return id, size, nil
}

func (t *Tensor) width() int { return dtypes[t.dtype].Size() }
