package slurm

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
)

var hetComponents = []Component{{JobID: "42", Nodes: []string{"n1"}}, {JobID: "43", Nodes: []string{"n2", "n3"}}}

// hetEnv returns the variables of a batch script for hetComponents. The plain node list
// contains the first component only.
func hetEnv() map[string]string {
	return map[string]string{
		"SLURM_JOB_ID": "42", "SLURM_JOB_NODELIST": "n1", "SLURM_HET_SIZE": "2",
		"SLURM_JOB_ID_HET_GROUP_0": "42", "SLURM_JOB_NODELIST_HET_GROUP_0": "n1",
		"SLURM_JOB_ID_HET_GROUP_1": "43", "SLURM_JOB_NODELIST_HET_GROUP_1": "n[2-3]",
	}
}

// TestTaskOfHeterogeneousJob checks the nodes of a heterogeneous job. In some versions, the plain
// node list has only the first component, also in a step. All components together then have the
// nodes of the job.
func TestTaskOfHeterogeneousJob(t *testing.T) {
	env := with(stepEnv(), hetEnv())
	if task, err := TaskFromEnv(lookup(env)); err != nil || task.Host != "n2" || task.WorldSize != 7 {
		t.Errorf("got %+v, %v", task, err)
	}
	_, err := TaskFromEnv(lookup(with(env, map[string]string{"SLURM_JOB_NODELIST_HET_GROUP_1": "n[2,4]"})))
	if want := `SLURM_STEP_NODELIST contains "n3", but none of the 2 components of SLURM_HET_SIZE does`; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
}

// TestOrderByComponents checks that hosts and task counts are in the order of the components of a
// heterogeneous job, if each node is in exactly one component.
func TestOrderByComponents(t *testing.T) {
	tests := []struct {
		name       string
		components [][]string // nodes
		hosts      []string
		tasks      []int
		wantHosts  string
		wantTasks  string
	}{
		{name: "sorted", components: [][]string{{"n3"}, {"n1", "n2"}}, hosts: []string{"n1", "n2", "n3"}, tasks: []int{2, 1, 4}, wantHosts: "[n3 n1 n2]", wantTasks: "[4 2 1]"},
		{name: "in order", components: [][]string{{"n1"}, {"n2", "n3"}}, hosts: []string{"n1", "n2", "n3"}, tasks: []int{2, 1, 4}, wantHosts: "[n1 n2 n3]", wantTasks: "[2 1 4]"},
		{name: "one component", components: [][]string{{"n3"}, {"n1", "n2"}}, hosts: []string{"n1", "n2"}, tasks: []int{2, 1}, wantHosts: "[n1 n2]", wantTasks: "[2 1]"},
		{name: "node of no component", components: [][]string{{"n3"}, {"n1"}}, hosts: []string{"n1", "n2", "n3"}, tasks: []int{2, 1, 4}, wantHosts: "[n1 n2 n3]", wantTasks: "[2 1 4]"},
		{name: "shared node", components: [][]string{{"n2", "n1"}, {"n1"}}, hosts: []string{"n1", "n2", "n1"}, tasks: []int{2, 1, 4}, wantHosts: "[n1 n2 n1]", wantTasks: "[2 1 4]"},
		{name: "different layout", components: [][]string{{"n3"}, {"n1"}}, hosts: []string{"n1", "n3"}, tasks: []int{2}, wantHosts: "[n1 n3]", wantTasks: "[2]"},
	}
	for _, tt := range tests {
		var components []Component
		for _, nodes := range tt.components {
			components = append(components, Component{Nodes: nodes})
		}
		orderByComponents(components, tt.hosts, tt.tasks)
		if fmt.Sprint(tt.hosts) != tt.wantHosts || fmt.Sprint(tt.tasks) != tt.wantTasks {
			t.Errorf("%s: got %v %v, want %s %s", tt.name, tt.hosts, tt.tasks, tt.wantHosts, tt.wantTasks)
		}
	}
}

