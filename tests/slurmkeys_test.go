package tests

import (
	"fmt"
	"regexp"
	"testing"

	"github.com/ddpbatch/ddpbatch/tests/cluster"
)

// manyKeys is a job that uses most keys of [slurm].
const manyKeys = `name = "many"
[slurm]
nodes = 2
tasks_per_node = 2
gpus_per_node = "3g.20gb:2"
time = "00:05:00"
mem_per_gpu = "100M"
gres = "nvme:1"
exclude = "n[2-3]"
nodelist = "n[4-5]"
hint = "compute_bound"
licenses = "matlab:2"
switches = "1@00:01:00"
begin = "now"
nice = 7
wckey = "project"
comment = "two words; $(touch pwned) #"
open_mode = "truncate"
requeue = false
mail = { user = "someone@example.org", events = ["end", "time_limit_80"] }
options = ["--gres-flags=disable-binding", "--wait-all-nodes=1", "--delay-boot=1"]
step_options = ["--cpu-freq=performance"]
omit = ["cpus-per-task"]
[command]
argv = ["sh", "-c", "echo rank=$RANK node=$SLURMD_NODENAME gpus=$CUDA_VISIBLE_DEVICES; scontrol show step $SLURM_JOB_ID.$SLURM_STEP_ID"]
`

// TestSlurmKeys checks with a real job that the keys of [slurm] have the effect of sbatch's
// options, and that sbatch accepts all of them.
func TestSlurmKeys(t *testing.T) {
	s := newSite(t, cluster.Options{Nodes: 5, GPUType: "3g.20gb", Gres: "nvme:2", SlurmConf: []string{"Licenses=matlab:4", "TrackWCKey=yes"}})
	s.write("job.toml", manyKeys)
	if o := s.ddpbatch("submit", "job.toml", "--test-only"); o.code != 0 {
		t.Fatal(o)
	}
	id := s.submit("job.toml")
	s.completed(id)
	shown := finish(t, s.Command(t.Context(), "scontrol", "show", "job", id)).stdout
	for _, want := range []string{
		`NodeList=n\[4-5\]`, `ReqNodeList=n\[4-5\]`, `ExcNodeList=n\[2-3\]`, `TresPerNode=gres:gpu:3g.20gb:2,gres:nvme:1`, `Licenses=matlab:2`,
		`Switches=1@00:01:00`, `Nice=7`, `WCKey=project`, `Comment=ddpbatch:\S+ two words; \$\(touch pwned\) #`, `Requeue=0`,
		`MailUser=someone@example.org MailType=END,TIME_LIMIT_80`, `DelayBoot=00:01:00`, `MemPerTres=gres:gpu:100`,
	} {
		if !regexp.MustCompile(want).MatchString(shown) {
			t.Errorf("%s is not in\n%s", want, shown)
		}
	}
	log := s.log("many", id)
	for rank := range 4 {
		mustContain(t, log, fmt.Sprintf("rank=%d node=n%d gpus=0,1", rank, 4+rank/2))
	}
	mustContain(t, log, "TresPerNode=gres:gpu:2,gres:nvme:1", "Governor=Performance")
}

// TestExportNone checks that a job with export = "none" does not get the environment of the
// submission, and still passes the environment of its script to the ranks.
func TestExportNone(t *testing.T) {
	s := newSite(t, cluster.Options{Nodes: 1, GPUs: -1})
	s.environ = append(s.environ, "OF_THE_SUBMISSION=leaked")
	s.write("job.toml", `name = "clean"
[slurm]
time = "00:05:00"
export = "none"
[setup]
lines = ["export OF_THE_SCRIPT=kept"]
[command]
argv = ["sh", "-c", "echo submission=$OF_THE_SUBMISSION script=$OF_THE_SCRIPT"]
`)
	id := s.submit("job.toml")
	s.completed(id)
	mustContain(t, s.log("clean", id), "submission= script=kept")
}
