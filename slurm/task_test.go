package slurm

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/ddpbatch/ddpbatch/internal/hints"
)

// TestParseTasksPerNode checks Slurm's compressed lists of task counts.
func TestParseTasksPerNode(t *testing.T) {
	tests := []struct{ in, want string }{
		{"4", "[4]"},
		{"3,2(x2)", "[3 2 2]"},
		{"4(x2),3", "[4 4 3]"},
		{"1,2,1(x3),3,2", "[1 2 1 1 1 3 2]"},
		{"", `"": missing number`},
		{"3,", `"": missing number`},
		{"a", `"a": "a" is not a number`},
		{"-1", `"-1": "-1" is not a number`},
		{"2(x", `"2(x": missing number`},
		{"2(x3", `"2(x3": not of the form`},
		{"2(x3)4", `"2(x3)4": "3)4" is not a number`},
		{"2(x0)", `"2(x0)": not of the form`},
		{"2(3)", `"2(3)" is not a number`},
		{"2(x99999999)", "more than 262144 nodes"},
		{"1(x262144),1", "more than 262144 nodes"},
		{"99999999999", "too large"},
		{"99999999999999999999999", "too large"},
	}
	for _, tt := range tests {
		got, err := ParseTasksPerNode(tt.in)
		if err != nil {
			if !strings.Contains(err.Error(), tt.want) {
				t.Errorf("ParseTasksPerNode(%q): %v, want %s", tt.in, err, tt.want)
			}
		} else if fmt.Sprint(got) != tt.want {
			t.Errorf("ParseTasksPerNode(%q) = %v, want %s", tt.in, got, tt.want)
		}
	}
}

// TestNodeOfTask checks the nodes of tasks, and the compressed form of their numbers.
func TestNodeOfTask(t *testing.T) {
	tasks := []int{3, 1, 2, 2}
	list := FoldTasksPerNode(tasks)
	if want := "3,1,2(x2)"; list != want {
		t.Errorf("got %s, want %s", list, want)
	}
	for task, want := range []int{0, 0, 0, 1, 2, 2, 3, 3, -1} {
		if got := NodeOfTask(list, task); got != want {
			t.Errorf("task %d: got node %d, want %d", task, got, want)
		}
	}
	for _, tt := range []struct {
		list       string
		task, want int
	}{
		{"2", -1, -1}, {"x,2", 0, -1}, {"0(x5),1", 0, 5}, {"2147483647(x2147483647)", math.MaxInt, -1}, {"1(x2147483647)", 2147483646, 2147483646},
	} {
		if got := NodeOfTask(tt.list, tt.task); got != tt.want {
			t.Errorf("%s, task %d: got node %d, want %d", tt.list, tt.task, got, tt.want)
		}
	}
}

// TestParseTasksPerNodeLimit checks that a list of the maximum number of nodes is accepted.
func TestParseTasksPerNodeLimit(t *testing.T) {
	for _, list := range []string{"1(x262144)", "1(x262143),2"} {
		if tasks, err := ParseTasksPerNode(list); err != nil || len(tasks) != maxHosts {
			t.Errorf("%s: got %d nodes, %v, want %d", list, len(tasks), err, maxHosts)
		}
	}
}

// FuzzParseTasksPerNode checks that any list is rejected or has valid counts.
func FuzzParseTasksPerNode(f *testing.F) {
	for _, s := range []string{"4", "3,2(x2)", "4(x2),3", "2(x99999999)", "2(x", "(x2)", ",", "1(x262144)"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		tasks, err := ParseTasksPerNode(s)
		if (err == nil) == (len(tasks) == 0) || len(tasks) > maxHosts {
			t.Fatalf("ParseTasksPerNode(%q): %d nodes, %v", s, len(tasks), err)
		}
		for _, n := range tasks {
			if n < 0 || n > maxCount {
				t.Fatalf("ParseTasksPerNode(%q) holds %d", s, n)
			}
		}
		if again, err := ParseTasksPerNode(FoldTasksPerNode(tasks)); err == nil && !slices.Equal(again, tasks) {
			t.Fatalf("%q folds to %q", s, FoldTasksPerNode(tasks))
		}
	})
}