// TestAllocationFromEnv checks the allocation in the environment of batch scripts and steps, and
// the errors for inconsistent variables.
func TestAllocationFromEnv(t *testing.T) {
	batch := map[string]string{"SLURM_JOB_ID": "42", "SLURM_JOB_NODELIST": "n[3,1]", "SLURM_PROCID": "0"}
	tests := []struct {
		name   string
		env    map[string]string
		want   Allocation
		wantOK bool
		err    string
	}{
		{name: "no job"},
		{name: "batch script", env: batch, want: Allocation{JobID: "42", Nodes: []string{"n3", "n1"}}, wantOK: true},
		{name: "requeued", env: with(batch, map[string]string{"SLURM_RESTART_COUNT": "1"}),
			want: Allocation{JobID: "42", Nodes: []string{"n3", "n1"}, RestartCount: 1}, wantOK: true},
		{name: "inside a step", env: stepEnv(), want: Allocation{JobID: "42", Nodes: []string{"n1", "n2", "n3"}, StepTasks: 7}, wantOK: true},
		{name: "one component", env: with(batch, map[string]string{"SLURM_HET_SIZE": "1"}),
			want: Allocation{JobID: "42", Nodes: []string{"n3", "n1"}}, wantOK: true},
		{name: "heterogeneous", env: hetEnv(), want: Allocation{JobID: "42", Nodes: []string{"n1", "n2", "n3"}, Components: hetComponents}, wantOK: true},
		{name: "heterogeneous, old names", env: with(stepEnv(), map[string]string{
			"SLURM_PACK_SIZE": "2", "SLURM_JOB_ID_PACK_GROUP_0": "42", "SLURM_JOB_ID_PACK_GROUP_1": "43",
			"SLURM_JOB_NODELIST_PACK_GROUP_0": "n1", "SLURM_JOB_NODELIST_PACK_GROUP_1": "n[2-3]",
		}), want: Allocation{JobID: "42", Nodes: []string{"n1", "n2", "n3"}, Components: hetComponents, StepTasks: 7}, wantOK: true},
		{name: "heterogeneous, nodes of a different job", env: with(hetEnv(), map[string]string{"SLURM_JOB_NODELIST": "n[2-3]"}), wantOK: true,
			err: "SLURM_JOB_NODELIST is n[2-3], but the first of the 2 components of SLURM_HET_SIZE has n1"},
		{name: "step of a different job", env: with(with(stepEnv(), hetEnv()), map[string]string{"SLURM_JOB_NODELIST": "n[1-4]"}), wantOK: true,
			err: `SLURM_JOB_NODELIST contains "n4", but none of the 2 components of SLURM_HET_SIZE does`},
		{name: "heterogeneous, missing component", env: with(hetEnv(), map[string]string{"SLURM_JOB_NODELIST_HET_GROUP_1": ""}), wantOK: true,
			err: "SLURM_JOB_NODELIST_HET_GROUP_1 is not set"},
		{name: "too many components", env: with(hetEnv(), map[string]string{"SLURM_HET_SIZE": "100000000"}), wantOK: true,
			err: "SLURM_HET_SIZE is 100000000, but a job has at most 128 components"},
		{name: "array task", env: with(batch, map[string]string{"SLURM_ARRAY_JOB_ID": "40", "SLURM_ARRAY_TASK_ID": "3"}),
			want: Allocation{JobID: "42", Nodes: []string{"n3", "n1"}, ArrayJobID: "40", ArrayTask: "3"}, wantOK: true},
		{name: "no job array", env: with(batch, map[string]string{"SLURM_ARRAY_TASK_ID": "3"}), wantOK: true,
			err: "SLURM_ARRAY_TASK_ID is set, but SLURM_ARRAY_JOB_ID is not"},
		{name: "leaked step", env: with(batch, map[string]string{"SLURMD_NODENAME": "n3", "SLURM_STEP_NODELIST": "n[4-5]", "SLURM_STEP_NUM_TASKS": "9", "SLURM_STEP_TASKS_PER_NODE": "5,4"}),
			want: Allocation{JobID: "42", Nodes: []string{"n3", "n1"}}, wantOK: true},
		{name: "leaked step on the same node", env: with(batch, map[string]string{"SLURMD_NODENAME": "n3", "SLURM_STEP_NODELIST": "n3", "SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_TASKS_PER_NODE": "2", "SLURM_GTIDS": "0"}),
			want: Allocation{JobID: "42", Nodes: []string{"n3", "n1"}}, wantOK: true},
		{name: "step with more nodes than task counts", env: with(batch, map[string]string{"SLURMD_NODENAME": "n1", "SLURM_STEP_NODELIST": "n3,n1", "SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_TASKS_PER_NODE": "2", "SLURM_GTIDS": "0"}),
			want: Allocation{JobID: "42", Nodes: []string{"n3", "n1"}, StepTasks: 2}, wantOK: true},
		{name: "step without ranks of the node", env: with(batch, map[string]string{"SLURMD_NODENAME": "n3", "SLURM_STEP_NODELIST": "n3,n1", "SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_TASKS_PER_NODE": "1(x2)"}),
			want: Allocation{JobID: "42", Nodes: []string{"n3", "n1"}, StepTasks: 2}, wantOK: true},
		{name: "step with an invalid layout", env: with(batch, map[string]string{"SLURMD_NODENAME": "n9", "SLURM_STEP_NODELIST": "n3", "SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_TASKS_PER_NODE": "x"}),
			want: Allocation{JobID: "42", Nodes: []string{"n3", "n1"}, StepTasks: 2}, wantOK: true},
		{name: "no array task", env: with(batch, map[string]string{"SLURM_ARRAY_JOB_ID": "40"}), wantOK: true,
			err: "SLURM_ARRAY_JOB_ID is set, but SLURM_ARRAY_TASK_ID is not"},
		{name: "too many components by one", env: with(hetEnv(), map[string]string{"SLURM_HET_SIZE": "129"}), wantOK: true, err: "at most 128 components"},
		{name: "no nodes", env: with(batch, map[string]string{"SLURM_JOB_NODELIST": ""}), wantOK: true, err: "SLURM_JOB_NODELIST is not set"},
		{name: "invalid ID", env: with(batch, map[string]string{"SLURM_JOB_ID": "42; rm"}), wantOK: true, err: `"42; rm" is not a number`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, ok, err := AllocationFromEnv(lookup(tt.env))
			if ok != tt.wantOK || !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got %+v, %v; want %+v, %v", got, ok, tt.want, tt.wantOK)
			}
			if (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Errorf("got error %v, want %q", err, tt.err)
			}
		})
	}
}
