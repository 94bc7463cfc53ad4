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
	"syscall"
)

// Retention is the retention policy for checkpoints.
type Retention struct {
	Newest int // number of newest checkpoints to keep
	// Steps and Epochs, unless 0, keep checkpoints permanently: one every Steps steps, and one
	// every Epochs completed epochs, both including the checkpoint of step 0.
	Steps, Epochs int
	// Best, unless empty, is a metric of the manifest. The valid checkpoint with the best value
	// stays. If values are equal, the oldest stays, because its value was measured there.
	Best    string
	Highest bool // the highest value is best, not the lowest
}

// isPermanent reports whether a checkpoint stays permanently, regardless of newer ones.
func (k Retention) isPermanent(e Entry) bool {
	if k.Steps > 0 && e.Step%k.Steps == 0 {
		return true
	}
	m := e.Manifest
	return k.Epochs > 0 && m != nil && m.Consumed == 0 && m.Epoch%k.Epochs == 0
}

// BestSaved returns the best value of the metric Best among the checkpoints in dir that the given run
// wrote up to step, or NaN if none has the metric. It does not verify their tensors. Checkpoints of
// later steps do not count: they were skipped when the run resumed from step, and will be replaced.
func (k Retention) BestSaved(dir, run string, step int) (float64, error) {
	if k.Best == "" {
		return math.NaN(), nil
	}
	root, err := openOwn(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return math.NaN(), nil
	}
	if err != nil {
		return 0, fmt.Errorf("list checkpoints: %w", err)
	}
	defer root.Close()
	entries, err := listIn(root)
	entries = slices.DeleteFunc(entries, func(e Entry) bool {
		return e.Step > step || !e.IsOwn() || e.Manifest.Run != run
	})
	if value, index := k.bestOf(entries); index >= 0 {
		return value, err
	}
	return math.NaN(), err
}

// bestOf returns the best value of the metric Best and the index of its entry, or -1 if no entry
// has the metric. Entries are sorted newest first, as by [List].
func (k Retention) bestOf(entries []Entry) (value float64, at int) {
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

// Prune removes checkpoints that are older than the newest verified ones up to step, which was just
// saved. It keeps the checkpoints that policy retains permanently, the best checkpoint, checkpoints
// of later steps, and checkpoints of a newer version of the program. A later step was skipped when
// the run resumed from an older one; the run replaces it when it saves that step again. A corrupt
// checkpoint does not count, so no verified one is removed because of it. Prune also keeps
// checkpoints of other runs, and checkpoints whose manifest the file system cannot read: they may be
// permanent, or the best. For the same reason, it keeps a candidate for the best checkpoint that the
// file system cannot read.
//
// The argument run is the ID of the run that saved the checkpoint of step. If the checkpoint of
// step in dir belongs to a different run, Prune returns an error: another process may have replaced
// the directory. Prune removes checkpoints only from the directory that it has checked.
//
// The map verified caches, by step, whether a checkpoint verifies. The caller passes the same map
// to each call. Prune verifies a checkpoint that is not in the map, by reading it, and adds the
// result. If ctx ends, Prune stops and returns the cause.
func Prune(ctx context.Context, dir, run string, step int, policy Retention, verified map[int]bool) error {
	root, err := openOwn(dir)
	if err != nil {
		return fmt.Errorf("prune checkpoints: %w", err)
	}
	defer root.Close()
	if err := checkRun(root, run, step); err != nil {
		return fmt.Errorf("prune checkpoints in %q: %w", dir, err)
	}
	entries, err := listIn(root) // not by its path: another directory may be there now
	if err != nil {
		return err
	}
	entries = slices.DeleteFunc(entries, func(e Entry) bool {
		return e.Step > step || e.IsNewer() || isReadError(e.Err) || e.Manifest != nil && e.Manifest.Run != run
	})
	verified[step] = true
	unread := map[int]bool{} // not cached: the file system may recover
	verifies := func(e Entry) bool {
		if _, cached := verified[e.Step]; !cached && ctx.Err() == nil {
			err := verifyIn(ctx, root, e.Path)
			if unread[e.Step] = isReadError(err); !unread[e.Step] && ctx.Err() == nil {
				verified[e.Step] = err == nil
			}
		}
		return verified[e.Step]
	}
	best := policy.best(entries, verifies)
	retained := 0
	for i, e := range entries {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if retained >= policy.Newest && e.Step < step {
			if e.Step == best || unread[e.Step] || policy.isPermanent(e) {
				continue
			}
			if err := remove(root, filepath.Base(e.Path)); err != nil {
				return addHint(dir, fmt.Errorf("prune checkpoint of step %d in %q: %w", e.Step, dir, err))
			}
			continue
		}
		if len(entries)-i <= policy.Newest-retained {
			break // nothing is left to remove
		}
		if verifies(e) {
			retained++
		}
	}
	return nil
}

// isReadError reports whether the file system failed to read a file, which may be intact.
func isReadError(err error) bool {
	var errno syscall.Errno
	return errors.As(err, &errno) && !errors.Is(err, fs.ErrNotExist)
}

// best returns the step of the best checkpoint that verifies, or -1 if no such checkpoint exists.
func (k Retention) best(entries []Entry, verifies func(Entry) bool) int {
	if k.Best == "" {
		return -1
	}
	entries = slices.Clone(entries)
	for {
		_, at := k.bestOf(entries)
		if at < 0 {
			return -1
		}
		if verifies(entries[at]) {
			return entries[at].Step
		}
		entries = slices.Delete(entries, at, at+1)
	}
}

// clean removes the temporary files of interrupted saves and prunings from an open directory. No save
// may be in progress.
func clean(root *os.Root) error {
	found, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return fmt.Errorf("clean up checkpoints: %w", absolute(root.Name(), err))
	}
	for _, f := range found {
		if !strings.HasPrefix(f.Name(), tempPrefix) {
			continue
		}
		if _, needed := replacementOf(root.Lstat, f.Name()); needed {
			continue
		}
		if err := root.RemoveAll(f.Name()); err != nil {
			return fmt.Errorf("clean up checkpoints: %w", absolute(root.Name(), err))
		}
	}
	return nil
}

// remove removes a checkpoint, if it exists. It renames the checkpoint first, so readers never see a
// partial checkpoint, and the next [Save] removes the files that an interrupted call leaves.
func remove(root *os.Root, name string) error {
	aside := tempPrefix + "removed-" + name
	err := root.Rename(name, aside)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return root.RemoveAll(aside)
}

// checkRun returns an error unless the open directory has a checkpoint of step that the given run
// wrote.
func checkRun(root *os.Root, run string, step int) error {
	e := Entry{Path: filepath.Join(root.Name(), name(step)), Step: step}
	e.read(root)
	if e.Err == nil && e.Manifest.Run != run {
		return fmt.Errorf("checkpoint of step %d belongs to run %q, not to run %q", step, e.Manifest.Run, run)
	}
	return e.Err
}
