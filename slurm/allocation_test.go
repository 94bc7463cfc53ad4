package slurm

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
)

var hetComponents = []Component{{JobID: "42", Nodes: []string{"n1"}}, {JobID: "43", Nodes: []string{"n2", "n3"}}}

// hetEnv returns the variables of a batch script for hetComponents. The plain node list is
// that of the first component.
func hetEnv() map[string]string {
	return map[string]string{
		"SLURM_JOB_ID": "42", "SLURM_JOB_NODELIST": "n1", "SLURM_HET_SIZE": "2",
		"SLURM_JOB_ID_HET_GROUP_0": "42", "SLURM_JOB_NODELIST_HET_GROUP_0": "n1",
		"SLURM_JOB_ID_HET_GROUP_1": "43", "SLURM_JOB_NODELIST_HET_GROUP_1": "n[2-3]",
	}
}

// In some versions, the plain node list has only the first component, also in a step. The
// nodes of the job are then those of all components.
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

func TestOrderByComponents(t *testing.T) {
	tests := []struct {
		name       string
		components [][]string // nodes
		hosts      []string
		tasks      []int
		wantHosts  string
		wantTasks  string
	}{
		{"sorted", [][]string{{"n3"}, {"n1", "n2"}}, []string{"n1", "n2", "n3"}, []int{2, 1, 4}, "[n3 n1 n2]", "[4 2 1]"},
		{"in order", [][]string{{"n1"}, {"n2", "n3"}}, []string{"n1", "n2", "n3"}, []int{2, 1, 4}, "[n1 n2 n3]", "[2 1 4]"},
		{"one component", [][]string{{"n3"}, {"n1", "n2"}}, []string{"n1", "n2"}, []int{2, 1}, "[n1 n2]", "[2 1]"},
		{"node of no component", [][]string{{"n3"}, {"n1"}}, []string{"n1", "n2", "n3"}, []int{2, 1, 4}, "[n1 n2 n3]", "[2 1 4]"},
		{"shared node", [][]string{{"n2", "n1"}, {"n1"}}, []string{"n1", "n2", "n1"}, []int{2, 1, 4}, "[n1 n2 n1]", "[2 1 4]"},
		{"different layout", [][]string{{"n3"}, {"n1"}}, []string{"n1", "n3"}, []int{2}, "[n1 n3]", "[2]"},
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
		{"batch script", batch, Allocation{JobID: "42", Nodes: []string{"n3", "n1"}}, true, ""},
		{"requeued", with(batch, map[string]string{"SLURM_RESTART_COUNT": "1"}),
			Allocation{JobID: "42", Nodes: []string{"n3", "n1"}, RestartCount: 1}, true, ""},
		{"inside a step", stepEnv(), Allocation{JobID: "42", Nodes: []string{"n1", "n2", "n3"}, StepTasks: 7}, true, ""},
		{"one component", with(batch, map[string]string{"SLURM_HET_SIZE": "1"}),
			Allocation{JobID: "42", Nodes: []string{"n3", "n1"}}, true, ""},
		{"heterogeneous", hetEnv(), Allocation{JobID: "42", Nodes: []string{"n1", "n2", "n3"}, Components: hetComponents}, true, ""},
		{"heterogeneous, old names", with(stepEnv(), map[string]string{
			"SLURM_PACK_SIZE": "2", "SLURM_JOB_ID_PACK_GROUP_0": "42", "SLURM_JOB_ID_PACK_GROUP_1": "43",
			"SLURM_JOB_NODELIST_PACK_GROUP_0": "n1", "SLURM_JOB_NODELIST_PACK_GROUP_1": "n[2-3]",
		}), Allocation{JobID: "42", Nodes: []string{"n1", "n2", "n3"}, Components: hetComponents, StepTasks: 7}, true, ""},
		{"heterogeneous, nodes of a different job", with(hetEnv(), map[string]string{"SLURM_JOB_NODELIST": "n[2-3]"}), Allocation{}, true,
			"SLURM_JOB_NODELIST is n[2-3], but the first of the 2 components of SLURM_HET_SIZE has n1"},
		{"step of a different job", with(with(stepEnv(), hetEnv()), map[string]string{"SLURM_JOB_NODELIST": "n[1-4]"}), Allocation{}, true,
			`SLURM_JOB_NODELIST contains "n4", but none of the 2 components of SLURM_HET_SIZE does`},
		{"heterogeneous, missing component", with(hetEnv(), map[string]string{"SLURM_JOB_NODELIST_HET_GROUP_1": ""}), Allocation{}, true,
			"SLURM_JOB_NODELIST_HET_GROUP_1 is not set"},
		{"too many components", with(hetEnv(), map[string]string{"SLURM_HET_SIZE": "100000000"}), Allocation{}, true,
			"SLURM_HET_SIZE is 100000000, but a job has at most 128 components"},
		{"array task", with(batch, map[string]string{"SLURM_ARRAY_JOB_ID": "40", "SLURM_ARRAY_TASK_ID": "3"}),
			Allocation{JobID: "42", Nodes: []string{"n3", "n1"}, ArrayJobID: "40", ArrayTask: "3"}, true, ""},
		{"no job array", with(batch, map[string]string{"SLURM_ARRAY_TASK_ID": "3"}), Allocation{}, true,
			"SLURM_ARRAY_TASK_ID is set, but SLURM_ARRAY_JOB_ID is not"},
		{"leaked step", with(batch, map[string]string{"SLURMD_NODENAME": "n3", "SLURM_STEP_NODELIST": "n[4-5]", "SLURM_STEP_NUM_TASKS": "9", "SLURM_STEP_TASKS_PER_NODE": "5,4"}),
			Allocation{JobID: "42", Nodes: []string{"n3", "n1"}}, true, ""},
		{"no nodes", with(batch, map[string]string{"SLURM_JOB_NODELIST": ""}), Allocation{}, true, "SLURM_JOB_NODELIST is not set"},
		{"invalid ID", with(batch, map[string]string{"SLURM_JOB_ID": "42; rm"}), Allocation{}, true, `"42; rm" is not a number`},
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
