package slurm

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The environments in testdata/environ are recorded from Slurm 22.05.8: of a
// batch script (-batch), or of one rank of a step. What is expected is what the
// script asked for, and where the process really ran.
var recorded = map[string]string{
	"step-rank3":         "rank 3 of 4, local 1 of 2, node 1 of n1=2 n2=2",
	"uneven-rank5":       "rank 5 of 7, local 0 of 2, node 2 of n1=3 n2=2 n3=2",
	"cyclic-rank3":       "rank 3 of 7, local 1 of 3, node 0 of n1=3 n2=2 n3=2",
	"arbitrary-rank0":    "rank 0 of 4, local 0 of 1, node 1 of n1=2 n2=1 n3=1",
	"substep-rank1":      "rank 1 of 2, local 1 of 2, node 0 of n2=2",
	"array-step-rank3":   "rank 3 of 4, local 1 of 2, node 1 of n1=2 n2=2, element 3 of 1000",
	"requeue-step-rank1": "rank 1 of 2, local 1 of 2, node 0 of n4=2, requeued",
	"leak-step-rank1":    "rank 1 of 2, local 1 of 2, node 0 of n3=2",

	"het-plain-rank1":    "rank 1 of 2, local 1 of 2, node 0 of n1=2",
	"het-group1-rank1":   "rank 1 of 2, local 0 of 1, node 1 of n2=1 n3=1",
	"het-all-rank0":      "rank 0 of 4, local 0 of 2, node 0 of n1=2 n2=1 n3=1",
	"het-all-rank2":      "rank 2 of 4, local 0 of 1, node 1 of n1=2 n2=1 n3=1",
	"het-reversed-rank0": "rank 0 of 5, local 0 of 2, node 0 of n3=2 n1=2 n2=1",
	"het-reversed-rank2": "rank 2 of 5, local 0 of 2, node 1 of n3=2 n1=2 n2=1",

	"batch":              "job 1000 on n[1-2]",
	"array-batch":        "job 1001 on n[1-2], element 3 of 1000",
	"requeue-batch":      "job 1000 on n4, requeued",
	"leak-batch":         `job 1000 on n3; SLURMD_NODENAME is "n3", but node 0 of SLURM_STEP_NODELIST is "n4"`,
	"leak-same-node":     `job 1000 on n4; SLURM_GTIDS lists 1 ranks on this node, but SLURM_STEP_TASKS_PER_NODE has 2 tasks on it`,
	"het-batch":          "job 1000 on n[1-3], components 1000 on n1, 1001 on n[2-3]",
	"het-reversed-batch": "job 1000 on n[3,1-2], components 1000 on n3, 1001 on n[1-2]",
}

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
			got := tellTask(t, lookup(env))
			if want, ok := recorded[name]; !ok {
				t.Errorf("nothing is expected of this environment; it reads as %q", got)
			} else if got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
		})
	}
	for name := range recorded {
		if !found[name] {
			t.Errorf("%s.env is missing", name)
		}
	}
}

// readEnviron reads lines of NAME=VALUE.
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

// tellTask writes out what an environment reads as: a task, or an allocation.
func tellTask(t *testing.T, lookup func(string) (string, bool)) string {
	t.Helper()
	tail := func(array, task string, restarts int) string {
		s := ""
		if array != "" {
			s = fmt.Sprintf(", element %s of %s", task, array)
		}
		if restarts > 0 {
			s += ", requeued"
		}
		return s
	}
	task, err := TaskFromEnv(lookup)
	a, inside, aerr := AllocationFromEnv(lookup)
	if aerr != nil || !inside || a.JobID == "" {
		t.Errorf("the allocation: %+v, %v", a, aerr)
	}
	if err == nil {
		if a.StepTasks != task.WorldSize || a.JobID != task.JobID || task.Host != task.Hosts[task.NodeRank] {
			t.Errorf("the task %+v is not of the allocation %+v", task, a)
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
		_, facts, _ := strings.Cut(err.Error(), "itself: ")
		s += "; " + facts
	}
	return s
}
