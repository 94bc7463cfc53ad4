package tests

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
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
begin = "now+10"
nice = 7
dependency = ["singleton"]
wckey = "project"
comment = "two words; $(touch pwned) #"
open_mode = "truncate"
requeue = false
mail = { user = "someone@example.org", events = ["end", "time_limit_80"] }
options = ["--gres-flags=disable-binding", "--wait-all-nodes=1", "--delay-boot=1"]
step_options = ["--cpu-freq=performance"]
omit = ["cpus-per-task"]
[command]
argv = ["sh", "-c", "echo rank=$RANK hint=$SLURM_HINT node=$SLURMD_NODENAME gpus=$CUDA_VISIBLE_DEVICES; scontrol show step $SLURM_JOB_ID.$SLURM_STEP_ID"]
`

// TestSlurmKeys checks with a real job that the keys of [slurm] have the effect of sbatch's
// options, and that sbatch accepts all of them.
func TestSlurmKeys(t *testing.T) {
	s := newSite(t, cluster.Options{Nodes: 5, GPUType: "3g.20gb", Gres: "nvme:2", SlurmConf: []string{"Licenses=matlab:4", "TrackWCKey=yes"}})
	s.write("job.toml", manyKeys)
	id := s.testAndSubmit("job.toml")
	s.completed(id)
	colons := strings.NewReplacer("gres/", "gres:") // Slurm 24.11 prints a slash
	shown := colons.Replace(finish(t, s.Command(t.Context(), "scontrol", "show", "job", id)).stdout)
	for _, want := range []string{
		`NodeList=n\[4-5\]`, `ReqNodeList=n\[4-5\]`, `ExcNodeList=n\[2-3\]`, `TresPerNode=gres:gpu:3g.20gb:2,gres:nvme:1`, `Licenses=matlab:2`,
		`Switches=1@00:01:00`, `Nice=7`, `WCKey=project`, `Comment=ddpbatch:\S+ two words; \$\(touch pwned\) #`, `Requeue=0`,
		`MailUser=someone@example.org MailType=END,TIME_LIMIT_80`, `DelayBoot=00:01:00`, `MemPerTres=gres:gpu:100`,
	} {
		if !regexp.MustCompile(want).MatchString(shown) {
			t.Errorf("%s is not in\n%s", want, shown)
		}
	}
	times := regexp.MustCompile(`SubmitTime=(\S+) EligibleTime=(\S+)`).FindStringSubmatch(shown)
	if times == nil || times[2] <= times[1] { // slurm.begin
		t.Errorf("got times %q in\n%s", times, shown)
	}
	script := finish(t, s.Command(t.Context(), "scontrol", "write", "batch_script", id, "-")).stdout // as Slurm has it
	mustContain(t, script, "#SBATCH --open-mode=truncate\n", "#SBATCH --hint=compute_bound\n", "#SBATCH --gres-flags=disable-binding\n", "#SBATCH --wait-all-nodes=1\n")
	if strings.Contains(script, "#SBATCH --cpus-per-task") { // slurm.omit
		t.Errorf("the script has --cpus-per-task:\n%s", script)
	}
	log := colons.Replace(s.log("many", id))
	for rank := range 4 {
		mustContain(t, log, fmt.Sprintf("rank=%d hint=compute_bound node=n%d gpus=0,1", rank, 4+rank/2))
	}
	mustContain(t, log, "TresPerNode=gres:gpu:2,gres:nvme:1", "Governor=Performance")
}

// TestSingleton checks that a job with the dependency "singleton" waits for a job with its name.
func TestSingleton(t *testing.T) {
	s := newSite(t, cluster.Options{Nodes: 1, GPUs: -1})
	first := strings.TrimSpace(finish(t, s.Command(t.Context(), "sbatch", "--parsable", "--hold", "--job-name=alone", "--wrap=true")).stdout)
	s.write("job.toml", "name = \"alone\"\n[slurm]\ntime = \"00:05:00\"\ndependency = [\"singleton\"]\n[command]\nargv = [\"true\"]\n")
	id := s.testAndSubmit("job.toml")
	shown := finish(t, s.Command(t.Context(), "scontrol", "show", "job", id)).stdout
	mustContain(t, shown, "JobState=PENDING", "Dependency=singleton(unfulfilled)")
	finish(t, s.Command(t.Context(), "scancel", first))
	s.completed(id)
}

// TestExportNone checks that a job with export = "none" does not get the environment of the
// submission, and still passes the environment of its script to the ranks. Memory per core
// has the effect of sbatch's option.
func TestExportNone(t *testing.T) {
	s := newSite(t, cluster.Options{Nodes: 1, GPUs: -1})
	s.environ = append(s.environ, "OF_THE_SUBMISSION=leaked")
	s.write("job.toml", `name = "clean"
[slurm]
time = "00:05:00"
export = "none"
mem_per_cpu = "100M"
[setup]
lines = ["export OF_THE_SCRIPT=kept"]
[command]
argv = ["sh", "-c", "echo submission=$OF_THE_SUBMISSION script=$OF_THE_SCRIPT"]
`)
	id := s.testAndSubmit("job.toml")
	s.completed(id)
	mustContain(t, s.log("clean", id), "submission= script=kept")
	shown := finish(t, s.Command(t.Context(), "scontrol", "show", "job", id)).stdout
	mustContain(t, shown, "MinMemoryCPU=100M")
}

