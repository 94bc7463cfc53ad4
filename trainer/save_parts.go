package trainer

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/trainer/checkpoint"
	"github.com/ddpbatch/ddpbatch/trainer/collective"
	"github.com/ddpbatch/ddpbatch/trainer/collective/element"
)

// shardedFiles are the files that ranks write parts of, ordered by name.
var shardedFiles = [...]string{checkpoint.ModelFile, checkpoint.OptimizerFile}

// partReport is a rank's result of writing its parts.
type partReport struct {
	Failed uint64
	Files  [len(shardedFiles)]struct {
		Bytes     int64
		SHA256    [32]byte
		HeaderSum [4]byte
	}
}

// createPartDir creates the directory for parts on rank 0 and broadcasts its name.
func (r *run) createPartDir(ctx context.Context, s *pendingSave) error {
	dirName := make([]byte, 256) // name, padded with zeros; all zeros if there is nothing to write
	if r.Comm.Rank() == 0 && s.err == nil {
		s.manifest.Sharded = s.shapes
		s.target, s.err = checkpoint.Begin(r.Checkpoints, s.manifest)
		s.path = s.target.Path()
		if s.err == nil && !s.target.Exists {
			copy(dirName, filepath.Base(s.target.TempDir))
		}
	}
	if err := r.Comm.Do(ctx, collective.Broadcast(dirName, 0)); err != nil {
		return s.wrapError(err)
	}
	if name := strings.TrimRight(string(dirName), "\x00"); name != "" {
		s.partDir = filepath.Join(r.Checkpoints, name)
	}
	return nil
}

func (s *pendingSave) wrapError(err error) error {
	return fmt.Errorf("save checkpoint of step %d: %w", s.at.Step, err)
}

// writeParts writes this rank's parts.
func (s *pendingSave) writeParts(rank int) {
	if s.partDir == "" {
		return
	}
	if s.files, s.err = checkpoint.WriteParts(s.partDir, rank, s.pieces); s.err != nil {
		if errors.Is(s.err, fs.ErrNotExist) {
			s.err = hints.Add(s.err, "with this train.strategy every rank writes a part of each checkpoint: put the run directory on a file system that all nodes share, or use \"ddp\"")
		}
		s.err = s.wrapError(s.err)
	}
}

// exchangeResults exchanges the results of writing. If one rank failed, the save fails on all
// ranks.
func (r *run) exchangeResults(ctx context.Context, s *pendingSave) error {
	if s.exchanged = true; s.partDir == "" {
		return nil
	}
	all, failed, err := r.gatherPartReports(ctx, s.files, s.err)
	if err != nil {
		return s.wrapError(err)
	}
	if s.files = all; s.err == nil && failed != nil { // this rank's own error is more specific
		s.err = s.wrapError(failed)
	}
	if s.err != nil && r.Comm.Rank() == 0 {
		s.target.Abort()
	}
	return nil
}

// commitParts creates a checkpoint from all ranks' parts.
func (s *pendingSave) commitParts() {
	if s.partDir == "" {
		return
	}
	if s.final {
		s.files, s.err = s.target.Consolidate(s.files)
	}
	if s.err == nil {
		s.path, s.err = s.target.Commit(s.files)
	}
}

// gatherPartReports returns the files of all ranks on every rank. If a rank could not write,
// peerErr names it.
func (r *run) gatherPartReports(ctx context.Context, written []checkpoint.File, failed error) (all []checkpoint.File, peerErr, err error) {
	var own partReport
	if failed != nil {
		own.Failed = 1
	}
	for i, f := range written {
		own.Files[i].Bytes = f.Bytes
		if _, err := hex.Decode(own.Files[i].SHA256[:], []byte(f.SHA256)); err != nil {
			return nil, nil, err
		}
		if _, err := hex.Decode(own.Files[i].HeaderSum[:], []byte(f.HeaderCRC)); err != nil {
			return nil, nil, err
		}
	}
	size := binary.Size(own)
	buf := make([]float32, r.Comm.Size()*size/4)
	if _, err := binary.Encode(element.Bytes(buf)[r.Comm.Rank()*size:], binary.LittleEndian, &own); err != nil {
		return nil, nil, err
	}
	ownBuf := buf[r.Comm.Rank()*size/4:][:size/4]
	if err := r.Comm.Do(ctx, collective.AllGather(buf, ownBuf)); err != nil {
		return nil, nil, err
	}
	for rank := range r.Comm.Size() {
		var peer partReport
		if _, err := binary.Decode(element.Bytes(buf)[rank*size:], binary.LittleEndian, &peer); err != nil {
			return nil, nil, err
		}
		if peer.Failed != 0 {
			return nil, fmt.Errorf("rank %d could not write its part", rank), nil
		}
		for i, f := range peer.Files {
			name := shardedFiles[i]
			all = append(all, checkpoint.File{Name: checkpoint.PartName(name, rank), Bytes: f.Bytes, SHA256: hex.EncodeToString(f.SHA256[:]), HeaderCRC: hex.EncodeToString(f.HeaderSum[:]), PartOf: name})
		}
	}
	return all, nil, nil
}
