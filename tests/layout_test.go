package tests

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/slurm"
	"github.com/ddpbatch/ddpbatch/tests/cluster"
)

// TestUnevenRanks checks jobs with different numbers of ranks on their nodes, on one cluster.
func TestUnevenRanks(t *testing.T) {
	s := newSite(t, cluster.Options{Nodes: 3})
	for name, f := range map[string]func(*testing.T, site){"command": unevenCommand, "torchrun": unevenTorchrun, "trainer": unevenTrainer, "allocation": unevenAllocation} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f(t, s)
		})
	}
}

// unevenCommand checks the variables of all ranks of a program, the options that Slurm got, a step
// inside of a rank, the output of a node, and a second attempt.
func unevenCommand(t *testing.T, s site) {
	s.t = t
	s.write("uneven.sh", `[ "$DDPBATCH_ATTEMPT$RANK" = 13 ] && exit 5
echo "attempt $DDPBATCH_ATTEMPT: rank $RANK of $WORLD_SIZE, local $LOCAL_RANK of $LOCAL_WORLD_SIZE, group $GROUP_RANK of $GROUP_WORLD_SIZE, on $SLURMD_NODENAME with $CUDA_VISIBLE_DEVICES, master $MASTER_ADDR"
[ "$RANK" = 3 ] && srun --overlap --nodes=1 --ntasks=1 --nodelist=n1 sh -c 'echo nested on $SLURMD_NODENAME'
exit 0
`)
	s.write("uneven.toml", `name = "uneven"
[slurm]
ranks_per_node = [3, 1, 2]
gpus_per_node = 2
share_gpus = true
time = "00:10:00"
[restart]
max_without_progress = 1
[command]
argv = ["sh", "uneven.sh"]
`)
	id := s.testAndSubmit("uneven.toml")
	s.completed(id)
	shown := finish(t, s.Command(t.Context(), "scontrol", "show", "job", id)).stdout
	if !regexp.MustCompile(`NumNodes=3 NumCPUs=9 NumTasks=9`).MatchString(shown) {
		t.Errorf("the job does not have three tasks on each node:\n%s", shown)
	}
	log := s.log("uneven", id)
	mustContain(t, log, "6 ranks on 3 nodes", "rank 3 on n2: sh ended with exit code 5; starting again", "nested on n1")
	for rank, place := range []string{"0 of 3, group 0 of 3, on n1", "1 of 3, group 0 of 3, on n1", "2 of 3, group 0 of 3, on n1", "0 of 1, group 1 of 3, on n2",
		"0 of 2, group 2 of 3, on n3", "1 of 2, group 2 of 3, on n3"} {
		want := fmt.Sprintf("attempt 2: rank %d of 6, local %s with 0,1, master ", rank, place)
		if n := strings.Count(log, want); n != 1 {
			t.Errorf("%q occurs %d times in\n%s", want, n, log)
		}
	}
	for _, not := range []string{"warning", "Warning", "not honor", "incompatible"} {
		if strings.Contains(log, not) {
			t.Errorf("the log contains %q:\n%s", not, log)
		}
	}
	if o := s.ddpbatch("logs", "uneven", "--node", "n3"); strings.Count(o.stdout, "rank 4 of 6")+strings.Count(o.stdout, "rank 5 of 6") != 2 || strings.Contains(o.stdout, "on n1") {
		t.Errorf("the output of n3: %v", o)
	}
}

// unevenTorchrun checks that torchrun starts the number of workers of its node.
func unevenTorchrun(t *testing.T, s site) {
	s.t = t
	s.write("worker.py", `import os
os.write(1, "rank {RANK} of {WORLD_SIZE}, local {LOCAL_RANK} of {LOCAL_WORLD_SIZE}, group {GROUP_RANK} on {SLURMD_NODENAME}\n".format(**os.environ).encode())
`)
	s.write("torchrun.toml", `name = "workers"
[slurm]
ranks_per_node = [2, 1]
time = "00:10:00"
[setup]
env = { PATH = "/usr/bin:/bin" }
[command]
launcher = "torchrun"
argv = ["--redirects", "9:1", "--tee", "9:1", "worker.py"]
`)
	id := s.submit("torchrun.toml")
	s.completed(id)
	log := s.log("workers", id)
	nodes, err := slurm.ExpandHosts(s.nodes(id)) // a requeued job may have other nodes
	if err != nil || len(nodes) != 2 {
		t.Fatalf("nodes %q, %v, want 2", nodes, err)
	}
	mustContain(t, log, "local 0 of 2, group 0 on "+nodes[0], "local 1 of 2, group 0 on "+nodes[0], "local 0 of 1, group 1 on "+nodes[1])
	for rank := range 3 {
		mustContain(t, log, fmt.Sprintf("rank %d of 3, ", rank))
	}
}

