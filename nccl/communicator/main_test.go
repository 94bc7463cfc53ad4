//go:build cuda

package communicator_test

import (
	"os"
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/nccl/communicator"
	"github.com/ddpbatch/ddpbatch/nccl/gpu"
	"github.com/ddpbatch/ddpbatch/nccl/libnccl"
	"github.com/ddpbatch/ddpbatch/tests/gpusim"
	"github.com/ddpbatch/ddpbatch/trainer/collective"
	"github.com/ddpbatch/ddpbatch/trainer/collective/conformance"
	"github.com/ddpbatch/ddpbatch/trainer/cuda/driver"
)

// old is an NCCL without splits.
const old = "libnccl-2.14.so.2"

func TestMain(m *testing.M) {
	os.Setenv("GPUSIM_DEVICES", "5")
	gpusim.Main(m)
}

// open loads the simulated NCCL with this name.
func open(t testing.TB, file string) *libnccl.Library {
	t.Helper()
	l, err := libnccl.Open([]string{file})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// openGPU opens a GPU until the test ends.
func openGPU(t testing.TB, ordinal int) *gpu.GPU {
	t.Helper()
	g, err := driver.Open(ordinal)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Errorf("close GPU %d: %v", ordinal, err)
		}
	})
	info, err := driver.Describe(ordinal)
	if err != nil {
		t.Fatal(err)
	}
	return gpu.Of(g, info)
}

// hosts connects n ranks over TCP, as if each were a separate process.
func hosts(t testing.TB, n int) []collective.Communicator {
	t.Helper()
	return conformance.Processes(t, n, collective.Options{})
}

// A setting holds the options of the ranks in a test.
type setting struct {
	file    string // file name of NCCL
	check   bool
	timeout time.Duration
}

// ranks connects n goroutines with one GPU each. It also returns the host communicators.
func ranks(t testing.TB, n int, s setting) ([]*communicator.Comm, []collective.Communicator) {
	t.Helper()
	l, control := open(t, s.file), hosts(t, n)
	gpus := make([]*gpu.GPU, n)
	for i := range gpus {
		gpus[i] = openGPU(t, i)
	}
	return conformance.Every(t, n, func(i int) (*communicator.Comm, error) {
		return communicator.Connect(t.Context(), communicator.Options{Library: l, GPU: gpus[i], Control: control[i], Check: s.check,
			Host: "localhost", Interface: "=lo", ConnectTimeout: time.Minute, Timeout: s.timeout})
	}), control
}
