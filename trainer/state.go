package trainer

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/ddpbatch/ddpbatch/trainer/checkpoint"
	"github.com/ddpbatch/ddpbatch/trainer/collective"
	"github.com/ddpbatch/ddpbatch/trainer/collective/element"
	"github.com/ddpbatch/ddpbatch/trainer/ddp"
	"github.com/ddpbatch/ddpbatch/trainer/device"
	"github.com/ddpbatch/ddpbatch/trainer/optim"
)

// stateArray is optimizer state that has one value per parameter element, such as momentum.
type stateArray struct {
	prefix string      // of its tensors' names; the parameter's name follows
	values [][]float32 // by part
}

// optimizerState returns the state of this rank's optimizer, whose parameters are the sharder's
// parts. It separates arrays with one value per element from single values.
func (r *run) optimizerState(read optim.Read) (state optim.State, arrays []stateArray, single []optim.Tensor) {
	state = r.optimizer.StateBy(read)
	parts := r.sharder.Parts()
	part := func(name string) (prefix string, ok bool) {
		for _, p := range parts {
			if prefix, ok := strings.CutSuffix(name, p.Name); ok {
				return prefix, true
			}
		}
		return "", false
	}
	for _, t := range state.Tensors {
		prefix, ok := part(t.Name)
		if !ok {
			single = append(single, t)
			continue
		}
		i := slices.IndexFunc(arrays, func(a stateArray) bool { return a.prefix == prefix })
		if i < 0 {
			i = len(arrays)
			arrays = append(arrays, stateArray{prefix: prefix})
		}
		arrays[i].values = append(arrays[i].values, t.Data)
	}
	return state, arrays, single
}

// values returns the parameter values of this rank, by part.
func (r *run) values(read optim.Read) [][]float32 {
	var out [][]float32
	for _, p := range r.sharder.Parts() {
		out = append(out, read(p.Data))
	}
	return out
}

// readTensor returns a tensor's memory, or a copy of it if the device has its own memory.
func (r *run) readTensor(t device.Tensor) []float32 { return device.Floats(r.device, t) }

// readNothing returns nil, for callers that need only the names and shapes.
func readNothing(device.Tensor) []float32 { return nil }

// writeValues writes values to the device, unless they are the device's memory.
func (r *run) writeValues(values [][]float32) {
	if r.device.Host() {
		return
	}
	for i, p := range r.sharder.Parts() {
		r.device.Write(p.Data, values[i])
	}
}

// origin is the checkpoint that training resumes from, on rank 0. Its tensors are read while they
// are sent to the other ranks. Without a checkpoint, training begins with new weights.
type origin struct {
	snapshot         *checkpoint.Snapshot
	model, optimizer *checkpoint.Tensors
}

// path returns the path of the checkpoint, or "".
func (o origin) path() string {
	if o.snapshot == nil {
		return ""
	}
	return o.snapshot.Path
}

func (o origin) close() {
	if o.snapshot != nil {
		o.snapshot.Close()
	}
}

// scatterState sends every rank its part of rank 0's state.
func (r *run) scatterState(ctx context.Context, from origin, initialized bool) error {
	values := r.values(r.readTensor)
	err := r.sharder.ScatterState(ctx, values, func(give ddp.Give) error {
		if from.model == nil {
			return r.newWeights(give)
		}
		return r.giveTensors(from, from.model, "", give)
	})
	if err != nil {
		return fmt.Errorf("share parameters: %w", err)
	}
	r.writeValues(values)
	r.sharder.MarkUpdated()
	state, arrays, single := r.optimizerState(r.readTensor)
	state.Initialized = initialized
	for _, a := range arrays {
		if !initialized {
			break // they are already zero
		}
		err := r.sharder.ScatterState(ctx, a.values, func(give ddp.Give) error { return r.giveTensors(from, from.optimizer, a.prefix, give) })
		if err != nil {
			return fmt.Errorf("share optimizer state %q: %w", a.prefix, err)
		}
	}
	for _, t := range single {
		if from.optimizer != nil {
			if err := from.optimizer.Read(t.Name, 0, t.Data); err != nil {
				return from.wrapUnusable(err)
			}
		}
		if err := r.Comm.Do(ctx, collective.Broadcast(element.Bytes(t.Data), 0)); err != nil {
			return fmt.Errorf("share optimizer state %q: %w", t.Name, err)
		}
	}
	if err := r.optimizer.Restore(state); err != nil {
		return fmt.Errorf("restore the optimizer: %w", err)
	}
	return nil
}

// giveTensors passes each parameter's tensor in the checkpoint to give. The name of the tensor is
// prefix and the name of the parameter.
func (r *run) giveTensors(from origin, tensors *checkpoint.Tensors, prefix string, give ddp.Give) error {
	for i, p := range r.params {
		err := give(i, func(at int, values []float32) error {
			if err := tensors.Read(prefix+p.Name, at, values); err != nil {
				return from.wrapUnusable(err)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (o origin) wrapUnusable(err error) error {
	return unusableError{fmt.Errorf("checkpoint %q: %w", o.path(), err)}
}

// tensorShapes returns the shapes of all tensors of a checkpoint, by file.
func (r *run) tensorShapes() map[string]map[string][]int {
	model, optimizer := map[string][]int{}, map[string][]int{}
	_, arrays, single := r.optimizerState(readNothing)
	for _, p := range r.params {
		model[p.Name] = p.Shape
		for _, a := range arrays {
			optimizer[a.prefix+p.Name] = p.Shape
		}
	}
	for _, t := range single {
		optimizer[t.Name] = t.Shape
	}
	return map[string]map[string][]int{checkpoint.ModelFile: model, checkpoint.OptimizerFile: optimizer}
}
