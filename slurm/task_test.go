package slurm

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"strings"
	"testing"
)

func TestParseLayout(t *testing.T) {
	tests := []struct{ in, want string }{
		{"4", "[4]"},
		{"3,2(x2)", "[3 2 2]"},
		{"4(x2),3", "[4 4 3]"},
		{"1,2,1(x3),3,2", "[1 2 1 1 1 3 2]"},
		{"", `"": a number is missing`},
		{"3,", `"": a number is missing`},
		{"a", `"a": "a" is not a number`},
		{"-1", `"-1": "-1" is not a number`},
		{"2(x", `"2(x": a number is missing`},
		{"2(x3", `"2(x3": not of the form "2(x3)"`},
		{"2(x3)4", `"2(x3)4": "3)4" is not a number`},
		{"2(x0)", `"2(x0)": not of the form`},
		{"2(3)", `"2(3)" is not a number`},
		{"2(x99999999)", "more than 262144 nodes"},
		{"1(x262144),1", "more than 262144 nodes"},
		{"99999999999", "too large"},
		{"99999999999999999999999", "too large"},
	}
	for _, tt := range tests {
		got, err := ParseLayout(tt.in)
		if err != nil {
			if !strings.Contains(err.Error(), tt.want) {
				t.Errorf("ParseLayout(%q): %v, want %s", tt.in, err, tt.want)
			}
		} else if fmt.Sprint(got) != tt.want {
			t.Errorf("ParseLayout(%q) = %v, want %s", tt.in, got, tt.want)
		}
	}
}

func FuzzParseLayout(f *testing.F) {
	for _, s := range []string{"4", "3,2(x2)", "4(x2),3", "2(x99999999)", "2(x", "(x2)", ",", "1(x262144)"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		tasks, err := ParseLayout(s)
		if (err == nil) == (len(tasks) == 0) || len(tasks) > maxHosts {
			t.Fatalf("ParseLayout(%q): %d nodes, %v", s, len(tasks), err)
		}
		for _, n := range tasks {
			if n < 0 || n > maxSmallNumber {
				t.Fatalf("ParseLayout(%q) holds %d", s, n)
			}
		}
	})
}

// step is what Slurm 22.05.8 sets for task 4 of `srun -n7` in a job of 3 nodes
// with --ntasks-per-node=3: the job's variables keep saying three tasks a node.
func step() map[string]string {
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

// with returns a copy of env with changes; an empty value removes a variable.
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

func TestTaskFromEnv(t *testing.T) {
	hosts := []string{"n1", "n2", "n3"}
	tests := []struct {
		name    string
		changes map[string]string
		want    Task
	}{
		{"a full step", nil, Task{
			JobID: "42", StepID: "0", Rank: 4, WorldSize: 7, LocalRank: 1, LocalWorldSize: 2, NodeRank: 1,
			Hosts: hosts, TasksPerNode: []int{3, 2, 2}, Host: "n2",
		}},
		{"requeued twice", map[string]string{"SLURM_RESTART_COUNT": "2"}, Task{
			JobID: "42", StepID: "0", RestartCount: 2, Rank: 4, WorldSize: 7, LocalRank: 1, LocalWorldSize: 2, NodeRank: 1,
			Hosts: hosts, TasksPerNode: []int{3, 2, 2}, Host: "n2",
		}},
		{"without the ranks of the node", map[string]string{"SLURM_GTIDS": ""}, Task{
			JobID: "42", StepID: "0", Rank: 4, WorldSize: 7, LocalRank: 1, LocalWorldSize: 2, NodeRank: 1,
			Hosts: hosts, TasksPerNode: []int{3, 2, 2}, Host: "n2",
		}},
		{"one node of three", map[string]string{
			"SLURM_GTIDS":   "0,1",
			"SLURM_STEP_ID": "5", "SLURM_STEP_NODELIST": "n3", "SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_TASKS_PER_NODE": "2",
			"SLURM_PROCID": "1", "SLURM_LOCALID": "1", "SLURM_NODEID": "0", "SLURMD_NODENAME": "n3",
		}, Task{
			JobID: "42", StepID: "5", Rank: 1, WorldSize: 2, LocalRank: 1, LocalWorldSize: 2, NodeRank: 0,
			Hosts: []string{"n3"}, TasksPerNode: []int{2}, Host: "n3",
		}},
		{"cyclic: rank 3 beside rank 0", map[string]string{
			"SLURM_GTIDS":  "0,3,6",
			"SLURM_PROCID": "3", "SLURM_LOCALID": "1", "SLURM_NODEID": "0", "SLURMD_NODENAME": "n1",
		}, Task{
			JobID: "42", StepID: "0", Rank: 3, WorldSize: 7, LocalRank: 1, LocalWorldSize: 3, NodeRank: 0,
			Hosts: hosts, TasksPerNode: []int{3, 2, 2}, Host: "n1",
		}},
		{"arbitrary: rank 0 on the second node", map[string]string{
			"SLURM_GTIDS":  "0,1",
			"SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NODEID": "1",
		}, Task{
			JobID: "42", StepID: "0", Rank: 0, WorldSize: 7, LocalRank: 0, LocalWorldSize: 2, NodeRank: 1,
			Hosts: hosts, TasksPerNode: []int{3, 2, 2}, Host: "n2",
		}},
		{"no list of the job's nodes", map[string]string{"SLURM_JOB_NODELIST": ""}, Task{
			JobID: "42", StepID: "0", Rank: 4, WorldSize: 7, LocalRank: 1, LocalWorldSize: 2, NodeRank: 1,
			Hosts: hosts, TasksPerNode: []int{3, 2, 2}, Host: "n2",
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := TaskFromEnv(lookup(with(step(), tt.changes)))
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got  %+v\nwant %+v", got, tt.want)
			}
		})
	}
}