// stepsJob is a job with steps in the batch script and in its ranks.
const stepsJob = `name = "steps"
[slurm]
nodes = 2
time = "00:05:00"
[setup]
steps = [
  { run = "echo once on $SLURMD_NODENAME: task ${SLURM_PROCID-none}" },
  { env = { A = "1" } },
  { run = "module() { export LOADED=$LOADED:$2$A; }; A=2" },
  { modules = ["gcc", "cuda"] },
  { run = "export A" },
  { run = "echo step in rank $RANK with $A; export B=$A$RANK", where = "inside" },
]
[command]
argv = ["sh", "-c", "echo rank=$RANK a=$A b=$B loaded=$LOADED"]
`

// TestSetupSteps checks that steps run in their order in a real job, once or in each rank, and
// that a step that fails ends the job with its exit code.
func TestSetupSteps(t *testing.T) {
	s := newSite(t, cluster.Options{Nodes: 2, GPUs: -1})
	s.write("job.toml", stepsJob)
	id := s.testAndSubmit("job.toml")
	s.completed(id)
	log := s.log("steps", id)
	mustContain(t, log, "once on n1: task", "rank=0 a=2 b=20 loaded=:gcc2:cuda2", "rank=1 a=2 b=21 loaded=:gcc2:cuda2", "step in rank 1 with 2")
	if strings.Count(log, "once on") != 1 {
		t.Errorf("a step outside of the ranks ran more than once:\n%s", log)
	}
	for _, where := range []string{"outside", "inside"} {
		name := "fails-" + where
		s.write(name+".toml", fmt.Sprintf("name = %q\n[slurm]\ntime = \"00:05:00\"\n[setup]\nsteps = [{ run = \"true\" }, { run = \"echo now; (exit 9)\", where = %q }]\n[command]\nargv = [\"echo\", \"started\"]\n", name, where))
		id := s.submit(name + ".toml")
		s.ends(id, "FAILED")
		log := s.log(name, id)
		mustContain(t, log, "now\n", "setup.steps[1] failed with exit code 9: echo now; (exit 9)")
		if strings.Contains(log, "started") {
			t.Errorf("%s: the program ran:\n%s", where, log)
		}
	}
}

// TestSweepArray checks that a program that was written for a job array gets its index, in its
// setup, its environment, and its arguments, and that element 0 of a job array stays a trial of
// the sweep.
func TestSweepArray(t *testing.T) {
	s := newSite(t, cluster.Options{Nodes: 2, GPUs: -1})
	s.write("job.toml", `name = "folds"
[slurm]
time = "00:05:00"
[sweep]
array = "3-9:3%2"
[setup]
steps = [{ run = "echo setup $SLURM_ARRAY_TASK_ID; export IN_SETUP=$SLURM_ARRAY_TASK_ID" }]
[command]
argv = ["sh", "-c", "echo index=$SLURM_ARRAY_TASK_ID setup=$IN_SETUP max=${SLURM_ARRAY_TASK_MAX-none} arg=$0", "{array_task}"]
`)
	id := s.testAndSubmit("job.toml")
	for i, index := range []int{3, 6, 9} {
		element := fmt.Sprintf("%s_%d", id, i)
		s.completed(element)
		log := s.log(filepath.Join("folds", "elements", fmt.Sprint(i)), element)
		mustContain(t, log, fmt.Sprintf("setup %d\n", index), fmt.Sprintf("index=%d setup=%[1]d max=none arg=%[1]d\n", index))
	}
	if o := s.ddpbatch("status", "folds"); !strings.Contains(o.stdout, "ARRAY_TASK") {
		t.Errorf("status does not show the indices: %v", o)
	}
}

