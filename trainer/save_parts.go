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

	"github.com/ddpbatch/ddpbatch/trainer/checkpoint"
	"github.com/ddpbatch/ddpbatch/trainer/collective"
	"github.com/ddpbatch/ddpbatch/trainer/collective/element"
)

// dividedFiles are the files that ranks write parts of, ordered by name.
var dividedFiles = [...]string{checkpoint.ModelFile, checkpoint.OptimizerFile}

// report is a rank's result of writing its parts.
type report struct {
	Failed uint64
	Files  [len(dividedFiles)]struct {
		Bytes     int64
		SHA256    [32]byte
		HeaderSum [4]byte
	}
}

// openParts creates the directory for parts on rank 0 and broadcasts its name.
func (r *run) openParts(ctx context.Context, s *saving) error {
	folder := make([]byte, 256) // name, padded with zeros; all zeros if there is nothing to write
	if r.Comm.Rank() == 0 && s.err == nil {
		s.manifest.Divided = s.shapes
		s.folder, s.err = checkpoint.Begin(r.Checkpoints, s.manifest)
		s.path = s.folder.Path()
		if s.err == nil && !s.folder.Exists {
			copy(folder, filepath.Base(s.folder.Folder))
		}
	}
	if err := r.Comm.Do(ctx, collective.Broadcast(folder, 0)); err != nil {
		return s.failed(err)
	}
	if name := strings.TrimRight(string(folder), "\x00"); name != "" {
		s.into = filepath.Join(r.Checkpoints, name)
	}
	return nil
}

func (s *saving) failed(err error) error {
	return fmt.Errorf("save checkpoint of step %d: %w", s.at.Step, err)
}

// writeParts writes this rank's parts.
func (s *saving) writeParts(rank int) {
	if s.into == "" {
		return
	}
	if s.files, s.err = checkpoint.WriteParts(s.into, rank, s.pieces); s.err != nil {
		if errors.Is(s.err, fs.ErrNotExist) {
			s.err = unshared{s.err}
		}
		s.err = s.failed(s.err)
	}
}

// agree exchanges the results of writing. If one rank failed, the save fails on all ranks.
func (r *run) agree(ctx context.Context, s *saving) error {
	if s.told = true; s.into == "" {
		return nil
	}
	all, failed, err := r.tell(ctx, s.files, s.err)
	if err != nil {
		return s.failed(err)
	}
	if s.files = all; s.err == nil && failed != nil { // this rank's own error is more specific
		s.err = s.failed(failed)
	}
	if s.err != nil && r.Comm.Rank() == 0 {
		s.folder.Abort()
	}
	return nil
}

// commitParts creates a checkpoint from all ranks' parts.
func (s *saving) commitParts() {
	if s.into == "" {
		return
	}
	if s.whole {
		s.files, s.err = s.folder.Consolidate(s.files)
	}
	if s.err == nil {
		s.path, s.err = s.folder.Commit(s.files)
	}
}

// tell returns the files of all ranks on every rank. It returns theirs if a rank could not write.
func (r *run) tell(ctx context.Context, written []checkpoint.File, failed error) (all []checkpoint.File, theirs, err error) {
	var mine report
	if failed != nil {
		mine.Failed = 1
	}
	for i, f := range written {
		mine.Files[i].Bytes = f.Bytes
		if _, err := hex.Decode(mine.Files[i].SHA256[:], []byte(f.SHA256)); err != nil {
			return nil, nil, err
		}
		if _, err := hex.Decode(mine.Files[i].HeaderSum[:], []byte(f.HeaderSum)); err != nil {
			return nil, nil, err
		}
	}
	size := binary.Size(mine)
	buf := make([]float32, r.Comm.Size()*size/4)
	if _, err := binary.Encode(element.Bytes(buf)[r.Comm.Rank()*size:], binary.LittleEndian, &mine); err != nil {
		return nil, nil, err
	}
	own := buf[r.Comm.Rank()*size/4:][:size/4]
	if err := r.Comm.Do(ctx, collective.AllGather(buf, own)); err != nil {
		return nil, nil, err
	}
	for rank := range r.Comm.Size() {
		var said report
		if _, err := binary.Decode(element.Bytes(buf)[rank*size:], binary.LittleEndian, &said); err != nil {
			return nil, nil, err
		}
		if said.Failed != 0 {
			return nil, fmt.Errorf("rank %d could not write its part", rank), nil
		}
		for i, f := range said.Files {
			name := dividedFiles[i]
			all = append(all, checkpoint.File{Name: checkpoint.PartName(name, rank), Bytes: f.Bytes, SHA256: hex.EncodeToString(f.SHA256[:]), HeaderSum: hex.EncodeToString(f.HeaderSum[:]), Of: name})
		}
	}
	return all, nil, nil
}

// unshared is the error for a directory that rank 0 has created but this rank does not see.
type unshared struct{ error }

func (u unshared) Unwrap() error { return u.error }

// Hint returns the fix.
func (unshared) Hint() string {
	return "with this train.strategy every rank writes a part of each checkpoint: put the run directory on a file system that all nodes share, or use \"ddp\""
}
