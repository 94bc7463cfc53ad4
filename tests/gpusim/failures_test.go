//go:build cuda

package gpusim_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/tests/gpusim"
	"github.com/ddpbatch/ddpbatch/trainer/rendezvous"
)

// TestLaunchFails checks that a failure of a GPU or of NCCL stops all ranks soon, and that
// failure.json names rank, host, GPU, operation, step, and fix.
func TestLaunchFails(t *testing.T) {
	gpusim.Require(t)
	program := build(t)
	job := strings.Replace(trainingJobs["mlp"], "batch = 32", "batch = 4", 1)
	const gpu = "GPU-67707573-696d-0000-0000-00000000000"
	for name, c := range map[string]struct {
		set   string
		steps []int // that the rank can be in when it notices the failure; nil: any
		rank  int   // -1: any
		want  []string
		hint  string
	}{
		"too little memory":         {"GPUSIM_MEMORY=16000000", []int{0}, -1, []string{"of memory, libraries about 296 MiB more, and 13.3 MiB are free on cuda ", gpu}, "nvidia-smi"},
		"out of memory at start":    {"GPUSIM_FAIL=alloc:2", []int{0}, -1, []string{gpu, "alloc of ", "cuMemAlloc: ", "CUDA_ERROR_OUT_OF_MEMORY"}, "train.batch"},
		"out of memory in step":     {"GPUSIM_FAIL=alloc:3", []int{0}, -1, []string{"step 0: cuda ", gpu, "matmul of ", "CUDA_ERROR_OUT_OF_MEMORY"}, "train.batch"},
		"a launch is refused":       {"GPUSIM_FAIL=refuse:sgd", []int{0}, -1, []string{"step 0: cuda ", gpu, "sgd of ", "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"}, ""},
		"a kernel fails":            {"GPUSIM_FAIL=launch:sgd", []int{1}, -1, []string{gpu, "CUDA_ERROR_LAUNCH_FAILED"}, "CUDA_LAUNCH_BLOCKING=1"},
		"a GPU is lost":             {"GPUSIM_FAIL=lost:200", nil, -1, []string{gpu, "CUDA_ERROR_ECC_UNCORRECTABLE"}, "drain the node"},
		"a GPU is lost at call 170": {"GPUSIM_FAIL=lost:170", nil, -1, []string{gpu, "CUDA_ERROR_ECC_UNCORRECTABLE"}, "drain the node"},
		"a GPU is lost at call 172": {"GPUSIM_FAIL=lost:172", nil, -1, []string{gpu, "CUDA_ERROR_ECC_UNCORRECTABLE"}, "drain the node"},
		"a GPU is lost at call 178": {"GPUSIM_FAIL=lost:178", nil, -1, []string{gpu, "CUDA_ERROR_ECC_UNCORRECTABLE"}, "drain the node"},
		"a GPU is lost at call 180": {"GPUSIM_FAIL=lost:180", nil, -1, []string{gpu, "CUDA_ERROR_ECC_UNCORRECTABLE"}, "drain the node"},
		"a GPU is lost at call 222": {"GPUSIM_FAIL=lost:222", nil, -1, []string{gpu, "CUDA_ERROR_ECC_UNCORRECTABLE"}, "drain the node"},
		"NCCL's async error":        {"GPUSIM_NCCL=async:1:3:6", []int{3, 4}, 1, []string{"step 3: reduce bucket 0 of 1: all-reduce 3 with rank 1", "ncclRemoteError: NET/Simulator : connection to a peer was closed on =lo ", "NCCL 2.30.7 from ", gpu + "1"}, "NCCL_DEBUG"},
		"NCCL hangs":                {"GPUSIM_NCCL=hang:1:3", []int{4}, -1, []string{"step 3: reduce bucket 0 of 1: all-reduce 3 with rank ", "not finished 2s after", "NCCL_SOCKET_IFNAME==lo"}, "firewalls"},
		"NCCL does not begin":       {"GPUSIM_NCCL=init:1", []int{0}, -1, []string{"2 ranks on GPUs: connect the GPUs: initialize NCCL on rank ", "NCCL is still waiting for other ranks", gpu}, "firewalls"},
	} {
		t.Run(name, func(t *testing.T) {
			l := launch(t, program, job, t.TempDir(), 2, "train.device=cuda", "network.collective_timeout=2s", "network.join_timeout=8s", c.set)
			var f struct {
				Exit  int                     `json:"exit"`
				First *rendezvous.Failure     `json:"first"`
				Ranks []rendezvous.RankStatus `json:"ranks"`
			}
			check(t, json.Unmarshal(must[[]byte](t)(os.ReadFile(filepath.Join(l.dir, "failure.json"))), &f))
			const most = 2 * time.Minute // 8 s of deadline, 3 s for ranks to end, and time for a busy machine
			if l.code != 1 || f.Exit != 1 || l.took > most {
				t.Errorf("exit code %d, %d in failure.json, after %s", l.code, f.Exit, l.took)
			}
			for _, want := range c.want {
				if !strings.Contains(f.First.Reason, want) {
					t.Errorf("%q does not say %q", f.First.Reason, want)
				}
			}
			if !strings.Contains(f.First.Advice, c.hint) {
				t.Errorf("hint %q, want %q", f.First.Advice, c.hint)
			}
			if f.First.Host == "" || c.rank >= 0 && f.First.Rank != c.rank || c.steps != nil && !slices.Contains(c.steps, f.First.Step) {
				t.Errorf("rank %d on %q, step %d", f.First.Rank, f.First.Host, f.First.Step)
			}
			if strings.Contains(l.output, "goroutine ") {
				t.Errorf("a rank crashed:\n%s", l.output)
			}
		})
	}
}
