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
// heads and tiles, with and without dropout.
func TestAttentionOnWGMMA(t *testing.T) {
	if os.Getenv("DDPBATCH_ATTENTION") != "wgmma" {
		gpusim.Require(t) // must be verified on a GPU first
	}
	const batch, heads = 1, 2
	hopper, others := open(t, engine.Options{Attention: engine.WGMMA}), open(t, engine.Options{Attention: engine.MMA})
	for _, c := range [][2]int{{64, 2}, {64, 64}, {40, 150}, {64, 257}, {128, 129}, {72, 65}} {
		size, queries := c[0], c[1]
		t.Run(fmt.Sprintf("heads of %d, %d queries", size, queries), func(t *testing.T) {
			for _, drop := range []float32{0, 0.2} {
				got := attention(hopper, batch, heads, size, queries, device.BF16, drop)
				for name, d := range map[string]device.Device{"mma": others, "processor": cpu.New(1)} {
					want := attention(d, batch, heads, size, queries, device.BF16, drop)
					for i, what := range []string{"out", "logSum", "dq", "dk", "dv"} {
						if e := distance(got[i], want[i]); !(e <= 2e-2) {
							t.Errorf("%s differs by %.2g from %s with dropout %v", what, e, name, drop)
						}
					}
				}
			}
		})
	}
}

// TestConformanceOnMMA checks that the kernels for other GPUs than Hopper pass the attention part of
// the conformance suite and access only their own memory.
func TestConformanceOnMMA(t *testing.T) {
	gpusim.Require(t)
	const test = "TestConformance/Attention"
	for _, again := range []func(testing.TB, string, ...string) (string, error){gpusim.Again, gpusim.Checked} {
		if out, err := again(t, test, "DDPBATCH_ATTENTION=mma"); err != nil || !strings.Contains(out, "--- PASS: "+test) {
			t.Errorf("%v\n%s", err, out)
		}
	}
}

// TestWithoutWGMMA checks that attention uses mma if the GPU or the driver does not support wgmma. The
// reason is reported if wgmma was requested, or if a Hopper GPU does not use its default.
func TestWithoutWGMMA(t *testing.T) {
	gpusim.Require(t)
	const variable, none = "GPUSIM_TEST", "fallback: <nil>"
	if os.Getenv(variable) == "" {
		const rejected = `is by mma, not by wgmma: cuModuleLoadDataEx: module "sm_90a/attention_wgmma": gpusim: PTX of version 8.0 is newer than this driver: CUDA_ERROR_UNSUPPORTED_PTX_VERSION`
		for _, c := range []struct{ set, attention, want string }{
			{"GPUSIM_CAPABILITY=8.0", "wgmma", "is by mma, not by wgmma: its compute capability is 8.0, and only 9.0 has wgmma"},
			{"GPUSIM_CAPABILITY=10.0", "wgmma", "is by mma, not by wgmma: its compute capability is 10.0, and only 9.0 has wgmma"},
			{"GPUSIM_CAPABILITY=8.0", "", none},
			{"GPUSIM_CAPABILITY=10.0", "", none},
			{"GPUSIM_FAIL=ptx:8.0", "wgmma", rejected},
			{"GPUSIM_FAIL=ptx:8.0", "", rejected},
			{"GPUSIM_FAIL=ptx:8.0", "mma", none},
		} {
			if out, err := gpusim.Again(t, t.Name(), variable+"=1", c.set, "DDPBATCH_ATTENTION="+c.attention); err != nil || !strings.Contains(out, c.want) {
				t.Errorf("%s, attention %q: %v\n%s\nwant %s", c.set, c.attention, err, out, c.want)
			}
		}
		return
	}
	gpu, err := driver.Open(0)
	if err != nil {
		t.Fatal(err)
	}
	choice, err := engine.ParseAttention(os.Getenv("DDPBATCH_ATTENTION"))
	if err != nil {
		t.Fatal(err)
	}
	d, err := engine.Open(gpu, engine.Options{Attention: choice})
	if err != nil {
		t.Fatal(err)
	}
	got, want := attention(d, 1, 1, 64, 9, device.BF16, 0.2), attention(cpu.New(1), 1, 1, 64, 9, device.BF16, 0.2)
	t.Logf("fallback: %v", d.Fallback())
	if e := distance(got[0], want[0]); !(e <= 2e-2) {
		t.Errorf("out differs by %.2g", e)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}

// TestAttentionOfHopper checks which kernels attention uses by default, on Hopper and on other GPUs.
func TestAttentionOfHopper(t *testing.T) {
	gpusim.Require(t)
	const variable = "GPUSIM_TEST"
	if os.Getenv(variable) == "" {
		for set, want := range map[string]string{
			"GPUSIM_CAPABILITY=9.0":  "attention_forward_64_wgmma]",
			"GPUSIM_CAPABILITY=8.6":  "attention_forward_64]",
			"GPUSIM_CAPABILITY=10.0": "attention_forward_64]",
			"DDPBATCH_ATTENTION=mma": "attention_forward_64]",
		} {
			if out, err := gpusim.Again(t, t.Name(), variable+"=1", set); err != nil || !strings.Contains(out, want) {
				t.Errorf("%s: %v\n%s\nwant %s", set, err, out, want)
			}
		}
		return
	}
	d := open(t, engine.Options{})
	const queries, size = 3, 64
	op := d.NewAttention(device.AttentionShape{Heads: 1, HeadSize: size, MaxLength: queries, Precision: device.BF16})
	m := device.Rows(d.Alloc(device.BFloat16, queries*size), queries, size)
	logSum := d.Alloc(device.Float32, queries)
	d.Begin()
	for range 4 { // enough for a graph
		op.Forward(m, logSum, device.AttentionInput{Q: m, K: m, V: m, Batch: 1, Queries: queries, Keys: queries})
	}
	d.End()
	t.Logf("%v", d.LastPart()[:1])
}

// TestParseAttention checks the values of DDPBATCH_ATTENTION.
func TestParseAttention(t *testing.T) {
	for text, want := range map[string]engine.Attention{"": engine.AutoAttention, "mma": engine.MMA, "wgmma": engine.WGMMA} {
		if got, err := engine.ParseAttention(text); got != want || err != nil {
			t.Errorf("%q: got %v, %v; want %v", text, got, err, want)
		}
	}
	if _, err := engine.ParseAttention("flash"); err == nil || !strings.Contains(err.Error(), `"flash": must be`) {
		t.Errorf("flash: %v", err)
	}
}
