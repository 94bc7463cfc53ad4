package trainer

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/ddpbatch/ddpbatch/trainer/checkpoint"
	"github.com/ddpbatch/ddpbatch/trainer/collective"
	"github.com/ddpbatch/ddpbatch/trainer/ddp"
	"github.com/ddpbatch/ddpbatch/trainer/device"
	"github.com/ddpbatch/ddpbatch/trainer/safetensors"
)

// save writes the present state: rank 0 all of it; or, where ranks keep parts, each
// its own, which rank 0 puts together when training is finished and the result is for
// others to read.
func (r *run) save(ctx context.Context) error {
	defer r.Progress.enter(phaseSaving)()
	began := time.Now()
	write := r.saveWhole
	if r.sharder.Strategy != ddp.DDP {
		write = r.saveParts
	}
	path, err := write(ctx)
	if err != nil || r.Comm.Rank() != 0 {
		return err
	}
	if err := checkpoint.Prune(r.Checkpoints, int(r.at.Step), r.keep(), r.good); err != nil {
		return err
	}
	r.Observe(Event{Kind: Saved, Step: int(r.at.Step), Epoch: int(r.at.Epoch), Epochs: int(r.train.Epochs), Path: path, Took: time.Since(began)})
	return nil
}

// manifest is that of the present state.
func (r *run) manifest() (*checkpoint.Manifest, error) {
	vocabulary, err := r.vocabulary()
	if err != nil {
		return nil, err
	}
	m := &checkpoint.Manifest{
		Run: r.Run, Created: time.Now().UTC(), Program: r.Program,
		Step: int(r.at.Step), Epoch: int(r.at.Epoch), Consumed: int(r.at.Consumed), Unevaluated: r.at.Unevaluated, Skipped: r.skipped, Finished: r.finished(),
		Seed: uint64(r.train.Seed), WorldSize: r.Comm.Size(), Spec: r.train.Fingerprint(), SpecSum: r.Job.TrainDigest(),
		DataSum: r.data.Digest(), Vocabulary: vocabulary, Optimizer: string(r.train.Optimizer.Kind), OptimInit: r.optimizer.State().Initialised,
		Metrics: map[string]checkpoint.Number{},
	}
	for k, v := range r.last {
		m.Metrics[k] = checkpoint.Number(v)
	}
	return m, nil
}

// saveWhole has rank 0 write everything.
func (r *run) saveWhole(context.Context) (path string, err error) {
	if r.Comm.Rank() != 0 {
		return "", nil
	}
	parts, err := r.pieces()
	if err != nil {
		return "", err
	}
	m, err := r.manifest()
	if err != nil {
		return "", err
	}
	files := checkpoint.Files{}
	for name, shapes := range r.shapes() {
		files[name] = nil // an optimiser may have nothing to keep
		for _, p := range parts[name] {
			files[name] = append(files[name], safetensors.Tensor{Name: p.Tensor, Shape: shapes[p.Tensor], Data: p.Data})
		}
	}
	return checkpoint.Save(r.Checkpoints, m, files)
}

// sane refuses values of a parameter that are not finite.
func (r *run) sane(param int, values []float32) error {
	if !r.finiteValues(values) {
		return diverged{fmt.Errorf("parameter %q holds numbers that are not finite after step %d", r.params[param].Name, r.at.Step), r.at.Step == 0}
	}
	return nil
}

// finiteValues looks at numbers in the host's memory.
func (r *run) finiteValues(values []float32) bool {
	if r.device.Host() {
		return finite(r.device.SumSquares(device.Host(values)))
	}
	return !slices.ContainsFunc(values, func(v float32) bool { return !finite(float64(v)) })
}

// dividedFiles are the files that ranks write parts of, ordered by name.
var dividedFiles = [...]string{checkpoint.ModelFile, checkpoint.OptimizerFile}

// report is what a rank says of its parts.
type report struct {
	Failed uint64
	Files  [len(dividedFiles)]struct {
		Bytes     int64
		SHA256    [32]byte
		HeaderSum [4]byte
	}
}

