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

// newWeights passes the initial values of each parameter to send as soon as the model has written
// them. They come from the job's weights file or from random initialization.
func (r *run) newWeights(send ddp.SendParam) error {
	params := r.model.Params()
	tensors := make([]device.Tensor, len(params))
	for i, p := range params {
		tensors[i] = p.Data
	}
	to := &streamingMemory{send: send, params: map[unsafe.Pointer]int{}}
	nn.AllocValues(to, params)
	for i, p := range params {
		to.params[p.Data.Base()] = i
	}
	err := r.fillWeights(to)
	for i, p := range params {
		p.Data = tensors[i]
	}
	if err == nil {
		err = to.err
	}
	return err
}

// streamingMemory is a device memory that stores nothing: it sends a parameter's values with
// ScatterState when they are written.
type streamingMemory struct {
	plan.Counter
	send         ddp.SendParam
	params       map[unsafe.Pointer]int // by placeholder address
	err          error                  // the first error
	garbageBytes int                    // bytes of garbage since the last collection
}

// maxGarbage is the maximum garbage in bytes. Without a limit, the heap would grow to twice its
// size. A collection takes a few milliseconds.
const maxGarbage = 8 << 20

// Write sends a parameter.
func (m *streamingMemory) Write(t device.Tensor, values []float32) {
	m.sendParam(t, func(at int, to []float32) error {
		copy(to, values[at:])
		return nil
	})
	if m.garbageBytes += 4 * len(values); m.garbageBytes > maxGarbage {
		debug.FreeOSMemory()
		m.garbageBytes = 0
	}
}

// Zero sends zeros.
func (m *streamingMemory) Zero(t device.Tensor) {
	m.sendParam(t, func(_ int, to []float32) error {
		clear(to)
		return nil
	})
}

func (m *streamingMemory) sendParam(t device.Tensor, fill func(int, []float32) error) {
	param, ok := m.params[t.Base()]
	if !ok {
		panic("trainer: internal error: a write to a part of a parameter")
	}
	if m.err == nil {
		m.err = m.send(param, fill)
	}
}

// fillWeights initializes the model from the job's weights file, or randomly.
func (r *run) fillWeights(to device.Memory) error {
	path := string(r.train.Model.Weights)
	if path == "" {
		r.model.Init(random.New(r.train.Seed), to)
		return nil
	}
	gpt, ok := r.model.(*nn.GPT)
	if !ok {
		return fmt.Errorf("read weights from %q: not supported for a model of kind %q", path, r.train.Model.Kind)
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