// unevenTrainer checks that the built-in trainer runs on nodes with different numbers of ranks, and
// that a run resumes with another layout.
func unevenTrainer(t *testing.T, s site) {
	s.t = t
	text := strings.Replace(fmt.Sprintf(fashion, "layouts", 2, 2, 1, 64), `path = "/usr/share/datasets/fashion-mnist"`, `path = "builtin:fashion-mnist"`, 1)
	text = strings.Replace(text, "nodes = 2\ntasks_per_node = 2", "ranks_per_node = [2, 1]", 1)
	s.write("layouts.toml", text)
	id := s.submit("layouts.toml")
	s.completed(id)
	mustContain(t, s.log("layouts", id), "3 ranks on 2 nodes", "finished: 1 epoch")
	second := []string{"layouts.toml", "--set", "train.epochs=2", "--set", "slurm.ranks_per_node=[1, 2, 1]"}
	if o := s.ddpbatch(append([]string{"check"}, second...)...); o.code != 0 || !strings.Contains(o.stdout, "3 nodes with 1,2,1 ranks (4 ranks)") {
		t.Error(o)
	}
	id = s.submit(second...)
	s.completed(id)
	mustContain(t, s.log("layouts", id), "4 ranks on 3 nodes", "finished: 2 epochs")
	weights(t, s.run("layouts"))
}

