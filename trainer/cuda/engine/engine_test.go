//go:build cuda

package engine_test

import (
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/tests/gpusim"
	"github.com/ddpbatch/ddpbatch/trainer/cuda/driver"
	"github.com/ddpbatch/ddpbatch/trainer/cuda/engine"
	"github.com/ddpbatch/ddpbatch/trainer/device"
	"github.com/ddpbatch/ddpbatch/trainer/device/conformance"
)

func TestMain(m *testing.M) { gpusim.Main(m) }

// open opens a device until the end of a test.
func open(t testing.TB, o engine.Options) *engine.Device {
	t.Helper()
	gpu, err := driver.Open(0)
	if err != nil {
		t.Fatal(err)
	}
	d, err := engine.Open(gpu, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
		if err := gpu.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

func TestConformance(t *testing.T) {
	conformance.Run(t, func() device.Device { return open(t, engine.Options{}) })
}

// The same products where cuBLASLt cannot add a bias.
func TestWithoutEpilogues(t *testing.T) {
	gpusim.Require(t)
	out, err := gpusim.Again(t, "TestConformance/(Dense|Stored)", "GPUSIM_EPILOGUES=none")
	if err != nil || !strings.Contains(out, "--- PASS: TestConformance/Dense") || !strings.Contains(out, "--- PASS: TestConformance/Stored") {
		t.Errorf("%v\n%s", err, out)
	}
}
