package cpu_test

import (
	"fmt"
	"testing"

	"github.com/ddpbatch/ddpbatch/trainer/cpu"
	"github.com/ddpbatch/ddpbatch/trainer/device"
	"github.com/ddpbatch/ddpbatch/trainer/device/conformance"
)

func threads(n int) func() device.Device { return func() device.Device { return cpu.New(n) } }

// TestConformance runs the conformance suite of devices on the CPU, with one and with several
// threads.
func TestConformance(t *testing.T) {
	for _, n := range []int{1, 3} {
		t.Run(fmt.Sprintf("%d threads", n), func(t *testing.T) { conformance.Run(t, threads(n)) })
	}
}

// TestThreadsDoNotChangeBits checks that results are bit-identical for any number of threads.
func TestThreadsDoNotChangeBits(t *testing.T) {
	for _, n := range []int{2, 3, 8} {
		t.Run(fmt.Sprintf("%d threads", n), func(t *testing.T) { conformance.Same(t, threads(1), threads(n)) })
	}
}
