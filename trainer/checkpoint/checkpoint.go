// Package checkpoint writes and reads the checkpoints of a training run: one directory per saved
// step.
//
// It guarantees:
//
//   - A checkpoint is written atomically. Save writes and syncs the tensors under a temporary name,
//     then the manifest with their sizes and SHA-256 digests. Then it renames the directory and
//     syncs its parent. A save that is killed leaves no visible checkpoint.
//   - A checkpoint is loaded as it was written, byte for byte. Load opens each file once, verifies
//     its digest, and reads the tensors from the same open file.
//   - Load uses the newest checkpoint that verifies. It returns why it skipped newer ones,
//     including one without a manifest.
//   - Prune removes a valid checkpoint only if enough newer valid ones exist. A corrupt checkpoint
//     stays until it is older than these, or until its step is saved again. Prune renames a
//     checkpoint before it removes it, so an interrupted Prune leaves no partial checkpoint.
//   - The error for a corrupt file names the corrupt part: the header or the tensors. Each tensor
//     has a checksum.
//   - It rejects files that users other than the owner can write to, and files whose owner is not
//     the owner of the directory around them. Save rejects such a directory.
//   - Save checks the free disk space before it writes. The error has the required and the free
//     size.
//
// Several processes may write parts of the same tensors, each to its own file. A reader gets whole
// tensors and does not notice the parts.
//
// The package needs a file system with an atomic rename. NFS has this for a single client only.
// Therefore only rank 0 may use a directory; the other ranks write the parts that rank 0 waits for.
// The package does not lock the directory, and it does not interpret the tensors.
package checkpoint

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/ddpbatch/ddpbatch/internal/capped"
	"github.com/ddpbatch/ddpbatch/internal/format"
	"github.com/ddpbatch/ddpbatch/internal/safefile"
	"github.com/ddpbatch/ddpbatch/trainer/safetensors"
)

const (
	// Format is the version of the manifest format that this package writes.
	Format = 1

	// ModelFile and OptimizerFile are the names of the files in a trainer's checkpoint.
	ModelFile     = "model.safetensors"
	OptimizerFile = "optimizer.safetensors"

	manifestName = "manifest.json"
	stepPrefix   = "step-"
	tempPrefix   = ".saving-"
	// maxManifest is the maximum size of a manifest in bytes.
	maxManifest = 16 << 20
	// maxForeignManifests is the total size of the manifests to read in a directory of another
	// user, in bytes. That user can create any number of large manifests.
	maxForeignManifests = 32 << 20
	// maxForeignEntries is the number of names to read in a directory of another user.
	maxForeignEntries = 50_000
)

// ErrNotFound is returned if a directory has no checkpoint.
var ErrNotFound = errors.New("no checkpoint")

// Manifest describes a checkpoint. A checkpoint without a manifest is not valid.
//
// Programs that read the same format ignore fields that they do not support, but Digest covers only
// the fields of the first version. A new field must therefore be cleared in computeDigest.
// FullDigest covers it.
type Manifest struct {
	Format   int       `json:"format"`
	Run      string    `json:"run"`      // name of the run that wrote it
	Created  time.Time `json:"created"`  // wall-clock time, for information only
	Program  string    `json:"program"`  // version of the program
	Step     int       `json:"step"`     // completed optimizer steps
	Epoch    int       `json:"epoch"`    // epoch of the next step
	Consumed int       `json:"consumed"` // samples of that epoch that all ranks have consumed
	Finished bool      `json:"finished"` // training is complete
	// Unevaluated reports that the previous epoch has ended but was not evaluated.
	Unevaluated bool `json:"unevaluated,omitempty"`
	// Skipped is the number of consecutive skipped steps up to this one.
	Skipped    int               `json:"skipped,omitempty"`
	Seed       uint64            `json:"seed"`
	WorldSize  int               `json:"world_size"`
	Spec       map[string]string `json:"spec"`                 // settings that affect the result
	SpecDigest string            `json:"spec_digest"`          // digest of Spec
	DataDigest string            `json:"data_digest"`          // digest of the training set
	Vocabulary string            `json:"vocabulary,omitempty"` // text data only: the vocabulary, in the form of data.Vocabulary.MarshalText
	Optimizer  string            `json:"optimizer"`            // kind, for example "sgd"
	// OptimInit reports that a step has changed the optimizer's state.
	OptimInit bool              `json:"optimizer_initialised"`
	Metrics   map[string]Number `json:"metrics,omitempty"` // most recent metrics, for information only
	// Sharded maps the name of each sharded file to the shapes of its tensors.
	Sharded map[string]map[string][]int `json:"divided,omitempty"`
	Files   fileList                    `json:"files"`
	// Replicas reports whether the ranks compared their weights before this save and, with DDP,
	// their optimizer state.
	Replicas Replicas `json:"replicas,omitempty"`
	// Layout is the number of nodes and of ranks per node: "2x4", or "4+3" if the nodes have
	// different numbers of ranks. If nodes do not have consecutive ranks, it lists the node of each
	// rank: "0,1,0,1". A different layout of the same ranks sums in a different order.
	Layout string `json:"layout,omitempty"`
	// Digest is the SHA-256 of the manifest, as the first version of this package wrote it, with an
	// empty Digest.
	Digest string `json:"digest"`
	// FullDigest is the SHA-256 of all fields except the two digests, including fields of later
	// versions. Older manifests do not have it.
	FullDigest string `json:"full_digest,omitempty"`
}

