package trainer

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sort"
	"strings"
	"time"
	"unsafe"

	"github.com/ddpbatch/ddpbatch/trainer/checkpoint"
	"github.com/ddpbatch/ddpbatch/trainer/data"
	"github.com/ddpbatch/ddpbatch/trainer/device"
	"github.com/ddpbatch/ddpbatch/trainer/nn"
	"github.com/ddpbatch/ddpbatch/trainer/optim"
	"github.com/ddpbatch/ddpbatch/trainer/random"
	"github.com/ddpbatch/ddpbatch/trainer/safetensors"
)

// header is what rank 0 tells the others of the state that they start from.
type header struct {
	Position  position
	OptimInit bool
	Skipped   int64
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
	r.at, r.skipped = h.Position, int(h.Skipped)
	r.Step.Store(r.at.Step)
	for _, p := range r.params {
		if err := r.share(ctx, p.Data); err != nil {
			return fmt.Errorf("share parameter %q: %w", p.Name, err)
		}
	}
	state := r.optimizer.State()
	state.Initialised = h.OptimInit
	for _, t := range state.Tensors {
		if err := r.Comm.Broadcast(ctx, bytesOf(t.Data), 0); err != nil {
			return fmt.Errorf("share optimizer state %q: %w", t.Name, err)
		}
	}
	if err := r.optimizer.Restore(state); err != nil {
		return fmt.Errorf("restore the optimizer: %w", err)
	}
	if err := r.verify(ctx); err != nil {
		return err
	}
	if !fresh {
		return nil
	}
	return r.save()
}

// share broadcasts a tensor from rank 0, bit by bit.
func (r *run) share(ctx context.Context, t device.Tensor) error {
	values := device.Floats(r.device, t)
	if err := r.Comm.Broadcast(ctx, bytesOf(values), 0); err != nil {
		return err
	}
	if !r.device.Host() {
		r.device.Write(t, values)
	}
	return nil
}

// bytesOf is the memory of v: every processor that this is built for is
// little-endian, as files and connections are.
func bytesOf(v []float32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v))), 4*len(v))
}

// load fills model and optimiser on rank 0 and says where training stands.
func (r *run) load() (h header, fresh bool, err error) {
	s, skipped, err := checkpoint.Load(r.Checkpoints)
	for _, why := range skipped {
		r.Observe(Event{Kind: PassedOver, Err: why})
	}
	if errors.Is(err, checkpoint.ErrNone) {
		if err := r.firstWeights(); err != nil {
			return h, false, err
		}
		r.Observe(Event{Kind: Started, Epochs: int(r.train.Epochs)})
		return header{}, true, nil
	}
	if err != nil {
		return h, false, unusable{err}
	}
	defer s.Close()
	m := &s.Manifest
	if err := r.belongs(m); err != nil {
		return h, false, unusable{fmt.Errorf("checkpoint %q: %w", s.Path, err)}
	}
	if err := r.restore(s); err != nil {
		return h, false, unusable{fmt.Errorf("checkpoint %q: %w", s.Path, err)}
	}
	r.good[m.Step] = true
	h = header{position{int64(m.Step), int64(m.Epoch), int64(m.Consumed), m.Unevaluated}, m.OptimInit, int64(m.Skipped)}
	r.Observe(Event{Kind: Started, Step: m.Step, Epoch: m.Epoch, Epochs: int(r.train.Epochs), Path: s.Path})
	return h, false, nil
}

// restore reads a checkpoint straight into the memory of model and optimiser: there
// is no room for it beside them.
func (r *run) restore(s *checkpoint.Snapshot) error {
	if err := s.Read(checkpoint.ModelFile, nn.Tensors(r.device, r.params)); err != nil {
		return err
	}
	state := r.optimizer.State()
	if err := s.Read(checkpoint.OptimizerFile, stored(state)); err != nil {
		return err
	}
	state.Kind, state.Initialised = s.Manifest.Optimizer, s.Manifest.OptimInit
	return r.optimizer.Restore(state)
}

// stored is the state as a checkpoint's file has it, in the same memory.
func stored(state optim.State) []safetensors.Tensor {
	tensors := make([]safetensors.Tensor, len(state.Tensors))
	for i, t := range state.Tensors {
		tensors[i] = safetensors.Tensor{Name: t.Name, Shape: t.Shape, Data: t.Data}
	}
	return tensors
}

// firstWeights fills the model: from the job's file of weights, or as drawn.
func (r *run) firstWeights() error {
	path := string(r.train.Model.Weights)
	if path == "" {
		r.model.Init(random.New(uint64(r.train.Seed)), r.device)
		return nil
	}
	gpt, ok := r.model.(*nn.GPT)
	if !ok {
		return fmt.Errorf("weights from %q: a model of kind %q has none to read", path, r.train.Model.Kind)
	}
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("read weights: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("read weights: %w", err)
	}
	w, err := nn.OpenWeights(f, info.Size())
	if err == nil {
		err = w.Load(gpt, r.device)
	}
	if err != nil {
		return fmt.Errorf("read weights from %q: %w", path, err)
	}
	return nil
}

// vocabulary is what tokens of text stand for, to be kept with the weights.
func (r *run) vocabulary() (string, error) {
	t, ok := r.data.(data.Text)
	if !ok {
		return "", nil
	}
	text, err := t.Vocabulary().MarshalText()
	return string(text), err
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
		if !finite(r.device.SumSquares(p.Data)) {
			return diverged{fmt.Errorf("parameter %q holds numbers that are not finite after step %d", p.Name, r.at.Step), r.at.Step == 0}
		}
	}
	vocabulary, err := r.vocabulary()
	if err != nil {
		return err
	}
	state := r.optimizer.State()
	m := &checkpoint.Manifest{
		Run: r.Run, Created: time.Now().UTC(), Program: r.Program,
		Step: int(r.at.Step), Epoch: int(r.at.Epoch), Consumed: int(r.at.Consumed), Unevaluated: r.at.Unevaluated, Skipped: r.skipped, Finished: r.finished(),
		Seed: uint64(r.train.Seed), WorldSize: r.Comm.Size(), Spec: r.train.Fingerprint(), SpecSum: r.Job.TrainDigest(),
		DataSum: r.data.Digest(), Vocabulary: vocabulary, Optimizer: string(r.train.Optimizer.Kind), OptimInit: state.Initialised,
		Metrics: map[string]checkpoint.Number{},
	}
	for k, v := range r.last {
		m.Metrics[k] = checkpoint.Number(v)
	}
	began := time.Now()
	path, err := checkpoint.Save(r.Checkpoints, m, checkpoint.Files{checkpoint.ModelFile: nn.Tensors(r.device, r.params), checkpoint.OptimizerFile: stored(state)})
	if err != nil {
		return err
	}
	if err := checkpoint.Prune(r.Checkpoints, m.Step, int(r.Job.Checkpoint.Keep), r.good); err != nil {
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
