package trainer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/trainer/collective"
	"github.com/ddpbatch/ddpbatch/trainer/cpu"
	"github.com/ddpbatch/ddpbatch/trainer/cuda"
	"github.com/ddpbatch/ddpbatch/trainer/ddp"
)

// openDevice opens the device that train.device selects: the same kind on every rank, and a
// different GPU for each rank. With "auto" it falls back to the CPU if no rank detects a GPU, and
// reports why. If some ranks have no GPU, or a GPU is not usable, it fails if the job requests
// GPUs, because then a node is broken. If the job requests none, it falls back to the CPU. With the
// NCCL backend it never falls back.
func (r *run) openDevice(ctx context.Context) error {
	if r.train.Device == jobs.DeviceCPU {
		r.useCPU()
		return nil
	}
	gpu, err := r.assignGPU(ctx)
	if err == nil {
		err = r.openGPU(ctx, gpu)
	}
	if err == nil {
		return r.connectGPU(ctx)
	}
	gpusRequested := r.Job.Slurm.GPUsPerNode > 0
	var (
		noGPUErr noGPUError
		shortage cuda.ShortageError
		gpuErr   gpuError
	)
	canFallBack := errors.As(err, &noGPUErr) || (errors.As(err, &shortage) || errors.As(err, &gpuErr)) && !gpusRequested
	if r.train.Device != jobs.DeviceAuto || !canFallBack {
		return fmt.Errorf("train.device = %q: %w", r.train.Device, err)
	}
	if r.train.Backend == jobs.BackendNCCL {
		return fmt.Errorf("train.backend = %q needs GPUs: %w", r.train.Backend, err)
	}
	r.Observe(Event{Kind: OnCPU, Err: err, GPUsRequested: gpusRequested})
	r.useCPU()
	return nil
}

// useCPU makes this rank compute on the CPU.
func (r *run) useCPU() { r.device, r.deviceComm = cpu.New(r.Threads), ddp.NewCommunicator(r.Comm) }

// openGPU opens this rank's GPU. If the GPU of one rank cannot be opened, it fails on all ranks.
func (r *run) openGPU(ctx context.Context, gpu cuda.Device) error {
	d, failed := cuda.Open(gpu.Ordinal, cuda.Options{Libraries: r.Libraries, Disabled: r.DisabledFusions, Attention: r.Attention})
	own := ""
	if failed != nil {
		failed = fmt.Errorf("this rank's GPU %d (%s): %w", gpu.Ordinal, gpu.UUID, failed)
		own = failed.Error()
	}
	all, err := collective.AllGatherJSON(ctx, r.Comm, own)
	if err == nil && failed != nil {
		return gpuError{failed}
	}
	if rank := slices.IndexFunc(all, func(why string) bool { return why != "" }); rank >= 0 {
		err = gpuError{RemoteError{rank, errors.New(all[rank])}}
	}
	if err != nil {
		if d != nil {
			err = errors.Join(err, d.Accelerator().Close())
		}
		return err
	}
	r.device, r.gpu = d, d
	r.unbind, err = d.Accelerator().Bind()
	return err
}

// connectGPU creates the communicator of this rank's GPU with the GPUs of the other ranks.
func (r *run) connectGPU(ctx context.Context) error {
	if r.Comm.Size() == 1 {
		r.deviceComm = ddp.NewCommunicator(r.Comm)
		return nil
	}
	connect := r.Connect
	if connect == nil {
		connect = func(_ context.Context, gpu *cuda.GPU) (ddp.Communicator, error) {
			return cuda.ConnectThroughHost(gpu, r.Comm)
		}
	}
	var err error
	if r.deviceComm, err = connect(ctx, r.gpu); err != nil {
		return fmt.Errorf("%d ranks on GPUs: %w", r.Comm.Size(), err)
	}
	return nil
}

// release closes the communicator of the device and then the device, whose memory the communicator
// uses. If an operation may still use the memory, the device stays open, because closing it could
// block indefinitely. The process soon exits anyway.
func (r *run) release() error {
	if r.unbind != nil {
		defer r.unbind()
	}
	if r.deviceComm != nil {
		if err := r.deviceComm.Close(); err != nil {
			return err
		}
	}
	if r.device != nil && r.device.Accelerator() != nil {
		return r.device.Accelerator().Close()
	}
	return nil
}

// assignGPU returns the GPU that is assigned to this rank.
func (r *run) assignGPU(ctx context.Context) (cuda.Device, error) {
	find := r.FindGPUs
	if find == nil {
		find = cuda.Discover
	}
	found, err := find()
	if errors.Is(err, cuda.ErrNotBuilt) { // the same on all ranks, which run the same program
		return cuda.Device{}, noGPUError{err}
	}
	if err == nil && len(found.Devices) == 0 {
		err = errors.New("the driver reports no GPU")
	}
	own := cuda.VisibleGPUs{Node: r.Node}
	if err != nil {
		own.Why = err.Error()
		if r.VisibleDevices != nil {
			own.Why += fmt.Sprintf(" (CUDA_VISIBLE_DEVICES=%q)", *r.VisibleDevices)
		}
	} else {
		// As many GPUs as there are ranks on the node are enough: one of them is free for this rank.
		for _, d := range found.Devices[:min(len(found.Devices), max(1, r.LocalRanks))] {
			own.UUIDs = append(own.UUIDs, d.UUID)
		}
	}
	seen, err := collective.AllGatherJSON(ctx, r.Comm, own)
	if err != nil {
		return cuda.Device{}, err
	}
	if !slices.ContainsFunc(seen, func(s cuda.VisibleGPUs) bool { return len(s.UUIDs) > 0 }) {
		return cuda.Device{}, noGPUError{fmt.Errorf("no rank detects a GPU; rank 0: %s", seen[0].Why)}
	}
	ordinals, err := cuda.Assign(seen)
	if err != nil {
		return cuda.Device{}, err
	}
	return found.Devices[ordinals[r.Comm.Rank()]], nil
}

// gpuError is the error for a GPU that cannot be opened, for example because it is too old or cuBLASLt
// is missing.
type gpuError struct{ error }

func (e gpuError) Unwrap() error { return e.error }

// Hint returns the fix.
func (e gpuError) Hint() string {
	return cmp.Or(hints.Of(e.error), "run `srun ddpbatch doctor` to check the node")
}

// noGPUError is the error if no rank has a GPU.
type noGPUError struct{ error }

func (e noGPUError) Unwrap() error { return e.error }

// Hint returns the fix.
func (e noGPUError) Hint() string {
	return cmp.Or(hints.Of(e.error), "run `srun ddpbatch doctor` to check the nodes, or set train.device = \"auto\" to fall back to the CPU")
}

// RemoteError is a failure that another rank caused. That rank reports it itself.
type RemoteError struct {
	Rank int
	Err  error
}

func (e RemoteError) Error() string { return fmt.Sprintf("rank %d: %v", e.Rank, e.Err) }

// Unwrap returns the cause.
func (e RemoteError) Unwrap() error { return e.Err }
