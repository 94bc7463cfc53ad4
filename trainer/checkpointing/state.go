package checkpointing

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
	"github.com/ddpbatch/ddpbatch/trainer/nn"
	"github.com/ddpbatch/ddpbatch/trainer/optim"
	"github.com/ddpbatch/ddpbatch/trainer/trace"
)

// State is the state of one rank: its parts of the weights and of the optimizer state.
type State struct {
	Comm      collective.Communicator
	Device    device.Device
	Params    []*nn.Param // of the model
	Sharder   *ddp.Sharder
	Optimizer optim.Optimizer // of the sharder's parts
	Trace     *trace.Recorder
}

// stateArray is optimizer state that has one value per parameter element, such as momentum.
type stateArray struct {
	prefix string      // of its tensors' names; the parameter's name follows
	values [][]float32 // by part
}

// optimizerState returns the state of this rank's optimizer, whose parameters are the sharder's
// parts. It separates arrays with one value per element from single values.
func (s *State) optimizerState(read optim.Read) (state optim.State, arrays []stateArray, single []optim.Tensor) {
	state = s.Optimizer.StateBy(read)
	parts := s.Sharder.Parts()
	for _, t := range state.Tensors {
		part := slices.IndexFunc(parts, func(p *nn.Param) bool { return strings.HasSuffix(t.Name, p.Name) })
		if part < 0 {
			single = append(single, t)
			continue
		}
		prefix := strings.TrimSuffix(t.Name, parts[part].Name)
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
func (s *State) values(read optim.Read) [][]float32 {
	var out [][]float32
	for _, p := range s.Sharder.Parts() {
		out = append(out, read(p.Data))
	}
	return out
}

// readTensor returns a tensor's memory, or a copy of it if the device has its own memory.
func (s *State) readTensor(t device.Tensor) []float32 { return device.Floats(s.Device, t) }

// readNothing returns nil, for callers that need only the names and shapes.
func readNothing(device.Tensor) []float32 { return nil }

// Scatter sends every rank its part of rank 0's state. Without a checkpoint, newWeights sends the
// weights. If initialized is false, the optimizer's state stays zero.
func (s *State) Scatter(ctx context.Context, from Origin, initialized bool, newWeights func(ddp.SendParam) error) error {
	values := s.values(s.readTensor)
	err := s.Sharder.ScatterState(ctx, values, func(send ddp.SendParam) error {
		if from.model == nil {
			return newWeights(send)
		}
		return s.sendTensors(from, from.model, "", send)
	})
	if err != nil {
		return fmt.Errorf("share parameters: %w", err)
	}
	for i, p := range s.Sharder.Parts() {
		if !s.Device.Host() { // otherwise values is the device's memory
			s.Device.Write(p.Data, values[i])
		}
	}
	s.Sharder.MarkWritten()
	state, arrays, single := s.optimizerState(s.readTensor)
	state.Initialized = initialized
	for _, a := range arrays {
		if !initialized {
			break // they are already zero
		}
		err := s.Sharder.ScatterState(ctx, a.values, func(send ddp.SendParam) error { return s.sendTensors(from, from.optimizer, a.prefix, send) })
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
		if err := s.Comm.Do(ctx, collective.Broadcast(element.Bytes(t.Data), 0)); err != nil {
			return fmt.Errorf("share optimizer state %q: %w", t.Name, err)
		}
	}
	if err := s.Optimizer.Restore(state); err != nil {
		return fmt.Errorf("restore the optimizer: %w", err)
	}
	return nil
}

// sendTensors passes each parameter's tensor in the checkpoint to send. The name of the tensor is
// prefix and the name of the parameter.
func (s *State) sendTensors(from Origin, tensors *checkpoint.Tensors, prefix string, send ddp.SendParam) error {
	for i, p := range s.Params {
		err := send(i, func(offset int, values []float32) error {
			if err := tensors.Read(prefix+p.Name, offset, values); err != nil {
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

// shapes returns the shapes of all tensors of a checkpoint, by file.
func (s *State) shapes() map[string]map[string][]int {
	model, optimizer := map[string][]int{}, map[string][]int{}
	_, arrays, single := s.optimizerState(readNothing)
	for _, p := range s.Params {
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

// pieces returns this rank's part of the state as read returns it, by file.
func (s *State) pieces(read optim.Read) map[string][]checkpoint.Part {
	var model, optimizer []checkpoint.Part
	s.Sharder.EachRange(s.values(read), func(i, offset int, values []float32) {
		model = append(model, checkpoint.Part{Tensor: s.Params[i].Name, Offset: offset, Data: values})
	})
	_, arrays, single := s.optimizerState(read)
	for _, a := range arrays {
		s.Sharder.EachRange(a.values, func(i, offset int, values []float32) {
			optimizer = append(optimizer, checkpoint.Part{Tensor: a.prefix + s.Params[i].Name, Offset: offset, Data: values})
		})
	}
	if s.Comm.Rank() == 0 {
		for _, t := range single {
			optimizer = append(optimizer, checkpoint.Part{Tensor: t.Name, Data: t.Data})
		}
	}
	return map[string][]checkpoint.Part{checkpoint.ModelFile: model, checkpoint.OptimizerFile: optimizer}
}