// saveParts has every rank write what it keeps, into a folder that rank 0 makes and
// makes visible at the end.
func (r *run) saveParts(ctx context.Context) (path string, err error) {
	fail := func(err error) (string, error) {
		return "", fmt.Errorf("save checkpoint of step %d: %w", r.at.Step, err)
	}
	var saving checkpoint.Saving
	folder := make([]byte, 256) // name, then zeros; none where nothing is to be done
	if r.Comm.Rank() == 0 {
		m, err := r.manifest()
		if err != nil {
			return "", err
		}
		m.Divided = r.shapes()
		if saving, err = checkpoint.Begin(r.Checkpoints, m); err != nil {
			return "", err
		}
		if !saving.Exists {
			copy(folder, filepath.Base(saving.Folder))
		}
	}
	if err := r.Comm.Broadcast(ctx, folder, 0); err != nil {
		return fail(err)
	}
	name := strings.TrimRight(string(folder), "\x00")
	if name == "" {
		return saving.Path(), nil
	}
	parts, err := r.pieces()
	var written []checkpoint.File
	if err == nil {
		written, err = checkpoint.WriteParts(filepath.Join(r.Checkpoints, name), r.Comm.Rank(), parts)
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = unshared{err}
	}
	all, told := r.tell(ctx, written, err)
	switch {
	case err != nil: // this rank's own failure says more than that there is one
		err = fmt.Errorf("save checkpoint of step %d: %w", r.at.Step, err)
	case told != nil:
		err = fmt.Errorf("save checkpoint of step %d: %w", r.at.Step, told)
	}
	if r.Comm.Rank() != 0 {
		return "", err
	}
	if err != nil {
		saving.Abort()
		return "", err
	}
	if r.finished() {
		if all, err = saving.Consolidate(all); err != nil {
			return "", err
		}
	}
	return saving.Commit(all)
}

// pieces are what this rank keeps.
func (r *run) pieces() (files map[string][]checkpoint.Part, err error) {
	var model, optimizer []checkpoint.Part
	r.sharder.Pieces(r.values(), func(i, at int, values []float32) {
		if err == nil {
			err = r.sane(i, values)
		}
		model = append(model, checkpoint.Part{Tensor: r.params[i].Name, At: at, Data: values})
	})
	_, arrays, single := r.divided()
	for _, a := range arrays {
		r.sharder.Pieces(a.values, func(i, at int, values []float32) {
			optimizer = append(optimizer, checkpoint.Part{Tensor: a.prefix + r.params[i].Name, At: at, Data: values})
		})
	}
	if r.Comm.Rank() == 0 {
		for _, t := range single {
			optimizer = append(optimizer, checkpoint.Part{Tensor: t.Name, Data: t.Data})
		}
	}
	return map[string][]checkpoint.Part{checkpoint.ModelFile: model, checkpoint.OptimizerFile: optimizer}, err
}

// tell has every rank know what all ranks have written, and fail if one has failed.
func (r *run) tell(ctx context.Context, written []checkpoint.File, failed error) ([]checkpoint.File, error) {
	var mine report
	if failed != nil {
		mine.Failed = 1
	}
	for i, f := range written {
		mine.Files[i].Bytes = f.Bytes
		if _, err := hex.Decode(mine.Files[i].SHA256[:], []byte(f.SHA256)); err != nil {
			return nil, err
		}
		if _, err := hex.Decode(mine.Files[i].HeaderSum[:], []byte(f.HeaderSum)); err != nil {
			return nil, err
		}
	}
	size := binary.Size(mine)
	buf := make([]float32, r.Comm.Size()*size/4)
	if _, err := binary.Encode(bytesOf(buf)[r.Comm.Rank()*size:], binary.LittleEndian, &mine); err != nil {
		return nil, err
	}
	own := buf[r.Comm.Rank()*size/4:][:size/4]
	if err := r.Comm.Do(ctx, collective.AllGather(buf, own)); err != nil {
		return nil, err
	}
	var all []checkpoint.File
	for rank := range r.Comm.Size() {
		var theirs report
		if _, err := binary.Decode(bytesOf(buf)[rank*size:], binary.LittleEndian, &theirs); err != nil {
			return nil, err
		}
		if theirs.Failed != 0 {
			return nil, fmt.Errorf("rank %d could not write its part", rank)
		}
		for i, f := range theirs.Files {
			name := dividedFiles[i]
			all = append(all, checkpoint.File{Name: checkpoint.PartName(name, rank), Bytes: f.Bytes, SHA256: hex.EncodeToString(f.SHA256[:]), HeaderSum: hex.EncodeToString(f.HeaderSum[:]), Of: name})
		}
	}
	return all, nil
}

// unshared is a folder that rank 0 has made and this rank cannot see.
type unshared struct{ error }

func (u unshared) Unwrap() error { return u.error }

// Hint says what to do about it.
func (unshared) Hint() string {
	return "with this train.strategy every rank writes a part of each checkpoint: put the run directory on a file system that all nodes share, or use \"ddp\""
}