// stepEnv returns the variables of Slurm 22.05.8 for task 4 of `srun -n7`, in a job of 3
// nodes with --ntasks-per-node=3. The variables of the job have 3 tasks per node.
func stepEnv() map[string]string {
	return map[string]string{
		"SLURM_JOB_ID":              "42",
		"SLURM_JOB_NODELIST":        "n[1-3]",
		"SLURM_JOB_NUM_NODES":       "3",
		"SLURM_NTASKS":              "7",
		"SLURM_NTASKS_PER_NODE":     "3",
		"SLURM_TASKS_PER_NODE":      "3,2(x2)",
		"SLURM_STEP_ID":             "0",
		"SLURM_STEP_NODELIST":       "n[1-3]",
		"SLURM_STEP_NUM_NODES":      "3",
		"SLURM_STEP_NUM_TASKS":      "7",
		"SLURM_STEP_TASKS_PER_NODE": "3,2(x2)",
		"SLURM_PROCID":              "4",
		"SLURM_LOCALID":             "1",
		"SLURM_GTIDS":               "3,4",
		"SLURM_NODEID":              "1",
		"SLURMD_NODENAME":           "n2",
	}
}

// with returns a copy of env with changes. An empty value removes a variable.
func with(env map[string]string, changes map[string]string) map[string]string {
	env = maps.Clone(env)
	for name, value := range changes {
		env[name] = value
		if value == "" {
			delete(env, name)
		}
	}
	return env
}

func lookup(env map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		value, ok := env[name]
		return value, ok
	}
}

// TestTaskFromEnv checks ranks and hosts in the environment of a task.
func TestTaskFromEnv(t *testing.T) {
	hosts := []string{"n1", "n2", "n3"}
	tests := []struct {
		name    string
		changes map[string]string
		want    Task
	}{
		{name: "full step", want: Task{
			JobID: "42", StepID: "0", Rank: 4, WorldSize: 7, LocalRank: 1, LocalWorldSize: 2, NodeRank: 1,
			Hosts: hosts, TasksPerNode: []int{3, 2, 2}, Host: "n2",
		}},
		{name: "requeued twice", changes: map[string]string{"SLURM_RESTART_COUNT": "2"}, want: Task{
			JobID: "42", StepID: "0", RestartCount: 2, Rank: 4, WorldSize: 7, LocalRank: 1, LocalWorldSize: 2, NodeRank: 1,
			Hosts: hosts, TasksPerNode: []int{3, 2, 2}, Host: "n2",
		}},
		{name: "no ranks of the node", changes: map[string]string{"SLURM_GTIDS": ""}, want: Task{
			JobID: "42", StepID: "0", Rank: 4, WorldSize: 7, LocalRank: 1, LocalWorldSize: 2, NodeRank: 1,
			Hosts: hosts, TasksPerNode: []int{3, 2, 2}, Host: "n2",
		}},
		{name: "one of three nodes", changes: map[string]string{
			"SLURM_GTIDS":   "0,1",
			"SLURM_STEP_ID": "5", "SLURM_STEP_NODELIST": "n3", "SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_TASKS_PER_NODE": "2",
			"SLURM_PROCID": "1", "SLURM_LOCALID": "1", "SLURM_NODEID": "0", "SLURMD_NODENAME": "n3",
		}, want: Task{
			JobID: "42", StepID: "5", Rank: 1, WorldSize: 2, LocalRank: 1, LocalWorldSize: 2, NodeRank: 0,
			Hosts: []string{"n3"}, TasksPerNode: []int{2}, Host: "n3",
		}},
		{name: "cyclic distribution", changes: map[string]string{
			"SLURM_GTIDS":  "0,3,6",
			"SLURM_PROCID": "3", "SLURM_LOCALID": "1", "SLURM_NODEID": "0", "SLURMD_NODENAME": "n1",
		}, want: Task{
			JobID: "42", StepID: "0", Rank: 3, WorldSize: 7, LocalRank: 1, LocalWorldSize: 3, NodeRank: 0,
			Hosts: hosts, TasksPerNode: []int{3, 2, 2}, Host: "n1",
		}},
		{name: "arbitrary distribution", changes: map[string]string{
			"SLURM_GTIDS":  "0,1",
			"SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NODEID": "1",
		}, want: Task{
			JobID: "42", StepID: "0", Rank: 0, WorldSize: 7, LocalRank: 0, LocalWorldSize: 2, NodeRank: 1,
			Hosts: hosts, TasksPerNode: []int{3, 2, 2}, Host: "n2",
		}},
		{name: "no nodes of the job", changes: map[string]string{"SLURM_JOB_NODELIST": ""}, want: Task{
			JobID: "42", StepID: "0", Rank: 4, WorldSize: 7, LocalRank: 1, LocalWorldSize: 2, NodeRank: 1,
			Hosts: hosts, TasksPerNode: []int{3, 2, 2}, Host: "n2",
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := TaskFromEnv(lookup(with(stepEnv(), tt.changes)))
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got  %+v\nwant %+v", got, tt.want)
			}
		})
	}
}