// unevenAllocation checks that a launcher in an allocation starts the ranks where srun would.
func unevenAllocation(t *testing.T, s site) {
	s.t = t
	s.write("where.sh", `echo $SLURM_PROCID $SLURMD_NODENAME`)
	s.write("own.sh", `#!/bin/sh
#SBATCH --nodes=2 --ntasks=3 --output=own.out
srun sh where.sh | sort > srun.txt
`+s.program+` launch --name own -- sh where.sh > launch.log
grep '^[0-9] n[1-9]$' launch.log | sort > launch.txt
srun --ntasks=2 sh where.sh | sort > srun-2.txt
`+s.program+` launch --ntasks=2 --name own -- sh where.sh > launch.log
grep '^[0-9] n[1-9]$' launch.log | sort > launch-2.txt
`)
	cmd := s.Command(t.Context(), "sbatch", "--wait", "own.sh")
	cmd.Dir = s.home
	if o := finish(t, cmd); o.code != 0 {
		t.Fatalf("%v\n%s", o, s.file("own.out"))
	}
	for _, suffix := range []string{"", "-2"} {
		want, got := s.file("srun"+suffix+".txt"), s.file("launch"+suffix+".txt")
		if got != want || strings.Count(got, "\n") < 2 {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// TestGroups checks jobs with groups of different nodes, which are heterogeneous jobs of Slurm.
func TestGroups(t *testing.T) {
	s := hetSite(t)
	s.write("groups.sh", `[ "$DDPBATCH_ATTEMPT$RANK" = 12 ] && exit 5
echo "attempt $DDPBATCH_ATTEMPT: rank $RANK of $WORLD_SIZE, local $LOCAL_RANK of $LOCAL_WORLD_SIZE, group $GROUP_RANK of $GROUP_WORLD_SIZE, on $SLURMD_NODENAME with ${CUDA_VISIBLE_DEVICES-none}"
exit 0
`)
	s.write("groups.toml", `name = "groups"
[slurm]
time = "00:10:00"
[[slurm.group]]
nodelist = "n3"
tasks_per_node = 2
partition = "low"
[[slurm.group]]
nodes = 2
nodelist = "n[1-2]"
gpus_per_node = 1
cpus_per_task = 2
[restart]
max_without_progress = 1
[command]
argv = ["sh", "groups.sh"]
`)
	id := s.testAndSubmit("groups.toml")
	s.completed(id)
	shown := finish(t, s.Command(t.Context(), "scontrol", "show", "job", id)).stdout
	mustContain(t, shown, "Partition=low", "NumNodes=1 NumCPUs=2 NumTasks=2 CPUs/Task=1", "Partition=batch", "NumNodes=2 NumCPUs=4 NumTasks=2 CPUs/Task=2", "gpu:1")
	log := s.log("groups", id)
	mustContain(t, log, "4 ranks on 3 nodes", "rank 2 on n1: sh ended with exit code 5; starting again")
	for rank, place := range []string{"0 of 2, group 0 of 3, on n3 with none", "1 of 2, group 0 of 3, on n3 with none", "0 of 1, group 1 of 3, on n1 with 0", "0 of 1, group 2 of 3, on n2 with 0"} {
		want := fmt.Sprintf("attempt 2: rank %d of 4, local %s\n", rank, place)
		if n := strings.Count(log, want); n != 1 {
			t.Errorf("%q occurs %d times in\n%s", want, n, log)
		}
	}
	if o := s.ddpbatch("logs", "groups", "--node", "n3"); strings.Count(o.stdout, "on n3") != 2 || strings.Contains(o.stdout, "on n1") {
		t.Errorf("the output of n3: %v", o)
	}
	if o := s.ddpbatch("status", "groups"); o.code != 0 || !strings.Contains(o.stdout, "done") {
		t.Errorf("status: %v", o)
	}

	// The built-in trainer.
	text := strings.Replace(fmt.Sprintf(fashion, "trained", 2, 2, 1, 64), `path = "/usr/share/datasets/fashion-mnist"`, `path = "builtin:fashion-mnist"`, 1)
	s.write("trained.toml", strings.Replace(text, "nodes = 2\ntasks_per_node = 2\ntime = \"00:10:00\"", "time = \"00:10:00\"\n[[slurm.group]]\ntasks_per_node = 2\n[[slurm.group]]\nnodes = 2\n", 1))
	id = s.submit("trained.toml")
	s.completed(id)
	mustContain(t, s.log("trained", id), "4 ranks on 3 nodes", "finished: 1 epoch")
	weights(t, s.run("trained"))

	// Commands that run on the nodes of the job.
	o := s.ddpbatch("submit", "groups.toml", "--run-dir", "runs/waiting", "--set", `command.argv=["sleep", "1000"]`)
	if o.code != 0 {
		t.Fatal(o)
	}
	waitUntil(t, "the ranks", func() bool { return strings.Contains(s.ddpbatch("status", "runs/waiting").stdout, "n[3,1-2] running") })
	o = s.ddpbatch("exec", "runs/waiting", "--all", "--", "sh", "-c", "echo on $SLURMD_NODENAME")
	if o.code != 0 || strings.Count(o.stdout, ": on n") != 3 {
		t.Errorf("exec --all: %v", o)
	}
	o = s.ddpbatch("exec", "runs/waiting", "--rank", "3", "--", "sh", "-c", "echo rank $RANK on $SLURMD_NODENAME")
	mustContain(t, o.stdout, "rank 3 on n2")
	if o := s.ddpbatch("cancel", "runs/waiting"); o.code != 0 {
		t.Error(o)
	}

	// A launcher in a user's own heterogeneous job, without and with a job file.
	s.write("own.sh", `#!/bin/sh
#SBATCH --nodes=1 --nodelist=n3 --ntasks-per-node=2 --output=own.out
#SBATCH hetjob
#SBATCH --nodes=2 --ntasks-per-node=1 --cpus-per-task=2
srun --het-group=0,1 sh -c 'echo $SLURM_PROCID $SLURMD_NODENAME' | sort > srun.txt
`+s.program+` launch --name own -- sh -c 'echo $SLURM_PROCID $SLURMD_NODENAME' > launch.log
grep '^[0-9] n[1-9]$' launch.log | sort > launch.txt
`+s.program+` launch --ntasks=2 -- true
`+s.program+` launch groups.toml --run-dir other --set 'slurm.group=[{nodes=2}, {nodes=1}]'
exit 0
`)
	cmd := s.Command(t.Context(), "sbatch", "--wait", "own.sh")
	cmd.Dir = s.home
	if o := finish(t, cmd); o.code != 0 {
		t.Fatalf("%v\n%s", o, s.file("own.out"))
	}
	if want, got := s.file("srun.txt"), s.file("launch.txt"); got != want || strings.Count(got, "\n") != 4 {
		t.Errorf("got %q, want %q", got, want)
	}
	mustContain(t, s.file("own.out"), "the job has 2 components, which --nodes, --ntasks", "slurm.group[0] has 2 nodes, but component 0 of the allocation has 1 (n3)")
}
