package adhoc

import (
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/internal/exitcode"
	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/slurm"
)

// variables are the variables of an allocation, apart from the job ID and the node list.
type variables map[string]string

// allocationOf returns the lookup function and the allocation of a job with the given nodes, such as
// n[1-2]. The job is heterogeneous if there are several node lists.
func allocationOf(t *testing.T, nodes []string, v variables) (func(string) (string, bool), *slurm.Allocation) {
	t.Helper()
	env := variables{"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": nodes[0]}
	if len(nodes) > 1 {
		env["SLURM_HET_SIZE"] = string(rune('0' + len(nodes)))
		for i, list := range nodes {
			suffix := "_HET_GROUP_" + string(rune('0'+i))
			env["SLURM_JOB_ID"+suffix], env["SLURM_JOB_NODELIST"+suffix] = string(rune('7'+i)), list
		}
	}
	maps.Copy(env, v)
	lookup := func(name string) (string, bool) {
		value, ok := env[name]
		return value, ok
	}
	a, inside, err := slurm.AllocationFromEnv(lookup)
	if err != nil || !inside {
		t.Fatalf("read the allocation: %v, %v", inside, err)
	}
	return lookup, &a
}

// TestLayout checks the nodes, ranks, and cores of a command, in the [slurm] table of its job file.
func TestLayout(t *testing.T) {
	pair, three := []string{"n[1-2]"}, []string{"n[1-3]"}
	for _, tt := range []struct {
		name    string
		command Command
		nodes   []string // node lists of the components; nil outside of Slurm
		env     variables
		want    string // "; " separates lines
		err     string
	}{
		{name: "one rank without Slurm", want: "nodes = 1; tasks_per_node = 1"},
		{name: "tasks without Slurm", command: Command{Tasks: 3}, want: "nodes = 1; tasks_per_node = 3"},
		{name: "tasks per node without Slurm", command: Command{TasksPerNode: 2}, want: "nodes = 1; tasks_per_node = 2"},
		{name: "one per node", nodes: pair, want: "nodes = 2; tasks_per_node = 1; cpus_per_task = 1"},
		{name: "tasks of the job", nodes: pair, env: variables{"SLURM_NTASKS": "4", "SLURM_TASKS_PER_NODE": "2(x2)", "SLURM_JOB_CPUS_PER_NODE": "8(x2)"},
			want: "nodes = 2; tasks_per_node = 2; cpus_per_task = 4"},
		{name: "uneven tasks of the job", nodes: pair, env: variables{"SLURM_NTASKS": "3", "SLURM_TASKS_PER_NODE": "2,1", "SLURM_JOB_CPUS_PER_NODE": "8,4"},
			want: "ranks_per_node = [2, 1]; cpus_per_task = 4"},
		{name: "cores without a number of tasks", nodes: pair, env: variables{"SLURM_TASKS_PER_NODE": "8(x2)", "SLURM_JOB_CPUS_PER_NODE": "8(x2)"},
			want: "nodes = 2; tasks_per_node = 1; cpus_per_task = 8"},
		{name: "tasks per node of the job", nodes: pair, env: variables{"SLURM_NTASKS_PER_NODE": "2"}, want: "nodes = 2; tasks_per_node = 2; cpus_per_task = 1"},
		{name: "malformed variables", nodes: pair, env: variables{"SLURM_NTASKS": "many", "SLURM_JOB_CPUS_PER_NODE": "8(x"},
			want: "nodes = 2; tasks_per_node = 1; cpus_per_task = 1"},
		{name: "cores of the job", nodes: pair, env: variables{"SLURM_CPUS_PER_TASK": "3", "SLURM_JOB_CPUS_PER_NODE": "8(x2)"},
			want: "nodes = 2; tasks_per_node = 1; cpus_per_task = 3"},
		{name: "cores of the flag", command: Command{CPUsPerTask: 5}, nodes: pair, env: variables{"SLURM_CPUS_PER_TASK": "3"},
			want: "nodes = 2; tasks_per_node = 1; cpus_per_task = 5"},
		{name: "GPUs", command: Command{TasksPerNode: 2}, nodes: pair, env: variables{"SLURM_GPUS_ON_NODE": "4"},
			want: "nodes = 2; tasks_per_node = 2; cpus_per_task = 1; gpus_per_node = 4"},
		{name: "GPUs that the ranks cannot share", command: Command{TasksPerNode: 3}, nodes: pair, env: variables{"SLURM_GPUS_ON_NODE": "4"},
			want: "nodes = 2; tasks_per_node = 3; cpus_per_task = 1"},
		{name: "torchrun", command: Command{Launcher: "torchrun"}, nodes: pair, env: variables{"SLURM_GPUS_ON_NODE": "4", "SLURM_JOB_CPUS_PER_NODE": "8(x2)"},
			want: "nodes = 2; tasks_per_node = 4; cpus_per_task = 2; gpus_per_node = 4"},
		{name: "fewer tasks than nodes", command: Command{Tasks: 1}, nodes: pair, want: "nodes = 1; tasks_per_node = 1; cpus_per_task = 1"},
		{name: "fewer nodes", command: Command{Nodes: 1}, nodes: pair, env: variables{"SLURM_NTASKS": "3", "SLURM_TASKS_PER_NODE": "2,1"},
			want: "nodes = 1; tasks_per_node = 3; cpus_per_task = 1"},
		{name: "all nodes", command: Command{Nodes: 2}, nodes: pair, want: "nodes = 2; tasks_per_node = 1; cpus_per_task = 1"},
		{name: "cores of the used nodes", command: Command{Nodes: 2}, nodes: three, env: variables{"SLURM_JOB_CPUS_PER_NODE": "4,8,2"},
			want: "nodes = 2; tasks_per_node = 1; cpus_per_task = 4"},
		{name: "uneven tasks", command: Command{Tasks: 5}, nodes: three, want: "ranks_per_node = [2, 2, 1]; cpus_per_task = 1"},
		{name: "tasks on nodes with different cores", command: Command{Tasks: 5}, nodes: three, env: variables{"SLURM_JOB_CPUS_PER_NODE": "3,1(x2)"},
			want: "ranks_per_node = [3, 1, 1]; cpus_per_task = 1"},
		{name: "more tasks than cores", command: Command{Tasks: 5}, nodes: three, env: variables{"SLURM_JOB_CPUS_PER_NODE": "2,1(x2)"},
			want: "ranks_per_node = [2, 2, 1]; cpus_per_task = 1"},
		{name: "tasks with several cores", command: Command{Tasks: 3, CPUsPerTask: 2}, nodes: pair, env: variables{"SLURM_JOB_CPUS_PER_NODE": "2,4"},
			want: "ranks_per_node = [1, 2]; cpus_per_task = 2"},
		{name: "tasks on some nodes", command: Command{Tasks: 4, TasksPerNode: 2}, nodes: three, want: "nodes = 2; tasks_per_node = 2; cpus_per_task = 1"},
		{name: "limit per node", command: Command{Tasks: 5, TasksPerNode: 3}, nodes: pair, want: "ranks_per_node = [3, 2]; cpus_per_task = 1"},
		{name: "above the limit per node", command: Command{Tasks: 5, TasksPerNode: 2}, nodes: pair, err: "start 5 ranks on 2 nodes"},
		{name: "more nodes than the job", command: Command{Nodes: 3}, nodes: pair, err: "the job has 2 nodes"},
		{name: "options of srun", command: Command{StepOptions: []string{"--unbuffered", "--mem-bind=local"}}, nodes: pair,
			want: `nodes = 2; tasks_per_node = 1; cpus_per_task = 1; step_options = ["--unbuffered", "--mem-bind=local"]`},
		{name: "components", nodes: []string{"n1", "n[2-3]"},
			env: variables{"SLURM_NTASKS_HET_GROUP_0": "1", "SLURM_NTASKS_PER_NODE_HET_GROUP_1": "2", "SLURM_CPUS_PER_TASK_HET_GROUP_1": "3",
				"SLURM_JOB_CPUS_PER_NODE_HET_GROUP_0": "8", "SLURM_JOB_CPUS_PER_NODE_HET_GROUP_1": "6(x2)"},
			want: "[[slurm.group]]; nodes = 1; tasks_per_node = 1; cpus_per_task = 8; [[slurm.group]]; nodes = 2; tasks_per_node = 2; cpus_per_task = 3"},
		{name: "components with flags", command: Command{TasksPerNode: 2, CPUsPerTask: 4}, nodes: []string{"n1", "n2"},
			want: "[[slurm.group]]; nodes = 1; tasks_per_node = 2; cpus_per_task = 4; [[slurm.group]]; nodes = 1; tasks_per_node = 2; cpus_per_task = 4"},
		{name: "component with uneven tasks", nodes: []string{"n1", "n[2-3]"},
			env: variables{"SLURM_NTASKS_HET_GROUP_1": "3", "SLURM_TASKS_PER_NODE_HET_GROUP_1": "2,1"}, err: "on its nodes: 2,1"},
		{name: "components with nodes", command: Command{Nodes: 1}, nodes: []string{"n1", "n2"}, err: "the job has 2 components"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			lookup, allocation := func(string) (string, bool) { return "", false }, (*slurm.Allocation)(nil)
			if tt.nodes != nil {
				lookup, allocation = allocationOf(t, tt.nodes, tt.env)
			}
			tt.command.Argv = []string{"true"}
			text, err := tt.command.JobFile(lookup, allocation)
			if tt.err != "" {
				var coded interface{ ExitCode() int }
				if err == nil || !strings.Contains(err.Error(), tt.err) || !errors.As(err, &coded) || coded.ExitCode() != exitcode.Usage {
					t.Errorf("got %v, want an error with %q and exit code %d", err, tt.err, exitcode.Usage)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			_, table, _ := strings.Cut(string(text), "[slurm]\n")
			table, _, _ = strings.Cut(table, "\n[command]")
			if got := strings.ReplaceAll(table, "\n", "; "); got != tt.want {
				t.Errorf("got %s\nwant %s", got, tt.want)
			}
			if _, err := jobs.Parse("command line", text); err != nil {
				t.Errorf("the job file is invalid: %v\n%s", err, text)
			}
		})
	}
}

// TestName checks the name of the run.
func TestName(t *testing.T) {
	for _, tt := range []struct {
		name    string
		command Command
		job     string // SLURM_JOB_NAME
		want    string
	}{
		{name: "flag", command: Command{Name: "first", Argv: []string{"true"}}, job: "own", want: "first"},
		{name: "Slurm job", command: Command{Argv: []string{"true"}}, job: "own", want: "own"},
		{name: "default name of a Slurm job", command: Command{Argv: []string{"true"}}, job: "interactive", want: "true"},
		{name: "invalid name of a Slurm job", command: Command{Argv: []string{"true"}}, job: "a/b", want: "true"},
		{name: "program", command: Command{Argv: []string{"/opt/bin/solve.x"}}, want: "solve"},
		{name: "script of an interpreter", command: Command{Argv: []string{"python3.11", "-u", "src/train.py", "other.py"}}, want: "train"},
		{name: "interpreter without a script", command: Command{Argv: []string{"python3", "-m", "train"}}, want: "python3"},
		{name: "program with an invalid name", command: Command{Argv: []string{"./.hidden#"}}, want: "job"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			text, err := tt.command.JobFile(func(name string) (string, bool) { return tt.job, name == "SLURM_JOB_NAME" && tt.job != "" }, nil)
			if err != nil {
				t.Fatal(err)
			}
			job, err := jobs.Parse("command line", text)
			if err != nil || string(job.Name) != tt.want {
				t.Errorf("got %v, want the name %q in:\n%s", err, tt.want, text)
			}
		})
	}
}

// TestCommandTable checks the keys that do not depend on the allocation.
func TestCommandTable(t *testing.T) {
	c := Command{Argv: []string{"sh", "-c", `echo "$0" \ 'é'`}, Site: "generic", Launcher: "rank", Image: "a.sif", Mounts: "/data,/scratch:/work"}
	text, err := c.JobFile(func(string) (string, bool) { return "", false }, nil)
	if err != nil {
		t.Fatal(err)
	}
	job, err := jobs.Parse("command line", text)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	container := job.Setup.Container
	if len(job.Command.Argv) != 3 || string(job.Command.Argv[2]) != c.Argv[2] || job.Site != "generic" || string(job.Command.Launcher) != "rank" ||
		string(container.Image) != "a.sif" || len(container.Mounts) != 2 || string(container.Mounts[1]) != "/scratch:/work" {
		t.Errorf("got %+v, %+v for:\n%s", job.Command, container, text)
	}
}
