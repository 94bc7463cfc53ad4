package tests

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/tests/cluster"
)

const perTask = `title = "GPUs one by one"
sources = ["https://example.org/"]
read = "2026-01-31"
[step]
gpus = "per-task"
[env]
SITE_VARIABLE = "from the site"
HOME = "not taken"
`

// TestGPUsOfRanks checks that by default each rank sees all GPUs of its node. If the site assigns
// one GPU to each task, programs still find their GPU by local rank.
func TestGPUsOfRanks(t *testing.T) {
	s := newSite(t, cluster.Options{})
	s.write("per-task.toml", perTask)
	job := `name = "%s"
site = "%s"
[slurm]
nodes = 2
gpus_per_node = 2
time = "00:05:00"
[command]
argv = ["sh", "-c", "echo $SLURMD_NODENAME rank=$RANK local=$LOCAL_RANK gpus=$CUDA_VISIBLE_DEVICES site=$SITE_VARIABLE home=$HOME"]
`
	for name, site := range map[string]string{"all": "generic", "own": "./per-task.toml"} {
		s.write(name+".toml", fmt.Sprintf(job, name, site))
		id := s.submit(name + ".toml")
		s.completed(id)
		log := s.log(name, id)
		for rank := range 4 {
			mustContain(t, log, fmt.Sprintf("rank=%d local=%d gpus=0,1 ", rank, rank%2))
		}
		if got := strings.Contains(log, "site=from the site"); got != (name == "own") {
			t.Errorf("%s: a site's variable is there: %v", name, got)
		}
		if strings.Contains(log, "home=not taken") {
			t.Error("a site's variable took the place of the user's")
		}
	}
}

// TestContainerRuntimeIsCalled checks the arguments of the container runtime, for ranks and for a
// program that runs once. It uses a stub, because a test machine cannot run a real container.
func TestContainerRuntimeIsCalled(t *testing.T) {
	s := newSite(t, cluster.Options{})
	s.write("image.sif", "")
	s.write("bin-apptainer", "#!/bin/sh\necho \"apptainer $*\" >> "+s.home+"/calls\nwhile [ \"$1\" != "+s.home+"/image.sif ]; do shift; done\nshift\nIN_CONTAINER=yes exec \"$@\"\n")
	if o := finish(t, s.Command(t.Context(), "sh", "-c", fmt.Sprintf("mkdir %[1]s/bin && mv %[1]s/bin-apptainer %[1]s/bin/apptainer && chmod 700 %[1]s/bin/apptainer", s.home))); o.code != 0 {
		t.Fatal(o)
	}
	s.write("job.toml", fmt.Sprintf(`name = "boxed"
[slurm]
nodes = 2
time = "00:05:00"
[setup]
lines = ["export PATH=%[1]s/bin:$PATH", "export LINE='set by a line'"]
[setup.container]
image = "image.sif"
runtime = "apptainer"
mounts = ["/opt:/opt:ro"]
[command]
argv = ["sh", "-c", "echo rank=$RANK in container: $IN_CONTAINER, $LINE"]
`, s.home))
	id := s.submit("job.toml")
	s.completed(id)
	mustContain(t, s.log("boxed", id), "rank=0 in container: yes, set by a line", "rank=1 in container: yes, set by a line")
	mustContain(t, s.file("calls"), "apptainer exec --bind ", s.run("boxed"), "/opt:/opt:ro "+s.home+"/image.sif "+binary+" run --run-dir")

	// A program that runs once.
	id = s.submit("job.toml", "--run-dir", "runs/single", "--set", "command.run=once")
	s.completed(id)
	log := s.log("single", id)
	mustContain(t, log, "rank= in container: yes, set by a line")
	if strings.Count(log, "in container: yes") != 1 {
		t.Errorf("the program did not run exactly once:\n%s", log)
	}
}

// TestCharliecloud checks that the ranks of a job run in a container of a real runtime, that the
// container has the mounts of the job and gets its options, and that the stop signal and the exit
// code pass through it. The image is a directory that gets its programs from the host.
func TestCharliecloud(t *testing.T) {
	if _, err := exec.LookPath("ch-run"); err != nil {
		missing(t, "Charliecloud, which tests/setup.sh installs")
	}
	s := newSite(t, cluster.Options{})
	if err := os.Mkdir(filepath.Join(s.home, "image"), 0o700); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "sh", "-euc", `
		cd "$1"
		mkdir dev etc proc sys tmp usr home root mnt var
		touch etc/passwd etc/group etc/hosts etc/resolv.conf
		echo only in the image >etc/image
		ln -s usr/bin usr/lib usr/lib64 .`, "sh", filepath.Join(s.home, "image")).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	s.write("mounted", "a file of the host\n")
	s.write("inside.sh", `read image </etc/image
read mounted </mnt/mounted
echo "rank $RANK: $image, $mounted, $OPTION"
stop() { echo "rank $RANK: stopped"; exit 3; }
trap stop TERM
: >"started-$RANK"
while :; do sleep 0.1; done
`)
	s.write("job.toml", fmt.Sprintf(`name = "boxed"
[slurm]
nodes = 2
time = "00:10:00"
[setup]
lines = ["export USER=root"] # ch-run requires it, and the environment of the tests may lack it
[setup.container]
image = "./image"
runtime = "charliecloud"
options = ["--set-env=OPTION=by_an_option"]
mounts = ["/usr", "%s:/mnt"]
[command]
argv = ["/bin/sh", "inside.sh"]
`, s.home))
	id := s.submit("job.toml")
	waitUntil(t, "both ranks to start", func() bool {
		if o := s.ddpbatch("status", "runs/boxed"); strings.Contains(o.stdout, "failed") {
			t.Fatalf("%v\n%s", o, s.log("boxed", id))
		}
		found, _ := filepath.Glob(filepath.Join(s.home, "started-*"))
		return len(found) == 2
	})
	if o := s.ddpbatch("cancel", "runs/boxed"); o.code != 0 {
		t.Fatal(o)
	}
	s.ends(id, "CANCELLED")
	for _, rank := range []string{"rank 0", "rank 1"} {
		mustContain(t, s.log("boxed", id), rank+": only in the image, a file of the host, by_an_option\n", rank+": stopped\n")
	}
	if o := s.ddpbatch("wait", "runs/boxed"); o.code != 130 || !strings.Contains(o.stderr, "exit code 3") {
		t.Errorf("wait after a stop in the container: %v", o)
	}

	// A program that runs once is in the container of the first node, and knows all nodes.
	s.write("once.sh", `read image </etc/image
echo "once on $DDPBATCH_NODES of $SLURM_JOB_NUM_NODES nodes in step ${SLURM_STEP_ID:-none}: $image, $SET"
cat "$1"
exit 7
`)
	job := strings.NewReplacer(`"boxed"`, `"onceboxed"`, `[command]`, "[command]\nrun = \"once\"", `"inside.sh"]`, `"once.sh", "{hostfile}"]`,
		"lines = [\"export USER=root\"]", "steps = [{ run = \"export USER=root\" }, { run = \"SET='set inside'; export SET\", where = \"inside\" }]").Replace(s.file("job.toml"))
	s.write("once.toml", job)
	id = s.submit("once.toml")
	s.ends(id, "FAILED")
	log := s.log("onceboxed", id)
	mustContain(t, log, "once on n1,n2 of 2 nodes in step none: only in the image, set inside\nn1 slots=1\nn2 slots=1\n", "exit code 7")
	if n := strings.Count(log, "once on"); n != 1 {
		t.Errorf("the program ran %d times:\n%s", n, log)
	}
}
