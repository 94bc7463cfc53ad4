//go:build cuda

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/jobs/doctor"
	"github.com/ddpbatch/ddpbatch/jobs/launch"
	"github.com/ddpbatch/ddpbatch/nccl/communicator"
	"github.com/ddpbatch/ddpbatch/nccl/gpu"
	"github.com/ddpbatch/ddpbatch/nccl/libnccl"
	"github.com/ddpbatch/ddpbatch/trainer/collective"
	"github.com/ddpbatch/ddpbatch/trainer/cuda"
	"github.com/ddpbatch/ddpbatch/trainer/cuda/driver"
	"github.com/ddpbatch/ddpbatch/trainer/cuda/library"
	"github.com/ddpbatch/ddpbatch/trainer/ddp"
	"github.com/ddpbatch/ddpbatch/trainer/device"
)

// connectGPUs connects this rank's GPU with those of the other ranks, which the host's
// communicator connects already: as train.backend says.
func (r *rank) connectGPUs(ctx context.Context, j *launch.Rank, host collective.Communicator, d device.Device) (ddp.Communicator, error) {
	backend := r.job.Train.Backend
	if backend == jobs.BackendTCP || backend == jobs.BackendMPI {
		r.log.info("gpus", "exchange", "by way of the hosts' memory")
		return cuda.ByHost(d, host)
	}
	l, err := r.loadNCCL(ctx, j, host)
	var missing noNCCL
	if backend == jobs.BackendAuto && errors.As(err, &missing) {
		if r.place.Rank == 0 {
			r.say(fmt.Sprintf("WARNING: GPUs exchange by way of their hosts' memory, which is slow: %v; %s", err, missing.Hint()))
		}
		return cuda.ByHost(d, host)
	}
	if err != nil {
		return nil, err
	}
	own := d.(interface {
		driver.Computation
		GPU() *driver.GPU
	})
	ours := gpu.Of(own.GPU(), own.GPU().Info)
	r.log.info("gpus", "exchange", "nccl", "version", l.Version.String(), "library", l.File, "gpu", ours.ID())
	c, err := communicator.Connect(ctx, communicator.Options{Library: l, GPU: ours, Control: host, Check: true,
		Host: r.place.Host, Interface: os.Getenv("NCCL_SOCKET_IFNAME"),
		ConnectTimeout: time.Duration(r.job.Network.JoinTimeout), Timeout: time.Duration(r.job.Network.CollectiveTimeout)})
	if err != nil {
		return nil, err
	}
	order := ours.NewOrder(c, own)
	return overGPUs{ddp.OverDevice(c, host, order.Mark), c, order, l.Version}, nil
}

// overGPUs is a communicator of GPUs with what it is made of.
type overGPUs struct {
	ddp.Follower
	comm    *communicator.Comm
	order   *driver.Order
	version libnccl.Version
}

// Besides is an estimate of the GPU's memory that NCCL has still to take: from 2.22 on it
// connects when it is first used. 16 channels have buffers of NCCL_BUFFSIZE, by default
// 4 MiB, for some 4 peers of their rings and trees.
func (o overGPUs) Besides() int64 {
	const lazy, bytes = 22200, 16 * 4 * 4 << 20
	if o.version < lazy {
		return 0
	}
	return bytes
}

// Close ends NCCL.
func (o overGPUs) Close() error { return errors.Join(o.comm.Close(), o.order.Close()) }

// loadNCCL loads NCCL on every rank, or says on every rank which has none.
func (r *rank) loadNCCL(ctx context.Context, j *launch.Rank, host collective.Communicator) (*libnccl.Library, error) {
	set, warnings, err := j.NetworkVariables(ctx, "NCCL_")
	if err != nil {
		return nil, err
	}
	if r.place.Rank == 0 {
		for _, w := range warnings {
			r.say(fmt.Sprintf("WARNING: %s: %s", r.place.Host, w))
		}
	}
	for name, value := range set {
		// The library reads C's environment when it is loaded, which with cgo is this one.
		if err := os.Setenv(name, value); err != nil {
			return nil, fmt.Errorf("set %s for NCCL: %w", name, err)
		}
	}
	l, failed := libnccl.Open(library.Find(r.lookup, library.NCCL))
	why := ""
	if failed != nil {
		why = failed.Error()
	}
	all, err := collective.AllGatherJSON(ctx, host, why)
	if err != nil {
		return nil, err
	}
	for rank, why := range all {
		if why != "" {
			return nil, noNCCL{fmt.Errorf("rank %d: %s", rank, why)}
		}
	}
	return l, nil
}

// noNCCL is that a rank has no NCCL.
type noNCCL struct{ error }

// Hint says what to do about it, as doctor does.
func (noNCCL) Hint() string { return doctor.NCCLHint }

// overNCCL connects the GPUs of ranks that are connected by their host already. The GPU
// stays open until the process ends.
func overNCCL(ctx context.Context, p *program, host collective.Communicator, ordinal int) (collective.Communicator, error) {
	const timeout = time.Minute
	if _, err := driver.Load(); err != nil {
		return nil, err
	}
	n, err := driver.Count()
	if err != nil {
		return nil, err
	}
	if ordinal >= n {
		return nil, fmt.Errorf("there are %d GPUs, and rank %d needs one for itself", n, ordinal)
	}
	device, err := driver.Open(ordinal)
	if err != nil {
		return nil, err
	}
	l, err := libnccl.Open(library.Find(p.lookup, library.NCCL))
	if err != nil {
		return nil, err
	}
	name, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	chosen, _ := p.lookup("NCCL_SOCKET_IFNAME")
	c, err := communicator.Connect(ctx, communicator.Options{Library: l, GPU: gpu.Of(device, device.Info), Control: host,
		Host: name, Interface: chosen, ConnectTimeout: timeout, Timeout: timeout})
	if err != nil {
		return nil, err // not a communicator that holds nothing
	}
	return c, nil
}
