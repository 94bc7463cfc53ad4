package trainer

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/ddpbatch/ddpbatch/trainer/checkpoint"
	"github.com/ddpbatch/ddpbatch/trainer/ddp"
	"github.com/ddpbatch/ddpbatch/trainer/optim"
	"github.com/ddpbatch/ddpbatch/trainer/safetensors"
)

// whole is the state of training by parameter, as a checkpoint has it whatever the
// strategy: on rank 0 only.
type whole struct {
	values [][]float32 // of each parameter
	state  []array     // of the optimiser
	single []optim.Tensor
}

// array is something that an optimiser keeps for each element of the parameters.
type array struct {
	prefix string      // of its tensors' names, which end in the parameter's
	values [][]float32 // of each parameter
}

// divided is the state of this rank's optimiser, which is that of the sharder's
// parts: what it keeps for each element by part, and other numbers.
func (r *run) divided() (state optim.State, arrays []array, single []optim.Tensor) {
	state = r.optimizer.State()
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

// room is memory on rank 0 for the whole state: that of this rank's own, where it has
// all of it.
func (r *run) room() whole {
	all := func(parts [][]float32) [][]float32 {
		out := make([][]float32, len(r.params))
		if r.sharder.Strategy == ddp.DDP {
			r.sharder.Pieces(parts, func(i, _ int, values []float32) { out[i] = values })
			return out
		}
		for i, p := range r.params {
			out[i] = make([]float32, p.Len())
		}
		return out
	}
	_, arrays, single := r.divided()
	to := whole{values: all(r.values()), single: single}
	for _, a := range arrays {
		to.state = append(to.state, array{a.prefix, all(a.values)})
	}
	return to
}

// values are those that this rank keeps, by part.
func (r *run) values() [][]float32 {
	var out [][]float32
	for _, p := range r.sharder.Parts() {
		out = append(out, p.Data.Floats())
	}
	return out
}

// spread gives every rank its part of what rank 0 has.
func (r *run) spread(ctx context.Context, from whole, initialised bool) error {
	if err := r.sharder.Spread(ctx, r.values(), from.values); err != nil {
		return fmt.Errorf("share parameters: %w", err)
	}
	r.sharder.Updated()
	state, arrays, single := r.divided()
	state.Initialised = initialised
	if from.state == nil {
		from.state = arrays // all zero, as they are
	}
	for i, a := range arrays {
		if !initialised {
			break
		}
		if err := r.sharder.Spread(ctx, a.values, from.state[i].values); err != nil {
			return fmt.Errorf("share optimizer state %q: %w", a.prefix, err)
		}
	}
	for i, t := range single {
		if from.single != nil {
			copy(t.Data, from.single[i].Data)
		}
		if err := r.Comm.Broadcast(ctx, bytesOf(t.Data), 0); err != nil {
			return fmt.Errorf("share optimizer state %q: %w", t.Name, err)
		}
	}
	if err := r.optimizer.Restore(state); err != nil {
		return fmt.Errorf("restore the optimizer: %w", err)
	}
	return nil
}

// collect is the opposite of spread.
func (r *run) collect(ctx context.Context) (to whole, err error) {
	if to.values, err = r.sharder.Collect(ctx, r.values()); err != nil {
		return to, err
	}
	_, arrays, single := r.divided()
	for _, a := range arrays {
		if a.values, err = r.sharder.Collect(ctx, a.values); err != nil {
			return to, err
		}
		to.state = append(to.state, a)
	}
	to.single = single
	return to, nil
}

// files are the files of a checkpoint.
func (r *run) files(w whole) checkpoint.Files {
	var model, optimizer []safetensors.Tensor
	for i, p := range r.params {
		model = append(model, safetensors.Tensor{Name: p.Name, Shape: p.Shape, Data: w.values[i]})
		for _, a := range w.state {
			optimizer = append(optimizer, safetensors.Tensor{Name: a.prefix + p.Name, Shape: p.Shape, Data: a.values[i]})
		}
	}
	for _, t := range w.single {
		optimizer = append(optimizer, safetensors.Tensor{Name: t.Name, Shape: t.Shape, Data: t.Data})
	}
	return checkpoint.Files{checkpoint.ModelFile: model, checkpoint.OptimizerFile: optimizer}
}
