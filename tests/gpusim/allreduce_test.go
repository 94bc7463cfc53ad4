//go:build cuda

package gpusim_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestBenchAllReduce: the program finds NCCL, and each of its processes a GPU.
func TestBenchAllReduce(t *testing.T) {
	program := build(t)
	run := func(devices string) string {
		c := exec.CommandContext(t.Context(), program, "bench", "allreduce", "--backend", "nccl", "--ranks", "2", "--bytes", "4096", "--json")
		c.Env = append(os.Environ(), "GPUSIM_DEVICES="+devices)
		out, _ := c.CombinedOutput() // the text tells
		return string(out)
	}
	for devices, want := range map[string]string{"2": `"transport":"nccl 2.30.7"`, "1": "there are 1 GPUs, and rank 1 needs one for itself"} {
		if got := run(devices); !strings.Contains(got, want) {
			t.Errorf("with %s GPUs: %s, want %q", devices, got, want)
		}
	}
}
