//go:build cuda

package gpusim_test

import (
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/tests/gpusim"
	"github.com/ddpbatch/ddpbatch/trainer"
	"github.com/ddpbatch/ddpbatch/trainer/collective"
	"github.com/ddpbatch/ddpbatch/trainer/cuda/engine"
)

// TestJobTrainsOnHopper checks that a GPT trains with wgmma attention as with mma. Different
// rounding shows that wgmma ran.
func TestJobTrainsOnHopper(t *testing.T) {
	gpusim.Require(t)
	path := t.TempDir() + "/text.txt"
	check(t, os.WriteFile(path, []byte(strings.Repeat("all work and no play; ", 140)), 0o600))
	// With more keys than one tile of mma holds, the two round differently.
	text := strings.NewReplacer("TEXT", path, `"cpu"`, `"cuda"`, "epochs = 3", "epochs = 1\nprecision = \"bf16\"", "context = 16", "context = 48").Replace(trainingJobs["gpt"])
	run := func(attention engine.Attention) map[int]float64 {
		losses := map[int]float64{}
		comm := collective.Local(1, 20*time.Second)[0]
		defer comm.Close()
		_, err := trainer.Run(t.Context(), trainer.Options{Job: must[*jobs.Job](t)(jobs.Parse("job.toml", []byte(text))), Run: "run",
			Checkpoints: t.TempDir(), Comm: comm, Threads: 1, Attention: attention, Observe: func(e trainer.Event) {
				switch e.Kind {
				case trainer.Trained:
					losses[e.Step] = e.Loss
				case trainer.Fallback:
					t.Error(e)
				}
			}})
		check(t, err)
		return losses
	}
	got, want := run(engine.AutoAttention), run(engine.MMA)
	equal := 0
	for step, loss := range want {
		if !(math.Abs(got[step]-loss) <= 1e-2*loss) {
			t.Errorf("step %d: loss %v, on mma %v", step, got[step], loss)
		}
		if got[step] == loss {
			equal++
		}
	}
	if len(want) < 5 || equal == len(want) {
		t.Errorf("%d steps, and %d have the bits of mma", len(want), equal)
	}
}

// TestLaunchWithUnsupportedAttention checks that a job trains with a warning if the GPU does not
// support the value of DDPBATCH_ATTENTION, and that unknown values of DDPBATCH_ATTENTION and
// DDPBATCH_FUSION are rejected.
func TestLaunchWithUnsupportedAttention(t *testing.T) {
	gpusim.Require(t)
	program := build(t)
	run := func(set ...string) launched {
		return launch(t, program, trainingJobs["mlp"], t.TempDir(), 1, append(set, "train.device=cuda", "train.epochs=1")...)
	}
	without := run("DDPBATCH_ATTENTION=wgmma", "GPUSIM_CAPABILITY=8.9")
	const warning = "warning: attention on GPU 0 (Simulated GPU) is by mma, not by wgmma: its compute capability is 8.9"
	if !strings.Contains(without.output, warning) || without.code != 0 {
		t.Errorf("exit code %d, want %q\n%s", without.code, warning, without.output)
	}
	if unset := run("DDPBATCH_ATTENTION=", "GPUSIM_CAPABILITY=8.9"); strings.Contains(unset.output, "wgmma") || unset.code != 0 {
		t.Errorf("exit code %d, want no warning\n%s", unset.code, unset.output)
	}
	for set, refused := range map[string]string{
		"DDPBATCH_ATTENTION=flash": `DDPBATCH_ATTENTION="flash": must be "mma" or "wgmma"`,
		"DDPBATCH_FUSION=relu":     `DDPBATCH_FUSION="relu": must be "all", "none", or a list`,
	} {
		if l := run(set); l.code == 0 || !strings.Contains(l.output, refused) {
			t.Errorf("exit code %d, want %q\n%s", l.code, refused, l.output)
		}
	}
}
