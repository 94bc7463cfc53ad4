package checkpointing

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"
	"strings"
	"time"

	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/trainer/checkpoint"
	"github.com/ddpbatch/ddpbatch/trainer/collective"
	"github.com/ddpbatch/ddpbatch/trainer/ddp"
	"github.com/ddpbatch/ddpbatch/trainer/safetensors"
)

// copyState compares the state of all ranks and sets c.pieces to this rank's part of it, which it
// copies if the save is asynchronous. It returns false on a rank that has nothing to write. If the
// save cannot succeed, c.err is the reason. The returned error means that communication failed or
// that the ranks differ.
func (s *Saver) copyState(ctx context.Context, c *save) (hasPart bool, err error) {
	if err := s.State.CompareAll(ctx, c.step); err != nil {
		return false, err
	}
	c.began, c.sharded = time.Now(), s.State.Sharder.Strategy != ddp.DDP
	isRoot := s.State.Comm.Rank() == 0
	if !c.sharded && !isRoot {
		return false, nil
	}
	c.shapes = s.State.shapes()
	if isRoot {
		if c.manifest, c.err = s.Manifest(); c.err == nil {
			m := c.manifest
			m.Run, m.Created, m.WorldSize = s.Run, c.began.UTC(), s.State.Comm.Size()
			m.OptimInit, m.Replicas = s.State.Optimizer.StateBy(readNothing).Initialized, checkpoint.ReplicasNone
			if s.State.hasReplicas() {
				m.Replicas = checkpoint.ReplicasCompared
			}
			c.err = s.checkMoved(c)
		}
	}
	if c.sharded {
		if err := s.createPartDir(ctx, c); err != nil {
			return false, err
		}
	}
	c.pieces = s.State.pieces(s.reader())
	if c.async {
		s.copyPieces(c.pieces)
	}
	return true, nil
}

// write writes this rank's part in phase writing.
func (s *Saver) write(ctx context.Context, c *save) {
	if c.err == nil {
		c.err = c.checkFinite()
	}
	if c.err != nil {
		return
	}
	if c.sharded {
		c.writeParts(s.State.Comm.Rank())
		return
	}
	files := checkpoint.Files{}
	for name, shapes := range c.shapes {
		files[name] = nil // an optimizer may be stateless
		for _, p := range c.pieces[name] {
			files[name] = append(files[name], safetensors.Tensor{Name: p.Tensor, Shape: shapes[p.Tensor], Data: p.Data})
		}
	}
	if c.path, c.err = checkpoint.Save(s.Dir, c.manifest, files); c.err == nil {
		s.prune(ctx, c)
	}
}

// createPartDir creates the directory for parts on rank 0 and broadcasts its name.
func (s *Saver) createPartDir(ctx context.Context, c *save) error {
	dirName := make([]byte, 256) // name, padded with zeros; all zeros if there is nothing to write
	if s.State.Comm.Rank() == 0 && c.err == nil {
		c.manifest.Sharded = c.shapes
		c.target, c.err = checkpoint.Begin(s.Dir, c.manifest)
		c.path = c.target.Path()
		if c.err == nil && !c.target.Exists {
			copy(dirName, filepath.Base(c.target.TempDir))
		}
	}
	if err := s.State.Comm.Do(untimed(ctx), collective.Broadcast(dirName, 0)); err != nil {
		return c.wrapError(err)
	}
	if name := strings.TrimRight(string(dirName), "\x00"); name != "" {
		c.partDir = filepath.Join(s.Dir, name)
	}
	return nil
}

func (c *save) wrapError(err error) error {
	return fmt.Errorf("save checkpoint of step %d: %w", c.step, err)
}

// writeParts writes this rank's parts.
func (c *save) writeParts(rank int) {
	if c.partDir == "" {
		return
	}
	if c.files, c.err = checkpoint.WriteParts(c.partDir, rank, c.pieces); c.err != nil {
		if errors.Is(c.err, fs.ErrNotExist) {
			c.err = hints.Add(c.err, "with this train.strategy every rank writes a part of each checkpoint: put the run directory on a file system that all nodes share, or use \"ddp\"")
		}
		c.err = c.wrapError(c.err)
	}
}

// exchangeResults exchanges the results of writing. If one rank failed, the save fails on all
// ranks.
func (s *Saver) exchangeResults(ctx context.Context, c *save) error {
	if c.partDir == "" {
		return nil
	}
	type result struct {
		Files  []checkpoint.File
		Failed bool
	}
	all, err := collective.AllGatherJSON(untimed(ctx), s.State.Comm, result{c.files, c.err != nil})
	if err != nil {
		return c.wrapError(err)
	}
	c.files = nil
	for rank, r := range all {
		c.files = append(c.files, r.Files...)
		if r.Failed && c.err == nil { // this rank's own error is more specific
			c.err = c.wrapError(fmt.Errorf("rank %d could not write its part", rank))
		}
	}
	if c.err != nil && s.State.Comm.Rank() == 0 {
		c.target.Abort()
	}
	return nil
}

// commitParts creates a checkpoint from all ranks' parts.
func (c *save) commitParts() {
	if c.partDir == "" {
		return
	}
	if c.manifest.Finished {
		c.files, c.err = c.target.Consolidate(c.files)
	}
	if c.err == nil {
		c.path, c.err = c.target.Commit(c.files)
	}
}

// prune removes old checkpoints after a save.
func (s *Saver) prune(ctx context.Context, c *save) {
	err := checkpoint.Prune(ctx, s.Dir, s.Run, int(c.step), s.Retention, s.verified)
	if ctx.Err() == nil { // otherwise the attempt ends, and the checkpoint is saved
		c.pruneErr = err
	}
}

// checkMoved returns an error if the directory was moved or deleted.
func (s *Saver) checkMoved(c *save) error {
	if s.CheckDir == nil {
		return nil
	}
	if err := s.CheckDir(); err != nil {
		return movedError{c.wrapError(err)}
	}
	return nil
}

// movedError is the error for a save into a directory that was moved or deleted.
type movedError struct{ error }

// Unwrap returns the cause, which has a hint.
func (e movedError) Unwrap() error { return e.error }

// NonFiniteError is the error for a loss, gradient, or parameter that is not finite.
type NonFiniteError struct {
	Err       error
	FirstStep bool // in the first step
}

func (e NonFiniteError) Error() string { return e.Err.Error() }

// Hint returns the fix.
func (e NonFiniteError) Hint() string {
	if e.FirstStep {
		return "check the data for huge or non-finite values, and the scale of the inputs; the learning rate is not the cause, because there was no update yet"
	}
	return "reduce train.optimizer.lr, in a new run directory or from the start; or set train.nonfinite = \"skip\" to skip single steps; the failed step was not saved"
}

// checkFinite returns an error if a parameter is not finite.
func (c *save) checkFinite() error {
	for _, p := range c.pieces[checkpoint.ModelFile] {
		for _, v := range p.Data {
			const exponent = 0xff << 23
			if math.Float32bits(v)&exponent == exponent {
				return NonFiniteError{fmt.Errorf("parameter %q is not finite after step %d", p.Tensor, c.step), c.step == 0}
			}
		}
	}
	return nil
}
