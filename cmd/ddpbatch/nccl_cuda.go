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
	"github.com/ddpbatch/ddpbatch/trainer/bench"
	"github.com/ddpbatch/ddpbatch/trainer/collective"
	"github.com/ddpbatch/ddpbatch/trainer/cuda"
	"github.com/ddpbatch/ddpbatch/trainer/cuda/driver"
	"github.com/ddpbatch/ddpbatch/trainer/cuda/engine"
	"github.com/ddpbatch/ddpbatch/trainer/cuda/library"
	"github.com/ddpbatch/ddpbatch/trainer/ddp"
	"github.com/ddpbatch/ddpbatch/trainer/device"
)

// connectGPUs connects the GPUs of all ranks according to train.backend. The ranks are already
// connected through the communicator host.
func (r *rank) connectGPUs(ctx context.Context, j *launch.Rank, host collective.Communicator, d *cuda.GPU) (ddp.Communicator, error) {
	backend := r.job.Train.Backend
	if backend == jobs.BackendTCP || backend == jobs.BackendMPI {
		r.log.info("gpus", "exchange", "through host memory")
		return cuda.ConnectThroughHost(d, host)
	}
	l, err := r.loadNCCL(ctx, j, host)
	var missing ncclError
	if backend == jobs.BackendAuto && errors.As(err, &missing) {
		if r.info.Rank == 0 {
			r.say(fmt.Sprintf("warning: GPUs communicate through host memory, which is slow: %v; %s", err, missing.Hint()))
		}
		return cuda.ConnectThroughHost(d, host)
	}
	if err != nil {
		return nil, err
	}
	own := gpu.Of(d.Driver(), d.Driver().Info)
	r.log.info("gpus", "exchange", "nccl", "version", l.Version.String(), "library", l.File, "gpu", own.ID())
	c, err := communicator.Connect(ctx, communicator.Options{Library: l, GPU: own, Control: host, Check: r.job.Network.CheckOperations,
		Host: r.info.Host, Interface: os.Getenv("NCCL_SOCKET_IFNAME"),
		ConnectTimeout: time.Duration(r.job.Network.JoinTimeout), Timeout: time.Duration(r.job.Network.CollectiveTimeout)})
	if err != nil {
		return nil, err
	}
	o := own.NewOperations(c, d)
	return gpuComm{ddp.NewDeviceCommunicator(o, host, o.Mark), o, l.Version}, nil
}

// gpuComm is a communicator of GPUs with the resources that it owns.
type gpuComm struct {
	ddp.Communicator
	operations *gpu.Operations
	version    libnccl.Version
}

// LazyBytes returns an estimate of the GPU memory that NCCL will allocate later, in bytes. NCCL
// 2.22 and later connect on first use. The estimate assumes 16 channels, each with buffers of
// NCCL_BUFFSIZE (default: 4 MiB) for about 4 peers in rings and trees.
func (o gpuComm) LazyBytes() int64 {
	const lazy, bytes = 22200, 16 * 4 * 4 << 20
	if o.version < lazy {
		return 0
	}
	return bytes
}

// Close closes the NCCL communicator.
func (o gpuComm) Close() error { return o.operations.Close() }

// loadNCCL loads NCCL. If a rank cannot load it, loadNCCL returns the error of this rank on
// all ranks.
func (r *rank) loadNCCL(ctx context.Context, j *launch.Rank, host collective.Communicator) (*libnccl.Library, error) {
	set, warnings, err := j.NetworkVariables(ctx, "NCCL_")
	if err != nil {
		return nil, err
	}
	if r.info.Rank == 0 {
		for _, w := range warnings {
			r.say(fmt.Sprintf("warning: %s: %s", r.info.Host, w))
		}
	}
	for name, value := range set {
		// NCCL reads C's environment. With cgo, os.Setenv also changes C's environment.
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
			return nil, ncclError{fmt.Errorf("rank %d: %s", rank, why)}
		}
	}
	return l, nil
}

// ncclError is the error of a rank that cannot load NCCL.
type ncclError struct{ error }

// Hint returns the same hint as doctor.
func (ncclError) Hint() string { return doctor.NCCLHint }

// connectNCCL connects the GPUs of ranks that are already connected through host, for a benchmark. The
// GPU and its memory stay open until the process exits. The second result closes the communicator.
func connectNCCL(ctx context.Context, p *program, host collective.Communicator, ordinal int) (bench.PrepareAllReduce, func() error, error) {
	const timeout = time.Minute
	if _, err := driver.Load(); err != nil {
		return nil, nil, err
	}
	n, err := driver.Count()
	if err != nil {
		return nil, nil, err
	}
	if ordinal >= n {
		return nil, nil, fmt.Errorf("rank %d has no GPU: this machine has %d, want one per rank", ordinal, n)
	}
	own, err := driver.Open(ordinal)
	if err != nil {
		return nil, nil, err
	}
	l, err := libnccl.Open(library.Find(p.lookup, library.NCCL))
	if err != nil {
		return nil, nil, err
	}
	name, err := os.Hostname()
	if err != nil {
		return nil, nil, err
	}
	chosen, _ := p.lookup("NCCL_SOCKET_IFNAME")
	c, err := communicator.Connect(ctx, communicator.Options{Library: l, GPU: gpu.Of(own, own.Info), Control: host,
		Host: name, Interface: chosen, ConnectTimeout: timeout, Timeout: timeout})
	if err != nil {
		return nil, nil, err
	}
	prepare := func(_ context.Context, bytes int) (func(context.Context) error, collective.Path, error) {
		unbind, err := own.Bind()
		if err != nil {
			return nil, collective.Path{}, err
		}
		defer unbind()
		p, err := driver.Alloc(int64(bytes))
		if err != nil {
			return nil, collective.Path{}, err
		}
		buf := engine.Tensor(device.Float32, p, bytes/4) // its values do not matter
		path := collective.Path{Transport: "nccl " + l.Version.String(), Algorithm: "chosen by nccl"}
		return func(ctx context.Context) error {
			w, err := c.AllReduce(ctx, buf)
			if err == nil {
				err = w.Wait(ctx)
			}
			if err == nil {
				w.Release()
			}
			return err
		}, path, nil
	}
	return prepare, c.Close, nil
}