func TestTaskFromEnvRefuses(t *testing.T) {
	tests := []struct {
		name     string
		changes  map[string]string
		want     string
		wantHint string
	}{
		{"rank beyond the step", map[string]string{"SLURM_PROCID": "7"},
			"SLURM_PROCID is 7, but SLURM_STEP_NUM_TASKS is 7", "leaked"},
		{"node beyond the list", map[string]string{"SLURM_NODEID": "3"},
			"SLURM_NODEID is 3, but SLURM_STEP_NODELIST has 3 nodes", "leaked"},
		{"local rank beyond the node", map[string]string{"SLURM_LOCALID": "2"},
			"SLURM_LOCALID is 2, but SLURM_STEP_TASKS_PER_NODE has 2 tasks on node 1", "leaked"},
		{"layout of another size", map[string]string{"SLURM_STEP_TASKS_PER_NODE": "3(x3)"},
			"adds up to 9 tasks, but SLURM_STEP_NUM_TASKS is 7", "leaked"},
		{"layout of other nodes", map[string]string{"SLURM_STEP_TASKS_PER_NODE": "4,3"},
			"SLURM_STEP_TASKS_PER_NODE has 2 nodes, but SLURM_STEP_NODELIST has 3", "leaked"},
		{"on another node", map[string]string{"SLURMD_NODENAME": "n9"},
			`SLURMD_NODENAME is "n9", but node 1 of SLURM_STEP_NODELIST is "n2"`, "leaked"},
		{"step of another job", map[string]string{"SLURM_JOB_NODELIST": "n[1-2]"},
			`SLURM_STEP_NODELIST holds "n3", but SLURM_JOB_NODELIST does not`, "leaked"},
		{"leaked on the same node", map[string]string{"SLURM_GTIDS": "0"},
			"SLURM_GTIDS lists 1 ranks on this node, but SLURM_STEP_TASKS_PER_NODE has 2 tasks on it", "leaked"},
		{"another rank here", map[string]string{"SLURM_GTIDS": "3,5"}, "SLURM_GTIDS has rank 5 at place 1, but SLURM_PROCID is 4", "leaked"},
		{"ranks that are no numbers", map[string]string{"SLURM_GTIDS": "3,x"}, `SLURM_GTIDS: "x" is not a number`, ""},
		{"no node name", map[string]string{"SLURMD_NODENAME": ""}, "SLURMD_NODENAME is not set", ""},
		{"no rank", map[string]string{"SLURM_PROCID": ""}, "SLURM_PROCID is not set", ""},
		{"rank is no number", map[string]string{"SLURM_PROCID": "-1"}, `SLURM_PROCID: "-1" is not a number`, ""},
		{"job is a path", map[string]string{"SLURM_JOB_ID": "../1"}, `SLURM_JOB_ID: "../1" is not a number`, ""},
		{"bad host list", map[string]string{"SLURM_STEP_NODELIST": "n[1-"}, "SLURM_STEP_NODELIST: host list", ""},
		{"empty host list", map[string]string{"SLURM_STEP_NODELIST": ","}, `"," holds no host`, ""},
		{"bad job host list", map[string]string{"SLURM_JOB_NODELIST": "n["}, "SLURM_JOB_NODELIST: host list", ""},
		{"bad layout", map[string]string{"SLURM_STEP_TASKS_PER_NODE": "3,x"}, "SLURM_STEP_TASKS_PER_NODE", ""},
		{"bad restart count", map[string]string{"SLURM_RESTART_COUNT": "once"}, "SLURM_RESTART_COUNT", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			task, err := TaskFromEnv(lookup(with(step(), tt.changes)))
			if err == nil {
				t.Fatalf("got %+v, want an error", task)
			}
			if !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%q, want %q in it", err, tt.want)
			}
			if hint := hintOf(err); !strings.Contains(hint, tt.wantHint) || (hint == "") != (tt.wantHint == "") {
				t.Errorf("hint %q, want %q in it", hint, tt.wantHint)
			}
		})
	}
}