// TestTaskFromEnvRejectsConflicts checks that errors name the variables that contradict each
// other, and that hints explain variables from another job.
func TestTaskFromEnvRejectsConflicts(t *testing.T) {
	tests := []struct {
		name    string
		changes map[string]string
		want    string // part of the error
		leaked  bool   // whether the hint explains leaked variables
	}{
		{name: "rank beyond the step", changes: map[string]string{"SLURM_PROCID": "7"},
			want: "SLURM_PROCID is 7, but SLURM_STEP_NUM_TASKS is 7", leaked: true},
		{name: "node beyond the list", changes: map[string]string{"SLURM_NODEID": "3"},
			want: "SLURM_NODEID is 3, but SLURM_STEP_NODELIST has 3 nodes", leaked: true},
		{name: "local rank beyond the node", changes: map[string]string{"SLURM_LOCALID": "2"},
			want: "SLURM_LOCALID is 2, but SLURM_STEP_TASKS_PER_NODE has 2 tasks on node 1", leaked: true},
		{name: "layout of a different size", changes: map[string]string{"SLURM_STEP_TASKS_PER_NODE": "3(x3)"},
			want: "has 9 tasks, but SLURM_STEP_NUM_TASKS is 7", leaked: true},
		{name: "layout of different nodes", changes: map[string]string{"SLURM_STEP_TASKS_PER_NODE": "4,3"},
			want: "SLURM_STEP_TASKS_PER_NODE has 2 nodes, but SLURM_STEP_NODELIST has 3", leaked: true},
		{name: "different node", changes: map[string]string{"SLURMD_NODENAME": "n9"},
			want: `SLURMD_NODENAME is "n9", but node 1 of SLURM_STEP_NODELIST is "n2"`, leaked: true},
		{name: "step of a different job", changes: map[string]string{"SLURM_JOB_NODELIST": "n[1-2]"},
			want: `SLURM_STEP_NODELIST contains "n3", but SLURM_JOB_NODELIST does not`, leaked: true},
		{name: "leaked from the same node", changes: map[string]string{"SLURM_GTIDS": "0"},
			want: "SLURM_GTIDS lists 1 ranks on this node, but SLURM_STEP_TASKS_PER_NODE has 2 tasks on it", leaked: true},
		{name: "different rank", changes: map[string]string{"SLURM_GTIDS": "3,5"}, want: "SLURM_GTIDS has rank 5 at index 1, but SLURM_PROCID is 4", leaked: true},
		{name: "invalid ranks", changes: map[string]string{"SLURM_GTIDS": "3,x"}, want: `SLURM_GTIDS: "x" is not a number`},
		{name: "no node", changes: map[string]string{"SLURMD_NODENAME": ""}, want: "SLURMD_NODENAME is not set"},
		{name: "no rank", changes: map[string]string{"SLURM_PROCID": ""}, want: "SLURM_PROCID is not set"},
		{name: "invalid rank", changes: map[string]string{"SLURM_PROCID": "-1"}, want: `SLURM_PROCID: "-1" is not a number`},
		{name: "path as job", changes: map[string]string{"SLURM_JOB_ID": "../1"}, want: `SLURM_JOB_ID: "../1" is not a number`},
		{name: "invalid node list", changes: map[string]string{"SLURM_STEP_NODELIST": "n[1-"}, want: "SLURM_STEP_NODELIST: "},
		{name: "empty node list", changes: map[string]string{"SLURM_STEP_NODELIST": ","}, want: `","`},
		{name: "invalid node list of the job", changes: map[string]string{"SLURM_JOB_NODELIST": "n["}, want: "SLURM_JOB_NODELIST: "},
		{name: "invalid layout", changes: map[string]string{"SLURM_STEP_TASKS_PER_NODE": "3,x"}, want: "SLURM_STEP_TASKS_PER_NODE"},
		{name: "invalid restart count", changes: map[string]string{"SLURM_RESTART_COUNT": "once"}, want: "SLURM_RESTART_COUNT"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			task, err := TaskFromEnv(lookup(with(stepEnv(), tt.changes)))
			if err == nil {
				t.Fatalf("got %+v, want an error", task)
			}
			if !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got error %q, want %q in it", err, tt.want)
			}
			if got := hints.Of(err); strings.Contains(got, "leaked") != tt.leaked {
				t.Errorf("got hint %q, want leaked %v", got, tt.leaked)
			}
		})
	}
}

