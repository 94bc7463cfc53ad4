package slurm

import (
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// A TaskEnd is srun's report of tasks that did not exit with code 0. One of Exit, Signal,
// and OutOfMemory is set.
type TaskEnd struct {
	Hosts       []string // nodes of the tasks
	Tasks       []int    // ranks in the step (SLURM_PROCID), in ascending order
	Exit        int      // exit code
	Signal      syscall.Signal
	OutOfMemory bool // the kernel killed a process of the task, or of its node, at the job's memory limit
}

// ParseTaskEnd parses a line of srun's standard error. Only these lines describe single
// tasks: accounting has the result of the step. _task_finish in Slurm's launcher (18.08 to
// 25.05) prints these forms:
//
//	srun: error: n3: task 5: Killed
//	srun: error: n[3-4]: tasks 4-5,7: Exited with exit code 9
//	srun: error: n3: task 5: Aborted (core dumped)
//	srun: error: n3: task 5: Out Of Memory
//
// Signals have the C library's names, which srun does not translate. ParseTaskEnd returns
// false for all other lines. The stream also contains the output of the tasks, so callers
// must check that the tasks are on these hosts.
func ParseTaskEnd(line string) (end TaskEnd, ok bool) {
	rest, ok := strings.CutPrefix(line, "srun: error: ")
	if !ok || len(line) > maxTaskEndLine {
		return TaskEnd{}, false
	}
	hosts, rest, ok := strings.Cut(rest, ": task")
	if !ok {
		return TaskEnd{}, false
	}
	tasks, result, ok := strings.Cut(strings.TrimPrefix(rest, "s"), ": ")
	tasks, hasSpace := strings.CutPrefix(tasks, " ")
	if !ok || !hasSpace || !end.parseResult(result) || !end.parseTasks(tasks) {
		return TaskEnd{}, false
	}
	var err error
	if end.Hosts, err = ExpandHosts(hosts); err != nil || len(end.Hosts) == 0 {
		return TaskEnd{}, false
	}
	return end, true
}

// maxTaskEndLine allows for one range for each of several thousand hosts.
const maxTaskEndLine = 64 << 10 // bytes

// parseTasks parses numbers and ranges.
func (e *TaskEnd) parseTasks(list string) bool {
	if strings.Trim(list, "0123456789-,") != "" {
		return false
	}
	numbers, err := ExpandHosts("[" + list + "]")
	if err != nil {
		return false
	}
	for _, n := range numbers {
		task, err := strconv.Atoi(n)
		if err != nil {
			return false
		}
		e.Tasks = append(e.Tasks, task)
	}
	slices.Sort(e.Tasks)
	return true
}

// parseResult parses the text after the last colon.
func (e *TaskEnd) parseResult(text string) bool {
	if text == "Out Of Memory" {
		e.OutOfMemory = true
		return true
	}
	if code, ok := strings.CutPrefix(text, "Exited with exit code "); ok {
		n, err := strconv.ParseUint(code, 10, 8)
		e.Exit = int(n)
		return err == nil && n > 0
	}
	name := strings.TrimSuffix(text, " (core dumped)")
	for s := syscall.Signal(1); s <= lastSignal; s++ {
		// Go uses the C library's names in lower case.
		if strings.EqualFold(s.String(), name) {
			e.Signal = s
			return true
		}
	}
	return false
}

// lastSignal is the last signal of Linux that has a name.
const lastSignal = 31
