package checkpointing

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/trainer/checkpoint"
	"github.com/ddpbatch/ddpbatch/trainer/collective"
)

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
	if err := s.State.Comm.Do(ctx, collective.Broadcast(dirName, 0)); err != nil {
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
	all, err := collective.AllGatherJSON(ctx, s.State.Comm, result{c.files, c.err != nil})
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