// The batch script of a job of 3 nodes says PROCID=0 and NTASKS=9.
func TestTaskFromEnvWithoutSrun(t *testing.T) {
	batch := map[string]string{
		"SLURM_JOB_ID": "42", "SLURM_JOB_NODELIST": "n[1-3]", "SLURM_NTASKS": "9", "SLURM_TASKS_PER_NODE": "3(x3)",
		"SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NODEID": "0", "SLURMD_NODENAME": "n1",
	}
	tests := []struct {
		name           string
		env            map[string]string
		job, err, hint string
	}{
		{"batch script", batch, "42", "job 42 has started this process without srun", "srun ddpbatch run"},
		{"no Slurm", nil, "", "SLURM_STEP_NUM_TASKS is not set", "ddpbatch launch"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := TaskFromEnv(lookup(tt.env))
			var none *NoStepError
			if !errors.As(err, &none) {
				t.Fatalf("got %v, want a *NoStepError", err)
			}
			if none.JobID != tt.job || !strings.Contains(err.Error(), tt.err) || !strings.Contains(none.Hint(), tt.hint) {
				t.Errorf("job %q, %q, hint %q", none.JobID, err, none.Hint())
			}
		})
	}
}

func hintOf(err error) string {
	var hinter interface{ Hint() string }
	if errors.As(err, &hinter) {
		return hinter.Hint()
	}
	return ""
}

var hetParts = []Component{{JobID: "42", Nodes: []string{"n1"}}, {JobID: "43", Nodes: []string{"n2", "n3"}}}

// het is a batch script's view of hetParts: the plain list is the first's.
func het() map[string]string {
	return map[string]string{
		"SLURM_JOB_ID": "42", "SLURM_JOB_NODELIST": "n1", "SLURM_HET_SIZE": "2",
		"SLURM_JOB_ID_HET_GROUP_0": "42", "SLURM_JOB_NODELIST_HET_GROUP_0": "n1",
		"SLURM_JOB_ID_HET_GROUP_1": "43", "SLURM_JOB_NODELIST_HET_GROUP_1": "n[2-3]",
	}
}

// Some versions leave the plain list at the first component inside a step, too;
// which nodes the job has is then told by the components.
func TestTaskOfHeterogeneousJob(t *testing.T) {
	env := with(step(), het())
	if task, err := TaskFromEnv(lookup(env)); err != nil || task.Host != "n2" || task.WorldSize != 7 {
		t.Errorf("%+v, %v", task, err)
	}
	_, err := TaskFromEnv(lookup(with(env, map[string]string{"SLURM_JOB_NODELIST_HET_GROUP_1": "n[2,4]"})))
	if want := `SLURM_STEP_NODELIST holds "n3", but none of the 2 components of SLURM_HET_SIZE does`; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
}

func TestOrderByComponents(t *testing.T) {
	tests := []struct {
		name         string
		parts        [][]string
		hosts        []string
		tasks        []int
		wantHosts    string
		wantPerHosts string
	}{
		{"sorted", [][]string{{"n3"}, {"n1", "n2"}}, []string{"n1", "n2", "n3"}, []int{2, 1, 4}, "[n3 n1 n2]", "[4 2 1]"},
		{"in order", [][]string{{"n1"}, {"n2", "n3"}}, []string{"n1", "n2", "n3"}, []int{2, 1, 4}, "[n1 n2 n3]", "[2 1 4]"},
		{"one component", [][]string{{"n3"}, {"n1", "n2"}}, []string{"n1", "n2"}, []int{2, 1}, "[n1 n2]", "[2 1]"},
		{"a foreign node", [][]string{{"n3"}, {"n1"}}, []string{"n1", "n2", "n3"}, []int{2, 1, 4}, "[n1 n2 n3]", "[2 1 4]"},
		{"a shared node", [][]string{{"n2", "n1"}, {"n1"}}, []string{"n1", "n2", "n1"}, []int{2, 1, 4}, "[n1 n2 n1]", "[2 1 4]"},
		{"another layout", [][]string{{"n3"}, {"n1"}}, []string{"n1", "n3"}, []int{2}, "[n1 n3]", "[2]"},
	}
	for _, tt := range tests {
		var parts []Component
		for _, nodes := range tt.parts {
			parts = append(parts, Component{Nodes: nodes})
		}
		orderByComponents(parts, tt.hosts, tt.tasks)
		if fmt.Sprint(tt.hosts) != tt.wantHosts || fmt.Sprint(tt.tasks) != tt.wantPerHosts {
			t.Errorf("%s: %v %v, want %s %s", tt.name, tt.hosts, tt.tasks, tt.wantHosts, tt.wantPerHosts)
		}
	}
}

