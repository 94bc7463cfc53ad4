package trainer

import (
	"fmt"
	"runtime/debug"
	"unsafe"

	"github.com/ddpbatch/ddpbatch/internal/safefile"
	"github.com/ddpbatch/ddpbatch/trainer/ddp"
	"github.com/ddpbatch/ddpbatch/trainer/device"
	"github.com/ddpbatch/ddpbatch/trainer/nn"
	"github.com/ddpbatch/ddpbatch/trainer/plan"
	"github.com/ddpbatch/ddpbatch/trainer/random"
)

// newWeights gives the values of a new model, each parameter as soon as the model has written it.
// They come from the job's weights file or from random initialization.
func (r *run) newWeights(give ddp.Give) error {
	kept := make([]device.Tensor, len(r.params))
	for i, p := range r.params {
		kept[i] = p.Data
	}
	to := &passing{give: give, params: map[unsafe.Pointer]int{}}
	nn.Place(to, r.params)
	for i, p := range r.params {
		to.params[p.Data.Base()] = i
	}
	err := r.fillWeights(to)
	for i, p := range r.params {
		p.Data = kept[i]
	}
	if err == nil {
		err = to.err
	}
	return err
}

// passing is a device memory that stores nothing: it gives a parameter's values to Spread when they
// are written.
type passing struct {
	plan.Counter
	give   ddp.Give
	params map[unsafe.Pointer]int // by placeholder address
	err    error                  // the first error
	litter int                    // bytes of garbage since the last collection
}

// mostLitter is the maximum amount of garbage. Without a limit, the heap would grow to twice its
// size. A collection takes a few milliseconds.
const mostLitter = 8 << 20

// Write gives a parameter to Spread.
func (m *passing) Write(t device.Tensor, values []float32) {
	m.pass(t, func(at int, to []float32) error {
		copy(to, values[at:])
		return nil
	})
	if m.litter += 4 * len(values); m.litter > mostLitter {
		debug.FreeOSMemory()
		m.litter = 0
	}
}

// Zero gives zeros to Spread.
func (m *passing) Zero(t device.Tensor) {
	m.pass(t, func(_ int, to []float32) error {
		clear(to)
		return nil
	})
}

func (m *passing) pass(t device.Tensor, fill func(int, []float32) error) {
	param, ok := m.params[t.Base()]
	if !ok {
		panic("trainer: internal error: a part of a parameter is written")
	}
	if m.err == nil {
		m.err = m.give(param, fill)
	}
}

// fillWeights initializes the model from the job's weights file, or randomly.
func (r *run) fillWeights(to device.Memory) error {
	path := string(r.train.Model.Weights)
	if path == "" {
		r.model.Init(random.New(uint64(r.train.Seed)), to)
		return nil
	}
	gpt, ok := r.model.(*nn.GPT)
	if !ok {
		return fmt.Errorf("weights from %q: a model of kind %q has none to read", path, r.train.Model.Kind)
	}
	f, err := safefile.Open(path, 0)
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
		err = w.Load(gpt, to)
	}
	if err != nil {
		return fmt.Errorf("read weights from %q: %w", path, err)
	}
	return nil
}
