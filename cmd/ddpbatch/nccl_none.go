//go:build !cuda

package main

import (
	"context"

	"github.com/ddpbatch/ddpbatch/trainer/collective"
	"github.com/ddpbatch/ddpbatch/trainer/cuda"
)

// overNCCL is for a program that is built with GPU support.
func overNCCL(context.Context, *program, collective.Communicator, int) (collective.Communicator, error) {
	return nil, cuda.ErrNotBuilt
}
