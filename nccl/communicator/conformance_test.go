//go:build cuda

package communicator_test

import (
	"errors"
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/nccl/communicator"
	"github.com/ddpbatch/ddpbatch/trainer/collective"
	"github.com/ddpbatch/ddpbatch/trainer/collective/conformance"
	"github.com/ddpbatch/ddpbatch/trainer/cuda/library"
)

// A whole is a communicator that also closes its host communicator.
type whole struct {
	collective.Communicator
	host collective.Communicator
}

func (w whole) Close() error { return errors.Join(w.Communicator.Close(), w.host.Close()) }

// member returns a conformance member whose communicators are the result of view.
func member(file string, view func(*communicator.Comm) collective.Communicator) conformance.Member {
	return conformance.Member{
		Connect: func(t testing.TB, n int, timeout time.Duration) []collective.Communicator {
			comms, control := ranks(t, n, setting{file: file, check: true, timeout: timeout})
			out := make([]collective.Communicator, n)
			for i := range out {
				out[i] = whole{view(comms[i]), control[i]}
			}
			return out
		},
		Sizes:      []int{16_384, 16_385, 70_001},
		ScaledMean: true,
		AnyOrder:   true,
	}
}

func staged(c *communicator.Comm) collective.Communicator { return c.Staged() }

// Simulated GPU memory is host memory, so the suite's buffers are valid.
func native(c *communicator.Comm) collective.Communicator { return c }

func TestHostMemory(t *testing.T) {
	m := member(library.NCCL, staged)
	m.Ranks = []int{1, 2, 4}
	conformance.Run(t, m)
}

func TestDeviceMemory(t *testing.T) {
	m := member(library.NCCL, native)
	m.Ranks = []int{3}
	conformance.Run(t, m)
}

// NCCL 2.14 has no split.
func TestOldLibrary(t *testing.T) {
	m := member(old, staged)
	m.Ranks = []int{2}
	conformance.Run(t, m)
}
