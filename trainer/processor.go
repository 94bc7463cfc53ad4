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

// processor makes what this rank computes on, as train.device says: of the same kind
// on every rank, and each rank's own GPU. With "auto" it is the processor's cores where
// no rank sees a GPU, and why is told. Where there are some but not for every rank, or
// one cannot be used, a node is broken if the job asked for them; on a machine of one's
// own that is as it is.
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

// onCores has this rank compute on the cores of its machine.
func (r *run) onCores() { r.device, r.between = cpu.New(r.Threads), ddp.Over(r.Comm) }

// openGPU opens this rank's GPU. Either all ranks have theirs open then, or none has.
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

// connectGPU connects this rank's GPU with those of the others.
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

// release gives back what this rank computes on and the connection of GPUs, which works
// on its memory.
func (r *run) release() error {
	var errs []error
	for _, held := range []any{r.between, r.device} {
		if closer, ok := held.(io.Closer); ok {
			errs = append(errs, closer.Close())
		}
	}
	return errors.Join(errs...)
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

// Elsewhere is a failure that another rank is the cause of, and tells by itself.
type Elsewhere struct {
	Rank int
	Err  error
}

func (e Elsewhere) Error() string { return fmt.Sprintf("rank %d: %v", e.Rank, e.Err) }

// Unwrap returns the cause.
func (e Elsewhere) Unwrap() error { return e.Err }