// TestTaskFromEnvWithoutSrun checks the batch script of a job with 3 nodes, where Slurm sets
// PROCID=0 and NTASKS=9.
func TestTaskFromEnvWithoutSrun(t *testing.T) {
	batch := map[string]string{
		"SLURM_JOB_ID": "42", "SLURM_JOB_NODELIST": "n[1-3]", "SLURM_NTASKS": "9", "SLURM_TASKS_PER_NODE": "3(x3)",
		"SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NODEID": "0", "SLURMD_NODENAME": "n1",
	}
	tests := []struct {
		name      string
		env       map[string]string
		job       string
		err, hint string // parts of the texts
	}{
		{name: "batch script", env: batch, job: "42", err: "without srun", hint: "srun ddpbatch run"},
		{name: "no Slurm", err: "SLURM_STEP_NUM_TASKS is not set", hint: "ddpbatch launch"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := TaskFromEnv(lookup(tt.env))
			var none *NoStepError
			if !errors.As(err, &none) {
				t.Fatalf("got %v, want a *NoStepError", err)
			}
			if none.JobID != tt.job || !strings.Contains(err.Error(), tt.err) || !strings.Contains(none.Hint(), tt.hint) {
				t.Errorf("got job %q, %q, hint %q", none.JobID, err, none.Hint())
			}
		})
	}
}

// recorded describes the environments in testdata/environ, which are from Slurm 22.05.8:
// of a batch script (-batch), or of one rank of a step. The descriptions are the request of
// the script and the actual position of the process.
var recorded = map[string]string{
	"step-rank3":         "rank 3 of 4, local 1 of 2, node 1 of n1=2 n2=2",
	"uneven-rank5":       "rank 5 of 7, local 0 of 2, node 2 of n1=3 n2=2 n3=2",
	"cyclic-rank3":       "rank 3 of 7, local 1 of 3, node 0 of n1=3 n2=2 n3=2",
	"arbitrary-rank0":    "rank 0 of 4, local 0 of 1, node 1 of n1=2 n2=1 n3=1",
	"substep-rank1":      "rank 1 of 2, local 1 of 2, node 0 of n2=2",
	"array-step-rank3":   "rank 3 of 4, local 1 of 2, node 1 of n1=2 n2=2, array task 3 of 1000",
	"requeue-step-rank1": "rank 1 of 2, local 1 of 2, node 0 of n4=2, requeued",
	"leak-step-rank1":    "rank 1 of 2, local 1 of 2, node 0 of n3=2",

	"het-plain-rank1":    "rank 1 of 2, local 1 of 2, node 0 of n1=2",
	"het-group1-rank1":   "rank 1 of 2, local 0 of 1, node 1 of n2=1 n3=1",
	"het-all-rank0":      "rank 0 of 4, local 0 of 2, node 0 of n1=2 n2=1 n3=1",
	"het-all-rank2":      "rank 2 of 4, local 0 of 1, node 1 of n1=2 n2=1 n3=1",
	"het-reversed-rank0": "rank 0 of 5, local 0 of 2, node 0 of n3=2 n1=2 n2=1",
	"het-reversed-rank2": "rank 2 of 5, local 0 of 2, node 1 of n3=2 n1=2 n2=1",

	"batch":              "job 1000 on n[1-2]",
	"array-batch":        "job 1001 on n[1-2], array task 3 of 1000",
	"requeue-batch":      "job 1000 on n4, requeued",
	"leak-batch":         `job 1000 on n3; conflict: SLURMD_NODENAME is "n3", but node 0 of SLURM_STEP_NODELIST is "n4"`,
	"leak-same-node":     `job 1000 on n4; conflict: SLURM_GTIDS lists 1 ranks on this node, but SLURM_STEP_TASKS_PER_NODE has 2 tasks on it`,
	"het-batch":          "job 1000 on n[1-3], components 1000 on n1, 1001 on n[2-3]",
	"het-reversed-batch": "job 1000 on n[3,1-2], components 1000 on n3, 1001 on n[1-2]",
}