// computeDigest returns the value that Digest must have.
func (m Manifest) computeDigest() (string, error) {
	m.Digest, m.FullDigest, m.Replicas, m.Layout = "", "", "", ""
	text, err := json.Marshal(m)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]), nil
}

// A Number is a float that JSON can store even if it is not finite.
type Number float64

// MarshalText returns the shortest text that UnmarshalText converts back to n.
func (n Number) MarshalText() ([]byte, error) { return fmt.Appendf(nil, "%v", float64(n)), nil }

// UnmarshalText parses the output of MarshalText.
func (n *Number) UnmarshalText(text []byte) error {
	_, err := fmt.Sscan(string(text), (*float64)(n))
	return err
}

// A File is one file of a checkpoint.
type File struct {
	Name   string `json:"name"`
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
	PartOf string `json:"of,omitempty"` // name of the sharded file that this is a part of
	// HeaderCRC is the CRC-32C of the file's header, which holds the checksums of its tensors.
	// Older checkpoints do not have it.
	HeaderCRC string `json:"header_crc32c,omitempty"`
}

// maxFiles is the maximum number of files in a manifest. The entry of a file, with its digest, has
// more than 100 bytes, so a manifest that a save has written cannot have as many.
const maxFiles = 200_000

// maxSharded is the maximum number of sharded files in a manifest. The trainer writes two.
const maxSharded = 16

// fileList is a list of limited length: another user may own the manifest.
type fileList []File

// UnmarshalJSON decodes an array of at most maxFiles files.
func (l *fileList) UnmarshalJSON(text []byte) (err error) {
	*l, err = capped.DecodeList[File](text, maxFiles)
	return err
}

// Files maps file names, for example [ModelFile], to tensors.
type Files map[string][]safetensors.Tensor

// An Entry is a checkpoint found in a directory.
type Entry struct {
	Path     string
	Step     int
	Manifest *Manifest // nil if unreadable
	Err      error     // why Manifest is nil

	manifestFile fs.FileInfo // nil if Manifest is nil
}

// IsOwn reports whether the manifest belongs to this user, and others cannot write to it.
func (e Entry) IsOwn() bool { return e.manifestFile != nil && checkOwn(e.Path, e.manifestFile) == nil }

// name returns the directory name of a step. The zero padding makes names sort by step.
func name(step int) string { return fmt.Sprintf("%s%08d", stepPrefix, step) }

// List returns the checkpoints in dir, newest first. It reads the manifests but does not verify the
// data. If dir does not exist, the list is empty. If dir belongs to another user, List reads at
// most 50,000 names and 32 MiB of manifests.
func List(dir string) (entries []Entry, err error) {
	err = inDir(dir, func(root *os.Root) error {
		entries, err = listIn(root)
		return err
	})
	return entries, err
}

// listIn returns the checkpoints in an open directory, like [List].
func listIn(root *os.Root) ([]Entry, error) {
	entries, err := listEntries(root)
	left := int64(math.MaxInt64)
	if isForeign(root) {
		left = maxForeignManifests
	}
	for i := range entries {
		if left -= entries[i].manifestSize(root); left < 0 {
			entries[i].Err = fmt.Errorf("manifest not read: the manifests in %q exceed %s", filepath.Clean(root.Name()), format.Bytes(maxForeignManifests))
			continue
		}
		entries[i].read(root)
	}
	return entries, err
}

// NewestCost returns the number of names that [Newest] reads in dir, and the number of bytes of the
// manifest that it reads.
func NewestCost(dir string) (names int, manifest int64) {
	_ = inDir(dir, func(root *os.Root) error {
		found, _ := readNames(root)
		names = len(found)
		if entries := entriesOf(root, found); len(entries) > 0 {
			manifest = entries[0].manifestSize(root)
		}
		return nil
	})
	return names, manifest
}

// manifestSize returns the number of bytes of the manifest to read. It is 0 if the manifest is
// missing or too large. The argument root is the directory of the checkpoints.
func (e *Entry) manifestSize(root *os.Root) int64 {
	info, err := root.Lstat(filepath.Join(filepath.Base(e.Path), manifestName))
	if err != nil || info.Size() > maxManifest {
		return 0
	}
	return info.Size()
}

