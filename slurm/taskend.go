package slurm

import (
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// TaskEnd is what srun says of tasks that have ended otherwise than with exit code 0.
type TaskEnd struct {
	Hosts []string // on which they were
	Tasks []int    // in ascending order; numbers of the step, as SLURM_PROCID
	// How: Exit is set, or Signal, or OutOfMemory.
	Exit   int
	Signal syscall.Signal
	// OutOfMemory says that the kernel has killed a process of the task, or of one beside
	// it, since the memory that the job may use on that node was used up.
	OutOfMemory bool
}

// ParseTaskEnd reads a line of srun's standard error, which is where the end of a single
// task stands: Slurm's records have that of the step. The forms, from _task_finish in
// Slurm's launcher (18.08 to 25.05), are
//
//	srun: error: n3: task 5: Killed
//	srun: error: n[3-4]: tasks 4-5,7: Exited with exit code 9
//	srun: error: n3: task 5: Aborted (core dumped)
//	srun: error: n3: task 5: Out Of Memory
//
// Signals have the C library's words for them, which srun does not translate. What a task
// itself prints comes by the same way: a caller checks that the hosts are those of the
// tasks. Every other line is not ok.
func ParseTaskEnd(line string) (end TaskEnd, ok bool) {
	rest, ok := strings.CutPrefix(line, "srun: error: ")
	if !ok || len(line) > maxEndLine {
		return TaskEnd{}, false
	}
	hosts, rest, ok := strings.Cut(rest, ": task")
	if !ok {
		return TaskEnd{}, false
	}
	tasks, how, ok := strings.Cut(strings.TrimPrefix(rest, "s"), ": ")
	tasks, spaced := strings.CutPrefix(tasks, " ")
	if !ok || !spaced || !end.parseHow(how) || !end.parseTasks(tasks) {
		return TaskEnd{}, false
	}
	var err error
	if end.Hosts, err = ExpandHosts(hosts); err != nil || len(end.Hosts) == 0 {
		return TaskEnd{}, false
	}
	return end, true
}

// maxEndLine bounds what is looked at: one range for each of some thousand hosts.
const maxEndLine = 64 << 10

// parseTasks reads numbers and ranges of them.
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

// parseHow reads what stands after the last colon.
func (e *TaskEnd) parseHow(how string) bool {
	if how == "Out Of Memory" {
		e.OutOfMemory = true
		return true
	}
	if code, ok := strings.CutPrefix(how, "Exited with exit code "); ok {
		n, err := strconv.ParseUint(code, 10, 8)
		e.Exit = int(n)
		return err == nil && n > 0
	}
	words := strings.TrimSuffix(how, " (core dumped)")
	for s := syscall.Signal(1); s <= lastSignal; s++ {
		// Go has the words of the C library, but for the first letter.
		if strings.EqualFold(s.String(), words) {
			e.Signal = s
			return true
		}
	}
	return false
}

// lastSignal is the last one of Linux that has words.
const lastSignal = 31
