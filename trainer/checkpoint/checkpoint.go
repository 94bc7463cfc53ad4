// Package checkpoint keeps the state of a training run in a folder, one folder
// per saved step.
//
// It promises: a checkpoint is complete or invisible, wherever a save is killed
// (tensors are written and synced under a temporary name, then the manifest with
// their sizes and SHA-256 digests, then the folder is renamed and its parent
// synced); a checkpoint that is loaded is the one that was written, byte for
// byte: every file is opened once, compared with its digest and then read where it
// is wanted, from the same open file; the newest one that verifies is used and those
// passed over are reported with their reason, one without a manifest, too; a good
// one is removed for newer good ones only, a damaged one stays until it is older
// than these or its step is saved again; what is removed is renamed first, so that
// an interrupted pruning never leaves half a checkpoint.
//
// Of a damaged file it says what is damaged: the header, or which tensors, each of which
// has a checksum. Files that others than their owner can write to, or that are of another
// user than the folder around them, are refused; so is a folder like that to save into.
// What does not fit is said, with figures, before anything is written.
//
// Several processes may write parts of the same tensors, each into a file of its own:
// who loads the checkpoint gets whole tensors, and cannot tell.
//
// It needs a file system on which rename is atomic, which NFS is only for a
// single client: one rank, rank 0, may use a folder at a time, and others only write
// the parts that it waits for. It does not lock
// the folder, and it does not know what the tensors mean.
package checkpoint

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/ddpbatch/ddpbatch/trainer/safetensors"
)

const (
	// Format is the version of the manifest that this package writes.
	Format = 1

	// ModelFile and OptimizerFile are the files of a trainer's checkpoint.
	ModelFile     = "model.safetensors"
	OptimizerFile = "optimizer.safetensors"

	manifestName = "manifest.json"
	stepPrefix   = "step-"
	tempPrefix   = ".saving-"
	// maxManifest is the largest manifest that is read, in bytes.
	maxManifest = 16 << 20
)

// ErrNone says that a folder holds no checkpoint at all.
var ErrNone = errors.New("there is no checkpoint")

// Manifest describes one checkpoint. A checkpoint without a manifest does not exist.
//
// Programs of the same format ignore fields that they do not know, but Digest covers the
// fields that they know. A new field must therefore be cleared in sum. FullDigest covers
// it.
type Manifest struct {
	Format   int       `json:"format"`
	Run      string    `json:"run"`      // the run that wrote it
	Created  time.Time `json:"created"`  // wall clock, for people
	Program  string    `json:"program"`  // version of the program
	Step     int       `json:"step"`     // optimiser steps done
	Epoch    int       `json:"epoch"`    // the epoch that the next step belongs to
	Consumed int       `json:"consumed"` // samples of that epoch taken by all ranks together
	Finished bool      `json:"finished"` // nothing is left to train
	// Unevaluated says that the epoch before has ended and was not evaluated yet.
	Unevaluated bool `json:"unevaluated,omitempty"`
	// Skipped is the number of steps in a row that were left out, up to this one.
	Skipped    int               `json:"skipped,omitempty"`
	Seed       uint64            `json:"seed"`
	WorldSize  int               `json:"world_size"`
	Spec       map[string]string `json:"spec"`                 // the settings that shape the result
	SpecSum    string            `json:"spec_digest"`          // digest of those settings
	DataSum    string            `json:"data_digest"`          // digest of the training set
	Vocabulary string            `json:"vocabulary,omitempty"` // of text: what tokens stand for, as data.Vocabulary's MarshalText says it
	Optimizer  string            `json:"optimizer"`            // kind, for example "sgd"
	OptimInit  bool              `json:"optimizer_initialised"`
	Metrics    map[string]Number `json:"metrics,omitempty"` // last figures, for people
	// Divided is the shape of each tensor of the files that are written in parts, by
	// the name of the whole file.
	Divided map[string]map[string][]int `json:"divided,omitempty"`
	Files   []File                      `json:"files"`
	// Replicas tells whether the ranks compared their weights before this save, and with
	// DDP the state of their optimizers.
	Replicas Replicas `json:"replicas,omitempty"`
	// Layout is the number of nodes and of ranks on each: "2x4", or "4+3" if the nodes have
	// different numbers of ranks. If nodes do not have consecutive ranks, it lists the node
	// of each rank: "0,1,0,1". Another layout of the same ranks sums in another order.
	Layout string `json:"layout,omitempty"`
	// Digest is the SHA-256 of the manifest itself, as the first version of this package
	// wrote it, with an empty Digest.
	Digest string `json:"digest"`
	// FullDigest is the SHA-256 of all fields except the two digests, including those of
	// later versions. Older manifests do not have it.
	FullDigest string `json:"full_digest,omitempty"`
}

