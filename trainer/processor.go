package trainer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/trainer/collective"
	"github.com/ddpbatch/ddpbatch/trainer/cpu"
	"github.com/ddpbatch/ddpbatch/trainer/cuda"
	"github.com/ddpbatch/ddpbatch/trainer/ddp"
	"github.com/ddpbatch/ddpbatch/trainer/device"
)

// processor opens the device that train.device selects: the same kind on every rank, and a
// different GPU for each rank. With "auto" it falls back to the CPU if no rank detects a GPU, and
// reports why. If some ranks have no GPU, or a GPU is not usable, it fails if the job requests
// GPUs, because then a node is broken. On a machine without a GPU request it falls back to the CPU.
func (r *run) processor(ctx context.Context) error {
	if r.train.Device == jobs.DeviceCPU {
		r.onCores()
		return nil
	}
	gpu, err := r.assigned(ctx)
	if err == nil {
		err = r.openGPU(ctx, gpu)
	}
	if err == nil {
		return r.connectGPU(ctx)
	}
	asked := r.Job.Slurm.GPUsPerNode > 0
	var (
		none    noGPU
		few     cuda.Shortage
		unready unready
	)
	without := errors.As(err, &none) || (errors.As(err, &few) || errors.As(err, &unready)) && !asked
	if r.train.Device != jobs.DeviceAuto || !without {
		return fmt.Errorf("train.device = %q: %w", r.train.Device, err)
	}
	if r.train.Backend == jobs.BackendNCCL {
		return fmt.Errorf("train.backend = %q connects GPUs only: %w", r.train.Backend, err)
	}
	r.Observe(Event{Kind: Processor, Err: err, Asked: asked})
	r.onCores()
	return nil
}

// onCores makes this rank compute on the CPU.
func (r *run) onCores() { r.device, r.between = cpu.New(r.Threads), ddp.Over(r.Comm) }

// openGPU opens this rank's GPU. It fails on all ranks if it fails on one.
func (r *run) openGPU(ctx context.Context, gpu cuda.Device) error {
	d, failed := cuda.Open(gpu.Ordinal, cuda.Options{Libraries: r.Libraries, WGMMA: r.WGMMA})
	mine := ""
	if failed != nil {
		failed = fmt.Errorf("this rank's GPU %d (%s): %w", gpu.Ordinal, gpu.UUID, failed)
		mine = failed.Error()
	}
	all, err := collective.AllGatherJSON(ctx, r.Comm, mine)
	if err == nil && failed != nil {
		return unready{failed}
	}
	if rank := slices.IndexFunc(all, func(why string) bool { return why != "" }); rank >= 0 {
		err = unready{Elsewhere{rank, errors.New(all[rank])}}
	}
	if err != nil {
		if closer, ok := d.(io.Closer); ok {
			err = errors.Join(err, closer.Close())
		}
		return err
	}
	r.device = d
	if u, ok := d.(interface{ Unmet() error }); ok {
		if err := u.Unmet(); err != nil {
			r.Observe(Event{Kind: Unmet, Err: err})
		}
	}
	return nil
}

// connectGPU creates the communicator of this rank's GPU with the GPUs of the other ranks.
func (r *run) connectGPU(ctx context.Context) error {
	if r.Comm.Size() == 1 {
		r.between = ddp.Over(r.Comm)
		return nil
	}
	connect := r.Connect
	if connect == nil {
		connect = func(_ context.Context, d device.Device) (ddp.Communicator, error) { return cuda.ByHost(d, r.Comm) }
	}
	var err error
	if r.between, err = connect(ctx, r.device); err != nil {
		return fmt.Errorf("%d ranks on GPUs: %w", r.Comm.Size(), err)
	}
	return nil
}

// release closes the GPU communicator and then the device, whose memory the communicator uses.
func (r *run) release() error {
	var errs []error
	for _, held := range []any{r.between, r.device} {
		if closer, ok := held.(io.Closer); ok {
			errs = append(errs, closer.Close())
		}
	}
	return errors.Join(errs...)
}

// assigned returns the GPU that is assigned to this rank.
func (r *run) assigned(ctx context.Context) (cuda.Device, error) {
	look := r.Look
	if look == nil {
		look = cuda.Look
	}
	found, err := look()
	if errors.Is(err, cuda.ErrNotBuilt) { // the same on all ranks, which run the same program
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
		// If a rank lists as many GPUs as there are ranks on the node, one is always left for it.
		for _, d := range found.Devices[:min(len(found.Devices), max(1, r.LocalRanks))] {
			mine.UUIDs = append(mine.UUIDs, d.UUID)
		}
	}
	seen, err := collective.AllGatherJSON(ctx, r.Comm, mine)
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

// unready is the error for a GPU that could not be opened: it is too old, or cuBLASLt is missing.
type unready struct{ error }

func (e unready) Unwrap() error { return e.error }

// Hint returns the fix.
func (e unready) Hint() string {
	return hint(e.error, "`srun ddpbatch doctor` tells what the node lacks")
}

// hint returns the hint of err, or otherwise if err does not have one.
func hint(err error, otherwise string) string {
	var hinter interface{ Hint() string }
	if errors.As(err, &hinter) {
		return hinter.Hint()
	}
	return otherwise
}

// noGPU is the error if no rank has a GPU.
type noGPU struct{ error }

func (e noGPU) Unwrap() error { return e.error }

// Hint returns the fix.
func (e noGPU) Hint() string {
	return hint(e.error, "`srun ddpbatch doctor` tells what the nodes have; train.device = \"auto\" takes processors where there is no GPU")
}

// Elsewhere is a failure that another rank caused. That rank reports it itself.
type Elsewhere struct {
	Rank int
	Err  error
}

func (e Elsewhere) Error() string { return fmt.Sprintf("rank %d: %v", e.Rank, e.Err) }

// Unwrap returns the cause.
func (e Elsewhere) Unwrap() error { return e.Err }
