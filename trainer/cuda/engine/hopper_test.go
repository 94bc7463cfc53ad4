//go:build cuda

package engine_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/tests/gpusim"
	"github.com/ddpbatch/ddpbatch/trainer/cpu"
	"github.com/ddpbatch/ddpbatch/trainer/cuda/driver"
	"github.com/ddpbatch/ddpbatch/trainer/cuda/engine"
	"github.com/ddpbatch/ddpbatch/trainer/device"
)

// TestAttentionOnWGMMA compares attention with wgmma to mma and the CPU, for full and partial
// heads and tiles.
func TestAttentionOnWGMMA(t *testing.T) {
	if os.Getenv("DDPBATCH_ATTENTION") != "wgmma" {
		gpusim.Require(t) // must be verified on a GPU first
	}
	t.Setenv("DDPBATCH_ATTENTION", "mma")
	const batch, heads = 1, 2
	hopper, others := open(t, engine.Options{WGMMA: true}), open(t, engine.Options{})
	for _, c := range [][2]int{{64, 2}, {64, 64}, {40, 150}, {64, 257}, {128, 129}, {72, 65}} {
		size, queries := c[0], c[1]
		t.Run(fmt.Sprintf("heads of %d, %d queries", size, queries), func(t *testing.T) {
			got := attention(hopper, batch, heads, size, queries, device.BF16)
			for name, d := range map[string]device.Device{"mma": others, "processor": cpu.New(1)} {
				want := attention(d, batch, heads, size, queries, device.BF16)
				for i, what := range []string{"out", "logSum", "dq", "dk", "dv"} {
					if e := distance(got[i], want[i]); !(e <= 2e-2) {
						t.Errorf("%s differs by %.2g from %s", what, e, name)
					}
				}
			}
		})
	}
}

// TestConformanceOnWGMMA checks that the wgmma kernels pass the attention part of the conformance
// suite and access only their own memory.
func TestConformanceOnWGMMA(t *testing.T) {
	gpusim.Require(t)
	const test = "TestConformance/Attention"
	for _, again := range []func(testing.TB, string, ...string) (string, error){gpusim.Again, gpusim.Checked} {
		if out, err := again(t, test, "DDPBATCH_ATTENTION=wgmma"); err != nil || !strings.Contains(out, "--- PASS: "+test) {
			t.Errorf("%v\n%s", err, out)
		}
	}
}

// TestWithoutWGMMA checks that attention uses mma if the GPU or the driver does not support wgmma,
// and that the reason is reported.
func TestWithoutWGMMA(t *testing.T) {
	gpusim.Require(t)
	if os.Getenv("GPUSIM_TEST") == "" {
		for set, want := range map[string]string{
			"GPUSIM_CAPABILITY=8.0":  "is by mma, not by wgmma: its compute capability is 8.0, and only 9.0 has wgmma",
			"GPUSIM_CAPABILITY=10.0": "is by mma, not by wgmma: its compute capability is 10.0, and only 9.0 has wgmma",
			"GPUSIM_FAIL=ptx:8.0":    `is by mma, not by wgmma: cuModuleLoadDataEx: module "sm_90a/attention_wgmma": gpusim: PTX of version 8.0 is newer than this driver: CUDA_ERROR_UNSUPPORTED_PTX_VERSION`,
			"GPUSIM_CAPABILITY=9.0":  "fallback: <nil>",
		} {
			if out, err := gpusim.Again(t, t.Name(), "GPUSIM_TEST=1", set); err != nil || !strings.Contains(out, want) {
				t.Errorf("%s: %v\n%s\nwant %s", set, err, out, want)
			}
		}
		return
	}
	gpu, err := driver.Open(0)
	if err != nil {
		t.Fatal(err)
	}
	d, err := engine.Open(gpu, engine.Options{WGMMA: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("fallback: %v", d.Fallback())
	got, want := attention(d, 1, 1, 64, 9, device.BF16), attention(cpu.New(1), 1, 1, 64, 9, device.BF16)
	if e := distance(got[0], want[0]); !(e <= 2e-2) {
		t.Errorf("out differs by %.2g", e)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}
