package trainer

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"sort"
	"strings"
	"time"

	"github.com/ddpbatch/ddpbatch/trainer/checkpoint"
	"github.com/ddpbatch/ddpbatch/trainer/optim"
	"github.com/ddpbatch/ddpbatch/trainer/random"
	"github.com/ddpbatch/ddpbatch/trainer/safetensors"
)

// The files of a checkpoint.
const (
	modelFile     = "model.safetensors"
	optimizerFile = "optimizer.safetensors"
)

// header is what rank 0 tells the others of the state that they start from.
type header struct {
	Position  position
	OptimInit bool
}

// start brings every rank to the same state: the newest checkpoint that
// verifies, or fresh weights, which rank 0 saves at once.
func (r *run) start(ctx context.Context) error {
	var h header
	fresh := false
	if r.Comm.Rank() == 0 {
		var err error
		if h, fresh, err = r.load(); err != nil {
			return err
		}
	}
	wire, err := binary.Append(nil, binary.LittleEndian, h)
	if err != nil {
		return err
	}
	if err := r.Comm.Broadcast(ctx, wire, 0); err != nil {
		return fmt.Errorf("share the starting state: %w", err)
	}
	if _, err := binary.Decode(wire, binary.LittleEndian, &h); err != nil {
		return err
	}
	r.at = h.Position
	r.Step.Store(r.at.Step)
	for _, p := range r.params {
		if err := r.share(ctx, p.Data); err != nil {
			return fmt.Errorf("share parameter %q: %w", p.Name, err)
		}
	}
	state := r.optimizer.State()
	state.Initialised = h.OptimInit
	copies := make([]optim.Tensor, len(state.Tensors))
	for i, t := range state.Tensors {
		if err := r.share(ctx, t.Data); err != nil {
			return fmt.Errorf("share optimizer state %q: %w", t.Name, err)
		}
		copies[i] = optim.Tensor{Name: t.Name, Shape: t.Shape, Data: append([]float32(nil), t.Data...)}
	}
	state.Tensors = copies
	if err := r.optimizer.Restore(state); err != nil {
		return fmt.Errorf("restore the optimizer: %w", err)
	}
	if !fresh {
		return nil
	}
	return r.save()
}

// share broadcasts values from rank 0, bit by bit.
func (r *run) share(ctx context.Context, values []float32) error {
	wire, err := binary.Append(make([]byte, 0, 4*len(values)), binary.LittleEndian, values)
	if err != nil {
		return err
	}
	if err := r.Comm.Broadcast(ctx, wire, 0); err != nil {
		return err
	}
	_, err = binary.Decode(wire, binary.LittleEndian, values)
	return err
}

// load fills model and optimiser on rank 0 and says where training stands.
func (r *run) load() (h header, fresh bool, err error) {
	s, skipped, err := checkpoint.Load(r.Checkpoints)
	for _, why := range skipped {
		r.Observe(Event{Kind: PassedOver, Err: why})
	}
	if errors.Is(err, checkpoint.ErrNone) {
		r.model.Init(random.New(uint64(r.train.Seed)))
		r.Observe(Event{Kind: Started, Epochs: int(r.train.Epochs)})
		return header{}, true, nil
	}
	if err != nil {
		return h, false, unusable{err}
	}
	m := &s.Manifest
	if err := r.belongs(m); err != nil {
		return h, false, unusable{fmt.Errorf("checkpoint %q: %w", s.Path, err)}
	}
	byName := map[string][]float32{}
	for _, t := range s.Files[modelFile] {
		byName[t.Name] = t.Data
	}
	for _, p := range r.params {
		if len(byName[p.Name]) != len(p.Data) {
			return h, false, unusable{fmt.Errorf("checkpoint %q: parameter %q has %d values, the model wants %d", s.Path, p.Name, len(byName[p.Name]), len(p.Data))}
		}
		copy(p.Data, byName[p.Name])
	}
	state := optim.State{Kind: m.Optimizer, Initialised: m.OptimInit}
	for _, t := range s.Files[optimizerFile] {
		state.Tensors = append(state.Tensors, optim.Tensor{Name: t.Name, Shape: t.Shape, Data: t.Data})
	}
	if err := r.optimizer.Restore(state); err != nil {
		return h, false, unusable{fmt.Errorf("checkpoint %q: %w", s.Path, err)}
	}
	h = header{position{int64(m.Step), int64(m.Epoch), int64(m.Consumed)}, m.OptimInit}
	r.Observe(Event{Kind: Started, Step: m.Step, Epoch: m.Epoch, Epochs: int(r.train.Epochs), Path: s.Path})
	return h, false, nil
}

