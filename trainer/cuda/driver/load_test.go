//go:build cuda

package driver_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/trainer/cuda/driver"
)

// TestLoad checks the result of Load for supported, old, broken, and missing drivers. Each case
// runs in a separate process, because a process loads the driver only once.
func TestLoad(t *testing.T) {
	if os.Getenv("TELL") != "" {
		v, err := driver.Load()
		fmt.Printf("version %d: %v\n", v, err)
		if _, err := driver.Open(0); (err != nil) != (v < driver.Oldest || os.Getenv("FAKECUDA_INIT") != "") {
			t.Errorf("open: %v", err)
		}
		var hinted interface{ Hint() string }
		if errors.As(err, &hinted) {
			fmt.Println("hint:", hinted.Hint())
		}
		return
	}
	broken := t.TempDir()
	must(t, os.WriteFile(filepath.Join(broken, "libcuda.so.1"), nil, 0o644))
	for name, c := range map[string]struct {
		dir, env string
		want     []string
	}{
		"ready":         {"", "", []string{"version 12080: <nil>"}},
		"oldest":        {"", "FAKECUDA_VERSION=11000", []string{"version 11000: <nil>"}},
		"newest":        {"", "FAKECUDA_VERSION=13000", []string{"version 13000: <nil>"}},
		"too old":       {"", "FAKECUDA_VERSION=10020", []string{"its CUDA version 10.2 is too old: 11.0 is the oldest", "hint: ask the site for a newer NVIDIA driver"}},
		"no device":     {"", "FAKECUDA_INIT=100", []string{"initialize the CUDA driver (CUDA 12.8): CUDA_ERROR_NO_DEVICE", "hint: request a GPU"}},
		"mismatch":      {"", "FAKECUDA_INIT=803", []string{"CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "hint: libcuda.so.1 and the loaded kernel module"}},
		"other failure": {"", "FAKECUDA_INIT=999", []string{"CUDA error 999", "nvidia-smi"}},
		"not a library": {broken, "", []string{"load the CUDA driver libcuda.so.1: ", "file too short", "hint: libcuda.so.1 comes with the NVIDIA driver"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := c.dir
			if dir == "" {
				dir = os.Getenv(library)
			}
			child := again(dir, "-test.run=^TestLoad$")
			child.Env = append(child.Env, "TELL=1", c.env)
			out, err := child.CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			for _, want := range c.want {
				if !strings.Contains(string(out), want) {
					t.Errorf("got %s; want %q", out, want)
				}
			}
		})
	}
}