// Newest returns the first entry of [List], or false if dir has no checkpoint. It reads only one
// manifest, so it is cheap enough for polling.
func Newest(dir string) (newest Entry, ok bool, err error) {
	err = inDir(dir, func(root *os.Root) error {
		entries, err := listEntries(root)
		if ok = len(entries) > 0; ok {
			newest = entries[0]
			newest.read(root)
		}
		return err
	})
	return newest, ok, err
}

// hasAny reports whether dir has checkpoints, verified or not.
func hasAny(dir string) (found bool) {
	_ = inDir(dir, func(root *os.Root) error {
		entries, _ := listEntries(root)
		found = len(entries) > 0
		return nil
	})
	return found
}

// inDir opens a directory of checkpoints and calls f with it, unless the directory does not exist.
func inDir(dir string, f func(root *os.Root) error) error {
	root, err := safefile.OpenOwnersRoot(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list checkpoints: %w", err)
	}
	defer root.Close()
	return f(root)
}

// listEntries returns the checkpoints in an open directory, newest first, without their manifests.
func listEntries(root *os.Root) ([]Entry, error) {
	found, err := readNames(root)
	if err != nil {
		return nil, fmt.Errorf("list checkpoints: %w", absolute(root.Name(), err))
	}
	return entriesOf(root, found), nil
}

// readNames returns the names in an open directory. If the directory belongs to another user, it reads
// at most maxForeignEntries names.
func readNames(root *os.Root) ([]fs.DirEntry, error) {
	limit := math.MaxInt
	if isForeign(root) {
		limit = maxForeignEntries
	}
	return safefile.ReadSomeIn(root, ".", limit)
}

// entriesOf returns the checkpoints among the names in an open directory, like [listEntries].
func entriesOf(root *os.Root, found []fs.DirEntry) []Entry {
	var entries []Entry
	for _, f := range found {
		base := f.Name()
		if n, needed := replacementOf(root.Lstat, base); needed {
			base = n
		}
		var step int
		if _, err := fmt.Sscanf(base, stepPrefix+"%d", &step); err != nil || base != name(step) {
			continue
		}
		entries = append(entries, Entry{Path: filepath.Join(root.Name(), f.Name()), Step: step})
	}
	slices.SortFunc(entries, func(a, b Entry) int { return b.Step - a.Step })
	return entries
}

// isForeign reports whether an open directory belongs to another user.
func isForeign(root *os.Root) bool {
	info, err := root.Stat(".")
	return err != nil || owner(info) != os.Geteuid()
}

// read reads the manifest into e. The argument root is the directory of the checkpoints.
func (e *Entry) read(root *os.Root) {
	e.Manifest, e.manifestFile, e.Err = openManifest(root, e.Path)
	if e.Err == nil && e.Manifest.Step != e.Step {
		e.Manifest, e.manifestFile, e.Err = nil, nil, fmt.Errorf("the manifest in %q is for step %d", e.Path, e.Manifest.Step)
	}
}

// openManifest returns the manifest of the checkpoint at path, and the attributes of its open file.
// The argument root is the directory of the checkpoints.
func openManifest(root *os.Root, path string) (*Manifest, fs.FileInfo, error) {
	dir, err := openStep(root, path)
	if err != nil {
		return nil, nil, err
	}
	defer dir.Close()
	f, info, err := openFile(dir, path, manifestName)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	file := filepath.Join(path, manifestName)
	if info.Size() > maxManifest {
		return nil, nil, fmt.Errorf("%q has %d bytes; a manifest has at most %d", file, info.Size(), maxManifest)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxManifest))
	if err != nil {
		return nil, nil, fmt.Errorf("read %q: %w", file, err)
	}
	m, err := decodeManifest(text)
	if err != nil {
		return nil, nil, fmt.Errorf("read %q: %w", file, err)
	}
	return m, info, nil
}

// check returns an error for values that no save writes. The digest does not rule them out: anyone
// can compute it, because it has no key.
func (m *Manifest) check() error {
	for _, count := range []struct {
		key   string
		value int
	}{
		{"step", m.Step}, {"epoch", m.Epoch}, {"consumed", m.Consumed}, {"skipped", m.Skipped}, {"world_size", m.WorldSize},
	} {
		if count.value < 0 {
			return fmt.Errorf("%s is negative: %d", count.key, count.value)
		}
	}
	if len(m.Files) == 0 {
		return errors.New("no files are listed")
	}
	if len(m.Sharded) > maxSharded {
		return fmt.Errorf("%d sharded files are listed, more than %d", len(m.Sharded), maxSharded)
	}
	seen := map[string]bool{}
	for _, f := range m.Files {
		switch {
		case f.Name != filepath.Base(f.Name) || strings.HasPrefix(f.Name, ".") || f.Name == manifestName:
			return fmt.Errorf("%q is not the name of a checkpoint file", f.Name)
		case seen[f.Name]:
			return fmt.Errorf("file %q is listed twice", f.Name)
		case f.Bytes < 0:
			return fmt.Errorf("file %q has a negative size: %d", f.Name, f.Bytes)
		}
		seen[f.Name] = true
	}
	return nil
}
