package trainer

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/trainer/collective"
	"github.com/ddpbatch/ddpbatch/trainer/cpu"
	"github.com/ddpbatch/ddpbatch/trainer/cuda"
	"github.com/ddpbatch/ddpbatch/trainer/device"
)

// processor makes what this rank computes on, as train.device says: of the same kind
// on every rank, and each rank's own GPU. With "auto" it is the processor's cores where
// no rank sees a GPU, and why is told. Where there are some but not for every rank, a
// node is broken if the job asked for them; on a machine of one's own that is as it is.
func (r *run) processor(ctx context.Context) (device.Device, error) {
	if r.train.Device == jobs.DeviceCPU {
		return cpu.New(r.Threads), nil
	}
	gpu, err := r.assigned(ctx)
	switch {
	case err != nil:
	case r.Comm.Size() == 1:
		d, failed := cuda.Open(gpu.Ordinal, r.Libraries)
		if failed == nil {
			return d, nil
		}
		err = unready{failed}
	default:
		err = untrained{fmt.Errorf("this rank has GPU %d (%s, %s), and the built-in trainer does not compute on several GPUs yet", gpu.Ordinal, gpu.Name, gpu.UUID)}
	}
	asked := r.Job.Slurm.GPUsPerNode > 0
	var (
		none  noGPU
		few   cuda.Shortage
		old   unready
		later untrained
	)
	if r.train.Device == jobs.DeviceAuto && (errors.As(err, &none) || errors.As(err, &later) || (errors.As(err, &few) || errors.As(err, &old)) && !asked) {
		r.Observe(Event{Kind: Processor, Err: err, Asked: asked})
		return cpu.New(r.Threads), nil
	}
	return nil, fmt.Errorf("train.device = %q: %w", r.train.Device, err)
}

// assigned is the GPU that this rank gets of those that ranks see.
func (r *run) assigned(ctx context.Context) (cuda.Device, error) {
	look := r.Look
	if look == nil {
		look = cuda.Look
	}
	found, err := look()
	if errors.Is(err, cuda.ErrNotBuilt) { // so are all ranks': they are one program
		return cuda.Device{}, noGPU{err}
	}
	if err == nil && len(found.Devices) == 0 {
		err = errors.New("the driver has none")
	}
	mine := cuda.Seen{Node: r.Node}
	if err != nil {
		mine.Why = err.Error()
		if r.VisibleDevices != nil {
			mine.Why += fmt.Sprintf(" (CUDA_VISIBLE_DEVICES=%q)", *r.VisibleDevices)
		}
	} else {
		// Of as many as there are ranks on the node, one is always left.
		for _, d := range found.Devices[:min(len(found.Devices), max(1, r.LocalRanks))] {
			mine.UUIDs = append(mine.UUIDs, d.UUID)
		}
	}
	seen, err := r.exchangeSeen(ctx, mine)
	if err != nil {
		return cuda.Device{}, err
	}
	if !slices.ContainsFunc(seen, func(s cuda.Seen) bool { return len(s.UUIDs) > 0 }) {
		return cuda.Device{}, noGPU{fmt.Errorf("no rank sees a GPU; rank 0: %s", seen[0].Why)}
	}
	ordinals, err := cuda.Assign(seen)
	if err != nil {
		return cuda.Device{}, err
	}
	return found.Devices[ordinals[r.Comm.Rank()]], nil
}

// exchangeSeen gives every rank what all ranks see.
func (r *run) exchangeSeen(ctx context.Context, mine cuda.Seen) ([]cuda.Seen, error) {
	text, err := json.Marshal(mine)
	if err != nil {
		return nil, err
	}
	longest := []int64{int64(len(text))}
	if err := r.Comm.Do(ctx, collective.AllReduce(longest, collective.Max)); err != nil {
		return nil, err
	}
	room := int(longest[0])
	all := make([]byte, room*r.Comm.Size())
	padded := append(text, bytes.Repeat([]byte{' '}, room-len(text))...)
	if err := r.Comm.Do(ctx, collective.AllGather(all, padded)); err != nil {
		return nil, err
	}
	seen := make([]cuda.Seen, r.Comm.Size())
	for rank := range seen {
		if err := json.Unmarshal(all[rank*room:][:room], &seen[rank]); err != nil {
			return nil, fmt.Errorf("the GPUs that rank %d sees: %w", rank, err)
		}
	}
	return seen, nil
}

// unready is a GPU that could not be opened: it is too old, or cuBLASLt is missing.
type unready struct{ error }

func (e unready) Unwrap() error { return e.error }

// Hint says what to do about it.
func (e unready) Hint() string {
	return hint(e.error, "`srun ddpbatch doctor` tells what the node lacks")
}

// hint is that of an error, or another where it has none.
func hint(err error, otherwise string) string {
	var hinter interface{ Hint() string }
	if errors.As(err, &hinter) {
		return hinter.Hint()
	}
	return otherwise
}

// noGPU is that no rank has one.
type noGPU struct{ error }

func (e noGPU) Unwrap() error { return e.error }

// Hint says what to do about it.
func (e noGPU) Hint() string {
	return hint(e.error, "`srun ddpbatch doctor` tells what the nodes have; train.device = \"auto\" takes processors where there is no GPU")
}

// untrained is a GPU that cannot be used yet: gradients cannot be added up over ranks.
type untrained struct{ error }

// Hint says what to do about it.
func (untrained) Hint() string {
	return "train on one GPU with one rank, or on processors (train.device = \"cpu\"), or run your own GPU program with [command]"
}