// belongs refuses a checkpoint that is not of this run, this spec or these data.
func (r *run) belongs(m *checkpoint.Manifest) error {
	if m.Run != r.Run {
		return fmt.Errorf("it was written by another run (%q, not %q)", m.Run, r.Run)
	}
	if m.SpecSum != r.Job.TrainDigest() {
		return fmt.Errorf("the job file has changed in what shapes the result: %s", difference(m.Spec, r.train.Fingerprint()))
	}
	if m.DataSum != r.data.Digest() {
		return fmt.Errorf("the training data have changed since (digest %.12s, now %.12s)", m.DataSum, r.data.Digest())
	}
	return nil
}

// difference lists the settings that differ, field by field.
func difference(was, is map[string]string) string {
	keys := map[string]bool{}
	for k := range was {
		keys[k] = true
	}
	for k := range is {
		keys[k] = true
	}
	var out []string
	for k := range keys {
		if was[k] != is[k] {
			out = append(out, fmt.Sprintf("%s was %q and is %q", k, was[k], is[k]))
		}
	}
	sort.Strings(out)
	return strings.Join(out, "; ")
}

// save writes the present state; only rank 0 does.
func (r *run) save() error {
	if r.Comm.Rank() != 0 {
		return nil
	}
	for _, p := range r.params {
		for _, v := range p.Data {
			if f := float64(v); math.IsNaN(f) || math.IsInf(f, 0) {
				return diverged{fmt.Errorf("parameter %q holds %v after step %d", p.Name, f, r.at.Step)}
			}
		}
	}
	state := r.optimizer.State()
	m := &checkpoint.Manifest{
		Run: r.Run, Created: time.Now().UTC(), Program: r.Program,
		Step: int(r.at.Step), Epoch: int(r.at.Epoch), Consumed: int(r.at.Consumed), Finished: r.finished(),
		Seed: uint64(r.train.Seed), WorldSize: r.Comm.Size(), Spec: r.train.Fingerprint(), SpecSum: r.Job.TrainDigest(),
		DataSum: r.data.Digest(), Optimizer: string(r.train.Optimizer.Kind), OptimInit: state.Initialised,
		Metrics: map[string]checkpoint.Number{},
	}
	for k, v := range r.last {
		m.Metrics[k] = checkpoint.Number(v)
	}
	var model, optimizer []safetensors.Tensor
	for _, p := range r.params {
		model = append(model, safetensors.Tensor{Name: p.Name, Shape: p.Shape, Data: p.Data})
	}
	for _, t := range state.Tensors {
		optimizer = append(optimizer, safetensors.Tensor{Name: t.Name, Shape: t.Shape, Data: t.Data})
	}
	began := time.Now()
	path, err := checkpoint.Save(r.Checkpoints, m, checkpoint.Files{modelFile: model, optimizerFile: optimizer})
	if err != nil {
		return err
	}
	if err := checkpoint.Prune(r.Checkpoints, int(r.Job.Checkpoint.Keep)); err != nil {
		return err
	}
	r.Observe(Event{Kind: Saved, Step: m.Step, Epoch: m.Epoch, Epochs: int(r.train.Epochs), Path: path, Took: time.Since(began)})
	return nil
}

// unusable is a checkpoint that is there and must not be used.
type unusable struct{ error }

func (u unusable) Unwrap() error { return u.error }

// ExitCode is the program's code for a run without a usable checkpoint.
func (unusable) ExitCode() int { return 5 }

// Hint says what to do about it.
func (u unusable) Hint() string {
	var inner interface{ Hint() string }
	if errors.As(u.error, &inner) {
		return inner.Hint()
	}
	return "give the changed job another name or --run-dir to train it from the start, or undo the change to go on"
}