// sum returns the value that Digest must have.
func (m Manifest) sum() (string, error) {
	m.Digest, m.FullDigest, m.Replicas, m.Layout = "", "", "", ""
	text, err := json.Marshal(m)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]), nil
}

// Number is a float that survives JSON even when it is not finite.
type Number float64

// MarshalText writes the shortest text that reads back the same.
func (n Number) MarshalText() ([]byte, error) { return fmt.Appendf(nil, "%v", float64(n)), nil }

// UnmarshalText reads what MarshalText writes.
func (n *Number) UnmarshalText(text []byte) error {
	_, err := fmt.Sscan(string(text), (*float64)(n))
	return err
}

// File is one file of a checkpoint.
type File struct {
	Name   string `json:"name"`
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
	Of     string `json:"of,omitempty"` // the file that this is a part of
	// HeaderSum is the CRC-32C of the file's header, in which those of its tensors are;
	// older checkpoints have none.
	HeaderSum string `json:"header_crc32c,omitempty"`
}

// Files are the tensors of a checkpoint by file name, for example [ModelFile].
type Files map[string][]safetensors.Tensor

// Entry is a checkpoint as found in a folder.
type Entry struct {
	Path     string
	Step     int
	Manifest *Manifest // nil when it could not be read
	Err      error     // why it could not
}

// name is the folder of a step; zeros keep the order of names that of steps.
func name(step int) string { return fmt.Sprintf("%s%08d", stepPrefix, step) }

// List returns the checkpoints of a folder, newest first, with manifests read
// but data unverified. A folder that does not exist has none.
func List(dir string) ([]Entry, error) {
	entries, err := find(dir)
	for i := range entries {
		entries[i].read()
	}
	return entries, err
}

// Newest is the first that [List] returns, false where there is none. It reads no
// other manifest: who looks often should not read those of all that are kept.
func Newest(dir string) (Entry, bool, error) {
	entries, err := find(dir)
	if len(entries) == 0 {
		return Entry{}, false, err
	}
	entries[0].read()
	return entries[0], true, err
}

// hasAny reports whether a directory has checkpoints, verified or not.
func hasAny(dir string) bool {
	entries, err := find(dir)
	return err == nil && len(entries) > 0
}

// find returns the checkpoints of a folder, newest first, with nothing read.
func find(dir string) ([]Entry, error) {
	found, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list checkpoints: %w", err)
	}
	var entries []Entry
	for _, f := range found {
		of := f.Name()
		if n, needed := waitingFor(dir, of); needed {
			of = n
		}
		var step int
		if _, err := fmt.Sscanf(of, stepPrefix+"%d", &step); err != nil || of != name(step) {
			continue
		}
		entries = append(entries, Entry{Path: filepath.Join(dir, f.Name()), Step: step})
	}
	slices.SortFunc(entries, func(a, b Entry) int { return b.Step - a.Step })
	return entries, nil
}

// read reads the manifest.
func (e *Entry) read() {
	e.Manifest, e.Err = readManifest(e.Path)
	if e.Err == nil && e.Manifest.Step != e.Step {
		e.Manifest, e.Err = nil, fmt.Errorf("the manifest in %q is of step %d", e.Path, e.Manifest.Step)
	}
}

func readManifest(path string) (*Manifest, error) {
	file := filepath.Join(path, manifestName)
	f, err := open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() > maxManifest {
		return nil, fmt.Errorf("%q has %d bytes; a manifest has at most %d", file, info.Size(), maxManifest)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxManifest))
	if err != nil {
		return nil, fmt.Errorf("read %q: %w", file, err)
	}
	m, err := decodeManifest(text)
	if err != nil {
		return nil, fmt.Errorf("read %q: %w", file, err)
	}
	return m, nil
}

// check reports values that no save writes. The digest does not rule them out: anyone can
// compute it, as it has no key.
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