// TestRecordedEnvironments checks the tasks in environments that were recorded from real versions
// of Slurm.
func TestRecordedEnvironments(t *testing.T) {
	files, err := filepath.Glob("testdata/environ/*.env")
	if err != nil {
		t.Fatal(err)
	}
	found := make(map[string]bool)
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".env")
		found[name] = true
		t.Run(name, func(t *testing.T) {
			env := readEnviron(t, file)
			got := describeEnv(t, lookup(env))
			if want, ok := recorded[name]; !ok {
				t.Errorf("got %q, want an entry in recorded", got)
			} else if got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
		})
	}
	for name := range recorded {
		if !found[name] {
			t.Errorf("missing file %s.env", name)
		}
	}
}

// readEnviron returns the variables in a file.
func readEnviron(t *testing.T, file string) map[string]string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	env := make(map[string]string)
	for line := range strings.Lines(string(data)) {
		if name, value, ok := strings.Cut(strings.TrimRight(line, "\n"), "="); ok && !strings.HasPrefix(line, "#") {
			env[name] = value
		}
	}
	return env
}

// describeEnv describes the task or the allocation of an environment.
func describeEnv(t *testing.T, lookup func(string) (string, bool)) string {
	t.Helper()
	tail := func(array, task string, restarts int) string {
		s := ""
		if array != "" {
			s = fmt.Sprintf(", array task %s of %s", task, array)
		}
		if restarts > 0 {
			s += ", requeued"
		}
		return s
	}
	task, err := TaskFromEnv(lookup)
	a, inside, aerr := AllocationFromEnv(lookup)
	if aerr != nil || !inside || a.JobID == "" {
		t.Errorf("got allocation %+v, %v", a, aerr)
	}
	if err == nil {
		if a.StepTasks != task.WorldSize || a.JobID != task.JobID || task.Host != task.Hosts[task.NodeRank] {
			t.Errorf("got task %+v, which is not in allocation %+v", task, a)
		}
		var nodes []string
		for i, host := range task.Hosts {
			nodes = append(nodes, fmt.Sprintf("%s=%d", host, task.TasksPerNode[i]))
		}
		return fmt.Sprintf("rank %d of %d, local %d of %d, node %d of %s", task.Rank, task.WorldSize, task.LocalRank, task.LocalWorldSize,
			task.NodeRank, strings.Join(nodes, " ")) + tail(task.ArrayJobID, task.ArrayTask, task.RestartCount)
	}
	s := fmt.Sprintf("job %s on %s", a.JobID, FoldHosts(a.Nodes)) + tail(a.ArrayJobID, a.ArrayTask, a.RestartCount)
	for i, c := range a.Components {
		s += fmt.Sprintf(", %s%s on %s", map[bool]string{true: "components "}[i == 0], c.JobID, FoldHosts(c.Nodes))
	}
	if a.StepTasks != 0 {
		s += fmt.Sprintf(", %d tasks", a.StepTasks)
	}
	var none *NoStepError
	if !errors.As(err, &none) {
		var conflict conflictError
		if !errors.As(err, &conflict) {
			t.Fatal(err)
		}
		s += "; conflict: " + conflict.facts
	}
	return s
}

// FuzzTaskFromEnv checks that the fields of a task agree for any values of the variables.
func FuzzTaskFromEnv(f *testing.F) {
	f.Add("n[1-3]", "n[1-3]", "3,2(x2)", "4", "1", "1", "n2", "2", "n1", "n[2-3]")
	f.Add("n1", "n[1-2]", "1(x2)", "0", "0", "0", "n1", "", "", "")
	f.Fuzz(func(t *testing.T, job, list, layout, rank, local, node, name, size, first, second string) {
		env := with(stepEnv(), map[string]string{
			"SLURM_JOB_NODELIST": job, "SLURM_STEP_NODELIST": list, "SLURM_STEP_TASKS_PER_NODE": layout, "SLURM_PROCID": rank,
			"SLURM_LOCALID": local, "SLURM_NODEID": node, "SLURMD_NODENAME": name, "SLURM_HET_SIZE": size, "SLURM_JOB_ID_HET_GROUP_0": "42",
			"SLURM_JOB_ID_HET_GROUP_1": "43", "SLURM_JOB_NODELIST_HET_GROUP_0": first, "SLURM_JOB_NODELIST_HET_GROUP_1": second,
		})
		task, err := TaskFromEnv(lookup(env))
		if err == nil && (task.Host != name || task.LocalRank >= task.LocalWorldSize || task.Rank >= task.WorldSize || len(task.Hosts) != len(task.TasksPerNode)) {
			t.Fatalf("%+v", task)
		}
	})
}
