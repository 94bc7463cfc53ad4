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

// array is something that an optimiser keeps for each element of the parameters.
type array struct {
	prefix string      // of its tensors' names, which end in the parameter's
	values [][]float32 // of each parameter
}

// divided is the state of this rank's optimiser, which is that of the sharder's
// parts: what it keeps for each element by part, and other numbers.
func (r *run) divided(read optim.Read) (state optim.State, arrays []array, single []optim.Tensor) {
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
		i := slices.IndexFunc(arrays, func(a array) bool { return a.prefix == prefix })
		if i < 0 {
			i = len(arrays)
			arrays = append(arrays, array{prefix: prefix})
		}
		arrays[i].values = append(arrays[i].values, t.Data)
	}
	return state, arrays, single
}

// values are those that this rank keeps, by part.
func (r *run) values(read optim.Read) [][]float32 {
	var out [][]float32
	for _, p := range r.sharder.Parts() {
		out = append(out, read(p.Data))
	}
	return out
}

// floats reads a tensor: itself, or a copy of that of a device which has memory of its own.
func (r *run) floats(t device.Tensor) []float32 { return device.Floats(r.device, t) }

// unread is for who wants to know only what there is.
func unread(device.Tensor) []float32 { return nil }

// setValues is the opposite, where values are copies.
func (r *run) setValues(values [][]float32) {
	if r.device.Host() {
		return
	}
	for i, p := range r.sharder.Parts() {
		r.device.Write(p.Data, values[i])
	}
}

// origin is the checkpoint that training goes on from, on rank 0: its tensors, which are
// read while they are spread. Without any, training begins with new weights.
type origin struct {
	snapshot         *checkpoint.Snapshot
	model, optimizer *checkpoint.Tensors
}

// path is where the checkpoint is; empty without one.
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

// spread gives every rank its part of what rank 0 has.
func (r *run) spread(ctx context.Context, from origin, initialised bool) error {
	values := r.values(r.floats)
	err := r.sharder.Spread(ctx, values, func(give ddp.Give) error {
		if from.model == nil {
			return r.newWeights(give)
		}
		return r.read(from, from.model, "", give)
	})
	if err != nil {
		return fmt.Errorf("share parameters: %w", err)
	}
	r.setValues(values)
	r.sharder.Updated()
	state, arrays, single := r.divided(r.floats)
	state.Initialised = initialised
	for _, a := range arrays {
		if !initialised {
			break // all zero, as they are
		}
		err := r.sharder.Spread(ctx, a.values, func(give ddp.Give) error { return r.read(from, from.optimizer, a.prefix, give) })
		if err != nil {
			return fmt.Errorf("share optimizer state %q: %w", a.prefix, err)
		}
	}
	for _, t := range single {
		if from.optimizer != nil {
			if err := from.optimizer.Read(t.Name, 0, t.Data); err != nil {
				return from.unusable(err)
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

// read gives the tensors of all parameters, with a prefix to their names.
func (r *run) read(from origin, tensors *checkpoint.Tensors, prefix string, give ddp.Give) error {
	for i, p := range r.params {
		err := give(i, func(at int, values []float32) error {
			if err := tensors.Read(prefix+p.Name, at, values); err != nil {
				return from.unusable(err)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (o origin) unusable(err error) error {
	return unusable{fmt.Errorf("checkpoint %q: %w", o.path(), err)}
}

// shapes are those of all tensors of a checkpoint, by its files.
func (r *run) shapes() map[string]map[string][]int {
	model, optimizer := map[string][]int{}, map[string][]int{}
	_, arrays, single := r.divided(unread)
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
