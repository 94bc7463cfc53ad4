//go:build cuda

package gpusim_test

import (
	"encoding/json"
	"math"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/trainer/bench"
	"github.com/ddpbatch/ddpbatch/trainer/cuda"
	"github.com/ddpbatch/ddpbatch/trainer/device"
)

// TestBenchStep checks that a step benchmark on a GPU computes the same losses as on the CPU and
// reports consistent metrics.
func TestBenchStep(t *testing.T) {
	const steps = 3
	for i, c := range [][2]int{{4, 0}, {1, 8}} { // mlp, gpt
		m := must[bench.Model](t)(bench.Resize(bench.Models()[i], c[0], c[1]))
		open := func() (device.Device, error) { return cuda.Open(0, cuda.Options{}) }
		got := must[bench.Result](t)(bench.OnGPU(open).Step(t.Context(), m, device.FP32, steps))
		skipped := 5 // omitted on a GPU
		want := must[bench.Result](t)(bench.New(1).Step(t.Context(), m, device.FP32, skipped+steps-bench.WarmUp))
		for _, l := range [][2]float64{{float64(*got.FirstLoss), float64(*want.FirstLoss)}, {float64(*got.Loss), float64(*want.Loss)}} {
			if !(math.Abs(l[0]-l[1]) <= 1e-4*l[1]) {
				t.Errorf("%s: loss %v, on the CPU %v", m.Name(), l[0], l[1])
			}
		}
		units := math.Round(want.PerSecond * want.Median)
		if got.Runs != steps || !(got.Best > 0 && got.Best <= got.Median) || got.PerSecond != units/got.Median || got.Params != want.Params {
			t.Errorf("%+v\non the CPU %+v", got, want)
		}
		// Weights, gradients, and at least the momentum.
		if least := int64(3 * 4 * got.Params); got.DeviceMemory < least || got.DeviceMemory > 20*least+64<<20 || !strings.HasPrefix(got.Device, "cuda 0, ") || got.Peak != 0 {
			t.Errorf("%d bytes of %s, of a limit of %v", got.DeviceMemory, got.Device, got.Peak)
		}
	}
}

// TestBench checks that `bench` finds GPUs and NCCL, gives each process a GPU, and explains what
// is missing.
func TestBench(t *testing.T) {
	program := build(t)
	run := func(devices string, args ...string) string {
		c := exec.CommandContext(t.Context(), program, append(append([]string{"bench"}, args...), "--json")...)
		c.Env = append(os.Environ(), "GPUSIM_DEVICES="+devices)
		out, _ := c.CombinedOutput() // the test checks the output
		return string(out)
	}
	for devices, want := range map[string]string{"2": `"transport":"nccl 2.30.7"`, "1": "rank 1 has no GPU: this machine has 1"} {
		if got := run(devices, "allreduce", "--backend", "nccl", "--ranks", "2", "--bytes", "4096"); !strings.Contains(got, want) {
			t.Errorf("with %s GPUs: %s, want %q", devices, got, want)
		}
	}
	var r bench.Result
	out := run("1", "step", "--device", "cuda", "--model", "gpt", "--precision", "bf16", "--batch", "1", "--length", "8", "--steps", "2")
	if err := json.Unmarshal([]byte(out), &r); err != nil || r.Runs != 2 || r.Unit != "tokens" || !(r.PerSecond > 0) || r.DeviceMemory == 0 || !strings.HasSuffix(r.Shape, "T8 B1") {
		t.Errorf("%v: %s", err, out)
	}
	if out := run("0", "step", "--device", "cuda"); !strings.Contains(out, "CUDA_ERROR_NO_DEVICE") || !strings.Contains(out, "hint: ") {
		t.Errorf("without a GPU: %s", out)
	}
}
