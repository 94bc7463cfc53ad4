//go:build cuda

package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/ddpbatch/ddpbatch/nccl/communicator"
	"github.com/ddpbatch/ddpbatch/nccl/gpu"
	"github.com/ddpbatch/ddpbatch/nccl/libnccl"
	"github.com/ddpbatch/ddpbatch/trainer/collective"
	"github.com/ddpbatch/ddpbatch/trainer/cuda/driver"
	"github.com/ddpbatch/ddpbatch/trainer/cuda/library"
)

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
	info, err := driver.Describe(ordinal)
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
	c, err := communicator.Connect(ctx, communicator.Options{Library: l, GPU: gpu.Of(device, info), Control: host,
		Host: name, Interface: chosen, ConnectTimeout: timeout, Timeout: timeout})
	if err != nil {
		return nil, err // not a communicator that holds nothing
	}
	return c, nil
}