// Whatever the variables hold, a task agrees with itself.
func FuzzTaskFromEnv(f *testing.F) {
	f.Add("n[1-3]", "n[1-3]", "3,2(x2)", "4", "1", "1", "n2", "2", "n1", "n[2-3]")
	f.Add("n1", "n[1-2]", "1(x2)", "0", "0", "0", "n1", "", "", "")
	f.Fuzz(func(t *testing.T, job, list, layout, rank, local, node, name, size, first, second string) {
		env := with(step(), map[string]string{
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
		{"inside a step", step(), Allocation{JobID: "42", Nodes: []string{"n1", "n2", "n3"}, StepTasks: 7}, true, ""},
		{"one component", with(batch, map[string]string{"SLURM_HET_SIZE": "1"}),
			Allocation{JobID: "42", Nodes: []string{"n3", "n1"}}, true, ""},
		{"heterogeneous", het(), Allocation{JobID: "42", Nodes: []string{"n1", "n2", "n3"}, Components: hetParts}, true, ""},
		{"heterogeneous, named as packs", with(step(), map[string]string{
			"SLURM_PACK_SIZE": "2", "SLURM_JOB_ID_PACK_GROUP_0": "42", "SLURM_JOB_ID_PACK_GROUP_1": "43",
			"SLURM_JOB_NODELIST_PACK_GROUP_0": "n1", "SLURM_JOB_NODELIST_PACK_GROUP_1": "n[2-3]",
		}), Allocation{JobID: "42", Nodes: []string{"n1", "n2", "n3"}, Components: hetParts, StepTasks: 7}, true, ""},
		{"heterogeneous, of another job", with(het(), map[string]string{"SLURM_JOB_NODELIST": "n[2-3]"}), Allocation{}, true,
			"SLURM_JOB_NODELIST is n[2-3], but the first of the 2 components of SLURM_HET_SIZE has n1"},
		{"a step of another job", with(with(step(), het()), map[string]string{"SLURM_JOB_NODELIST": "n[1-4]"}), Allocation{}, true,
			`SLURM_JOB_NODELIST holds "n4", but none of the 2 components of SLURM_HET_SIZE does`},
		{"heterogeneous, a component missing", with(het(), map[string]string{"SLURM_JOB_NODELIST_HET_GROUP_1": ""}), Allocation{}, true,
			"SLURM_JOB_NODELIST_HET_GROUP_1 is not set"},
		{"too many components", with(het(), map[string]string{"SLURM_HET_SIZE": "100000000"}), Allocation{}, true,
			"SLURM_HET_SIZE is 100000000, but a job has at most 128 components"},
		{"element of an array", with(batch, map[string]string{"SLURM_ARRAY_JOB_ID": "40", "SLURM_ARRAY_TASK_ID": "3"}),
			Allocation{JobID: "42", Nodes: []string{"n3", "n1"}, ArrayJobID: "40", ArrayTask: "3"}, true, ""},
		{"half an array", with(batch, map[string]string{"SLURM_ARRAY_TASK_ID": "3"}), Allocation{}, true,
			"SLURM_ARRAY_TASK_ID is set, but SLURM_ARRAY_JOB_ID is not"},
		{"a step of elsewhere has leaked", with(batch, map[string]string{"SLURMD_NODENAME": "n3", "SLURM_STEP_NODELIST": "n[4-5]", "SLURM_STEP_NUM_TASKS": "9", "SLURM_STEP_TASKS_PER_NODE": "5,4"}),
			Allocation{JobID: "42", Nodes: []string{"n3", "n1"}}, true, ""},
		{"no nodes", with(batch, map[string]string{"SLURM_JOB_NODELIST": ""}), Allocation{}, true, "SLURM_JOB_NODELIST is not set"},
		{"bad id", with(batch, map[string]string{"SLURM_JOB_ID": "42; rm"}), Allocation{}, true, `"42; rm" is not a number`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, ok, err := AllocationFromEnv(lookup(tt.env))
			if ok != tt.wantOK || !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got %+v, %v; want %+v, %v", got, ok, tt.want, tt.wantOK)
			}
			if (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Errorf("error %v, want %q", err, tt.err)
			}
		})
	}
}
