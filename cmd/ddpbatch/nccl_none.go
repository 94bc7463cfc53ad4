//go:build !cuda

package main

import (
	"context"

	"github.com/ddpbatch/ddpbatch/jobs/launch"
	"github.com/ddpbatch/ddpbatch/trainer/bench"
	"github.com/ddpbatch/ddpbatch/trainer/collective"
	"github.com/ddpbatch/ddpbatch/trainer/cuda"
	"github.com/ddpbatch/ddpbatch/trainer/ddp"
)

// connectGPUs returns an error, because this program is built without GPU support.
func (r *rank) connectGPUs(context.Context, *launch.Rank, collective.Communicator, *cuda.GPU) (ddp.Communicator, error) {
	return nil, cuda.ErrNotBuilt
}

// connectNCCL returns an error, because this program is built without GPU support.
func connectNCCL(context.Context, *program, collective.Communicator, int) (bench.PrepareAllReduce, func() error, error) {
	return nil, nil, cuda.ErrNotBuilt
}
