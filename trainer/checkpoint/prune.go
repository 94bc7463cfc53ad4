package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Prune removes what the keep newest good checkpoints up to step, which was just
// saved, leave without use: the ones older than these. Nothing else is removed: not
// what was just saved, not one of a later step, which was passed over when the run
// went on from an older one and is replaced when the run saves its step again, and
// for one that is damaged no good one goes.
//
// Good holds by step what is known of checkpoints, and is the caller's to keep from
// one call to the next: what is not in it is verified, at the cost of reading it,
// and added.
func Prune(dir string, step, keep int, good map[int]bool) error {
	entries, err := List(dir)
	if err != nil {
		return err
	}
	entries = slices.DeleteFunc(entries, func(e Entry) bool { return e.Step > step })
	good[step] = true
	kept := 0
	for i, e := range entries {
		if kept >= keep && e.Step < step {
			if err := remove(e.Path); err != nil {
				return fmt.Errorf("prune checkpoint of step %d: %w", e.Step, err)
			}
			continue
		}
		if len(entries)-i <= keep-kept {
			break // nothing is left to remove
		}
		if _, known := good[e.Step]; !known {
			good[e.Step] = Verify(e.Path) == nil
		}
		if good[e.Step] {
			kept++
		}
	}
	return nil
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
