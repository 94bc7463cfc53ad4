package trainer

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"sort"
	"strings"
	"unsafe"

	"github.com/ddpbatch/ddpbatch/trainer/checkpoint"
	"github.com/ddpbatch/ddpbatch/trainer/data"
	"github.com/ddpbatch/ddpbatch/trainer/ddp"
	"github.com/ddpbatch/ddpbatch/trainer/device"
	"github.com/ddpbatch/ddpbatch/trainer/nn"
	"github.com/ddpbatch/ddpbatch/trainer/optim"
	"github.com/ddpbatch/ddpbatch/trainer/random"
)

// header is what rank 0 tells the others of the state that they start from.
type header struct {
	Position  position
	OptimInit bool
	Skipped   int64
	Fresh     bool // there is no checkpoint of it yet
}

// start brings every rank to the same state: the newest checkpoint that
// verifies, or fresh weights, which rank 0 saves at once.
func (r *run) start(ctx context.Context) error {
	var h header
	var from whole
	if r.Comm.Rank() == 0 {
		var err error
		if h, from, err = r.load(); err != nil {
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
	r.Progress.step.Store(r.at.Step)
	if err := r.spread(ctx, from, h.OptimInit); err != nil {
		return err
	}
	// With what this rank keeps a part of the whole was here: the heap would keep its
	// memory for good, since training allocates nothing.
	debug.FreeOSMemory()
	if err := r.verify(ctx); err != nil {
		return err
	}
	if !h.Fresh {
		return nil
	}
	return r.save(ctx)
}

// bytesOf is the memory of v: every processor that this is built for is
// little-endian, as files and connections are.
func bytesOf(v []float32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v))), 4*len(v))
}

// load returns values and optimiser state for rank 0 to spread, and says where
// training stands.
func (r *run) load() (h header, from whole, err error) {
	s, skipped, err := checkpoint.Load(r.Checkpoints)
	for _, why := range skipped {
		r.Observe(Event{Kind: PassedOver, Err: why})
	}
	if errors.Is(err, checkpoint.ErrNone) {
		if from.values, err = r.firstWeights(); err != nil {
			return h, from, err
		}
		r.Observe(Event{Kind: Started, Epochs: int(r.train.Epochs)})
		return header{Fresh: true}, from, nil
	}
	if err != nil {
		return h, from, unusable{err}
	}
	defer s.Close()
	m := &s.Manifest
	if err = r.belongs(m); err == nil {
		from, err = r.restore(s)
	}
	if err != nil {
		return h, from, unusable{fmt.Errorf("checkpoint %q: %w", s.Path, err)}
	}
	r.good[m.Step] = true
	h = header{Position: position{int64(m.Step), int64(m.Epoch), int64(m.Consumed), m.Unevaluated}, OptimInit: m.OptimInit, Skipped: int64(m.Skipped)}
	r.Observe(Event{Kind: Started, Step: m.Step, Epoch: m.Epoch, Epochs: int(r.train.Epochs), Path: s.Path})
	return h, from, nil
}

// restore reads a checkpoint, straight into the memory of model and optimiser where
// this rank has all of them: there is no room for it beside them.
func (r *run) restore(s *checkpoint.Snapshot) (to whole, err error) {
	kind := s.Manifest.Optimizer
	if kind == "" {
		kind = optim.KindSGD // the only one before manifests named it
	}
	if want := r.optimizer.Kind(); kind != want {
		return to, fmt.Errorf("restore optimizer: the state is of kind %q, want %q", kind, want)
	}
	to = r.room()
	for name, tensors := range r.files(to) {
		if err := s.Read(name, tensors); err != nil {
			return to, err
		}
	}
	return to, nil
}

// firstWeights returns the values of a new model: from the job's file of weights, or
// as drawn. Where this rank does not keep all of them there is memory for them until
// they are spread.
func (r *run) firstWeights() ([][]float32, error) {
	if r.sharder.Strategy == ddp.ZeRO3 {
		nn.Place(r.device, r.params)
	}
	if err := r.fillWeights(); err != nil {
		return nil, err
	}
	var values [][]float32
	for _, p := range r.params {
		values = append(values, device.Floats(r.device, p.Data))
	}
	return values, nil
}

// fillWeights fills the model: from the job's file of weights, or as drawn.
func (r *run) fillWeights() error {
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
