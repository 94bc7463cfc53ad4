package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Keep says which checkpoints stay.
type Keep struct {
	Newest int // so many of them
	// Steps and Epochs, unless 0, keep for good what was saved after each so many steps,
	// or whole epochs.
	Steps, Epochs int
	// Best, unless empty, is a metric of the manifest: the good checkpoint that is best
	// by it stays, of equal ones the oldest, which was measured.
	Best    string
	Highest bool // is best, not the lowest
}

// forGood reports whether a checkpoint stays whatever is newer.
func (k Keep) forGood(e Entry) bool {
	if k.Steps > 0 && e.Step%k.Steps == 0 {
		return true
	}
	m := e.Manifest
	return k.Epochs > 0 && m != nil && m.Consumed == 0 && m.Epoch%k.Epochs == 0
}

// BestOf is the metric of the best of some checkpoints and which it is, -1 where none
// has the metric. Entries come newest first, as from [List].
func (k Keep) BestOf(entries []Entry) (value float64, at int) {
	at = -1
	for i, e := range entries {
		if e.Manifest == nil {
			continue
		}
		n, ok := e.Manifest.Metrics[k.Best]
		if v := float64(n); ok && !math.IsNaN(v) && (at < 0 || v == value || (v > value) == k.Highest) {
			value, at = v, i
		}
	}
	return value, at
}

// Prune removes checkpoints that are older than the newest verified ones up to step, which
// was just saved. It keeps the checkpoints that keep retains permanently, those of later
// steps, and those of a newer version of the program. A later step was passed over when
// the run resumed from an older one; the run replaces it when it saves that step again.
// A damaged checkpoint does not count, so no verified one is removed for it.
//
// Good holds by step what is known of checkpoints, and is the caller's to keep from
// one call to the next: what is not in it is verified, at the cost of reading it,
// and added.
func Prune(dir string, step int, keep Keep, good map[int]bool) error {
	entries, err := List(dir)
	if err != nil {
		return err
	}
	entries = slices.DeleteFunc(entries, func(e Entry) bool { return e.Step > step || e.IsNewer() })
	good[step] = true
	verifies := func(e Entry) bool {
		if _, known := good[e.Step]; !known {
			good[e.Step] = Verify(context.Background(), e.Path) == nil // a save is not interrupted
		}
		return good[e.Step]
	}
	best := keep.best(entries, verifies)
	kept := 0
	for i, e := range entries {
		if kept >= keep.Newest && e.Step < step {
			if e.Step == best || keep.forGood(e) {
				continue
			}
			if err := remove(e.Path); err != nil {
				return explain(dir, fmt.Errorf("prune checkpoint of step %d: %w", e.Step, err))
			}
			continue
		}
		if len(entries)-i <= keep.Newest-kept {
			break // nothing is left to remove
		}
		if verifies(e) {
			kept++
		}
	}
	return nil
}

// best is the step of the best checkpoint that verifies, -1 where there is none.
func (k Keep) best(entries []Entry, verifies func(Entry) bool) int {
	if k.Best == "" {
		return -1
	}
	entries = slices.Clone(entries)
	for {
		_, at := k.BestOf(entries)
		if at < 0 {
			return -1
		}
		if verifies(entries[at]) {
			return entries[at].Step
		}
		entries = slices.Delete(entries, at, at+1)
	}
}

// Clean removes what killed saves and interrupted prunings left in dir. No save
// may be under way.
func Clean(dir string) error {
	found, err := os.ReadDir(dir)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return fmt.Errorf("clean up checkpoints: %w", err)
	}
	for _, f := range found {
		if !strings.HasPrefix(f.Name(), tempPrefix) {
			continue
		}
		if _, needed := waitingFor(dir, f.Name()); needed {
			continue
		}
		if err := os.RemoveAll(filepath.Join(dir, f.Name())); err != nil {
			return fmt.Errorf("clean up checkpoints: %w", err)
		}
	}
	return nil
}

// setAside renames a checkpoint, if it is there, and returns its new path: it is
// none any more, and the next [Clean] removes what may be left.
func setAside(path string) (string, error) {
	aside := filepath.Join(filepath.Dir(path), tempPrefix+"removed-"+filepath.Base(path))
	err := os.Rename(path, aside)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return aside, err
}

// remove removes a checkpoint, if it is there, so that no part of it is seen.
func remove(path string) error {
	aside, err := setAside(path)
	if err != nil {
		return err
	}
	return os.RemoveAll(aside)
}