// TestNotifications checks the messages of a real job that fails and restarts, with a webhook that
// refuses connections. Jobs also complete if a server never answers or answers 500.
func TestNotifications(t *testing.T) {
	s := newSite(t, cluster.Options{Nodes: 1, GPUs: -1})
	s.environ = append(s.environ, "HOOK=http://127.0.0.1:1/hook")
	s.write("job.toml", `name = "noisy"
[slurm]
time = "00:05:00"
[restart]
max_without_progress = 1
[notify]
events = ["started", "finished", "failed", "stopped", "restarted"]
webhook_env = "HOOK"
command = ["sh", "-c", "cat >> messages; echo >> messages"]
[command]
argv = ["sh", "-c", "exit 6"]
`)
	id := s.testAndSubmit("job.toml")
	s.ends(id, "FAILED")
	mustContain(t, s.log("noisy", id), "warning: notification not sent: webhook: ", "connection refused")
	text, err := os.ReadFile(filepath.Join(s.run("noisy"), "messages"))
	if err != nil {
		t.Fatal(err)
	}
	var events []string
	for line := range strings.Lines(string(text)) {
		var m struct {
			Event, Cause string
			JobID        string `json:"job_id"`
			Exit         *int
		}
		if err := json.Unmarshal([]byte(line), &m); err != nil || m.JobID != id {
			t.Fatalf("%q: %v", line, err)
		}
		events = append(events, m.Event)
		if m.Event == "failed" && (m.Exit == nil || *m.Exit != 6 || !strings.Contains(m.Cause, "exit code 6")) {
			t.Errorf("got %s", line)
		}
	}
	// The end of a job does not wait for a receiver that takes longer than five seconds.
	gaveUp := strings.Contains(s.log("noisy", id), "does not respond")
	if got := strings.Join(events, " "); got != "started restarted failed" && !(gaveUp && strings.HasPrefix("started restarted failed", got)) {
		t.Errorf("got events %q in\n%s", got, text)
	}

	s.write("server.py", faultyServers)
	server := s.OnNode(t.Context(), "n1", "/usr/bin/python3", filepath.Join(s.home, "server.py"))
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	waitUntil(t, "the servers", func() bool { _, err := os.Stat(filepath.Join(s.home, "listening")); return err == nil })
	const silent = "warning: notification not sent: the receiver does not respond"
	for _, tt := range []struct{ name, address, want string }{
		{"never-answers", "http://127.0.0.1:7001/hook", silent},
		{"answers-500", "http://127.0.0.1:7002/hook", "warning: notification not sent: webhook: the server answered 500"},
	} {
		s.environ = append(s.environ, "HOOK="+tt.address)
		s.write(tt.name+".toml", fmt.Sprintf("name = %q\n[slurm]\ntime = \"00:05:00\"\n[notify]\nevents = [\"finished\"]\nwebhook_env = \"HOOK\"\n[command]\nargv = [\"true\"]\n", tt.name))
		id := s.submit(tt.name + ".toml")
		s.completed(id)
		if log := s.log(tt.name, id); !strings.Contains(log, tt.want) && !strings.Contains(log, silent) { // a busy machine may need 5 s
			t.Errorf("%s: the log does not contain %q:\n%s", tt.name, tt.want, log)
		}
	}
}

// faultyServers has a server on port 7001 that never answers and one on port 7002 that answers 500.
const faultyServers = `import http.server, pathlib, socket
class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        self.send_error(500)
silent = socket.create_server(("127.0.0.1", 7001))
broken = http.server.HTTPServer(("127.0.0.1", 7002), Handler)
pathlib.Path(__file__).with_name("listening").touch()
broken.serve_forever()
`

// TestTruncatedLog checks that with slurm.open_mode = "truncate" a requeue removes earlier output from the
// log of the job.
func TestTruncatedLog(t *testing.T) {
	s := newSite(t, cluster.Options{Nodes: 1, GPUs: -1})
	s.write("job.toml", `name = "truncated"
[slurm]
time = "00:05:00"
open_mode = "truncate"
[restart]
on_failure = 1
[command]
argv = ["sh", "-c", "echo step 1 loss 0.5; echo restart ${SLURM_RESTART_COUNT:-0}; test $SLURM_RESTART_COUNT = 1"]
`)
	id := s.submit("job.toml")
	startRestarted(t, s.Cluster, id, 1)
	s.completed(id)
	log := s.log("truncated", id)
	mustContain(t, log, "restart 1")
	if strings.Contains(log, "restart 0") {
		t.Errorf("the log also has the output before the requeue:\n%s", log)
	}
}

// TestRequeueAfterFailure checks that restart.on_failure requeues a program that fails, as long
// as it reports later steps, and that it does not requeue one that fails at the same step again.
func TestRequeueAfterFailure(t *testing.T) {
	s := newSite(t, cluster.Options{Nodes: 1, GPUs: -1})
	s.write("job.toml", `name = "retried"
[slurm]
time = "00:05:00"
[restart]
on_failure = 5
[command]
argv = ["sh", "-c", 'n=$(cat at 2>/dev/null || echo 0); n=$((n + 10)); [ $n -le 20 ] || n=20; echo $n > at; echo "step $n loss 0.5"; exit 1']
`)
	id := s.testAndSubmit("job.toml")
	startRestarted(t, s.Cluster, id, 1)
	startRestarted(t, s.Cluster, id, 2)
	s.ends(id, "FAILED")
	mustContain(t, s.log("retried", id), "requeued as job "+id+" (after a failure, 1 of 5)", "requeued as job "+id+" (after a failure, 2 of 5)",
		"not requeued after the failure: the program reported no later step than in earlier attempts")
}
