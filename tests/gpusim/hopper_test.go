//go:build cuda

package gpusim_test

import (
	"math"
	"os"
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/tests/gpusim"
)

// A GPT trains with attention on wgmma as on mma. Where it cannot be had it trains on mma,
// and why is told; what is neither is refused.
func TestLaunchOnHopper(t *testing.T) {
	gpusim.Require(t)
	program := build(t)
	path := t.TempDir() + "/text.txt"
	check(t, os.WriteFile(path, []byte(strings.Repeat("all work and no play; ", 200)), 0o600))
	// With more keys than a tile of mma has, the two round differently.
	job := strings.NewReplacer("TEXT", path, "context = 16", "context = 48").Replace(trainingJobs["gpt"])
	run := func(set ...string) launched {
		return launch(t, program, job, t.TempDir(), 1, append(set, "train.device=cuda", "train.precision=bf16", "train.epochs=1")...)
	}
	mma := run()
	want := mma.losses(t)
	for _, c := range []struct{ set, warning string }{
		{"GPUSIM_CAPABILITY=9.0", ""},
		{"GPUSIM_CAPABILITY=8.9", "WARNING: attention on GPU 0 (Simulated GPU) is by mma, not by wgmma: its compute capability is 8.9"},
	} {
		l := run("DDPBATCH_ATTENTION=wgmma", c.set)
		if !strings.Contains(l.output, c.warning) || c.warning == "" && strings.Contains(l.output, "WARNING") {
			t.Errorf("%s: want %q\n%s", c.set, c.warning, l.output)
		}
		equal := true
		for step, loss := range l.losses(t) {
			if !(math.Abs(loss-want[step]) <= 1e-2*want[step]) {
				t.Errorf("%s, step %d: loss %v, on mma %v", c.set, step, loss, want[step])
			}
			equal = equal && loss == want[step]
		}
		if equal == (c.warning == "") || len(want) < 5 {
			t.Errorf("%s: of %d steps all have the loss on mma: %t", c.set, len(want), equal)
		}
	}
	if l := run("DDPBATCH_ATTENTION=flash"); l.code == 0 || !strings.Contains(l.output, `DDPBATCH_ATTENTION="flash": there are "mma" and "wgmma"`) {
		t.Errorf("exit code %d\n%s", l.code, l.output)
	}
}
