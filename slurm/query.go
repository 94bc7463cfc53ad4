package slurm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ddpbatch/ddpbatch/internal/format"
)

// maxIDsPerCall keeps the option --jobs below Linux's limit of 128 KiB per argument. An ID
// has at most 10 digits.
const maxIDsPerCall = 8000

// State returns the states of jobs, in the order of ids. An ID names a job ("18") or an
// array task ("18_3"). An array task also has its own number, SLURM_JOB_ID. For the
// number of a job array, State aggregates the tasks.
//
// It calls squeue once for every 8,000 jobs. For jobs that the controller has forgotten,
// which happens MinJobAge (300 s by default) after their end, it calls sacct, also once
// for every 8,000 jobs. The state is [StateUnknown] if neither squeue nor sacct lists the
// job: it ended long ago, or never existed.
//
// State returns an error if an ID is invalid, if squeue fails, or if sacct fails and squeue lists
// none of the jobs. If sacct fails otherwise, the states of jobs that only sacct could have are
// unknown, with the error as the reason.
func (c Client) State(ctx context.Context, ids ...string) ([]JobState, error) {
	if err := checkIDs(ids); err != nil {
		return nil, fmt.Errorf("query state of %w", err)
	}
	known := newJobTable()
	err := inChunks(ids, func(jobs []string) error { return c.querySqueue(ctx, jobs, known) })
	unique := slices.Compact(slices.Sorted(slices.Values(ids)))
	rest := slices.DeleteFunc(slices.Clone(unique), known.isComplete)
	var sacctErr error
	if err == nil {
		sacctErr = inChunks(rest, func(jobs []string) error { return c.querySacct(ctx, jobs, known) })
	}
	if err != nil || sacctErr != nil && known.isEmpty() {
		return nil, fmt.Errorf("query state of %s: %w", listIDs(ids), cmp.Or(err, sacctErr))
	}
	// The state of a job array takes time for each of its tasks, and the runs of another user can name
	// one job array thousands of times.
	byID := make(map[string]JobState, len(unique))
	for _, id := range unique {
		j, ok := known.get(id)
		if !ok || sacctErr != nil && !known.isComplete(id) {
			j = c.forgottenJob(id)
			if sacctErr != nil {
				j.Reason = sacctErr.Error()
			}
		}
		byID[id] = j
	}
	var states []JobState
	for _, id := range ids {
		states = append(states, byID[id])
	}
	return states, nil
}

// forgottenJob returns the state of a job that Slurm does not list.
func (c Client) forgottenJob(id string) JobState {
	if c.LastKnown != nil {
		if j, ok := c.LastKnown(id); ok {
			return j
		}
	}
	return unknownJob(id)
}

func unknownJob(id string) JobState {
	j := JobState{ID: id, State: StateUnknown, Reason: "Slurm has no record of this job", Restarts: -1}
	if array, task, _ := splitID(id); task != "" {
		j.ArrayJobID, j.ArrayTask = array, task
	}
	return j
}

// inChunks calls query with the jobs of ids, each once. The array tasks of an ID are
// queried through their job array: versions of squeue differ in how they select one
// pending task.
func inChunks(ids []string, query func(jobs []string) error) error {
	unique := make(map[string]bool)
	for _, id := range ids {
		job, _, _ := strings.Cut(id, "_")
		unique[job] = true
	}
	for jobs := range slices.Chunk(slices.Sorted(maps.Keys(unique)), maxIDsPerCall) {
		if err := query(jobs); err != nil {
			return err
		}
	}
	return nil
}

func setOf(list []string) map[string]bool {
	set := make(map[string]bool, len(list))
	for _, s := range list {
		set[s] = true
	}
	return set
}

// listIDs returns "job 12 and 13" for a message. It shortens long lists.
func listIDs(ids []string) string { return "job " + format.List(ids, 5) }

// Steps returns the numbers of the running steps of a job that srun has started. The steps of the
// batch script and of the shell of salloc have no number.
func (c Client) Steps(ctx context.Context, id string) ([]string, error) {
	if err := checkIDs([]string{id}); err != nil {
		return nil, fmt.Errorf("query steps of %w", err)
	}
	out, err := c.run(ctx, "", "squeue", "--noheader", "--steps", "--jobs="+id, "--format=%i")
	if err != nil {
		return nil, fmt.Errorf("query steps of job %s: %w", id, err)
	}
	var steps []string
	for line := range strings.Lines(out) {
		if _, number, ok := strings.Cut(strings.TrimSpace(line), "."); ok && isID(number) {
			steps = append(steps, number)
		}
	}
	return steps, nil
}

// EndTime returns when a running job reaches its time limit, which may change while it
// runs. It returns the zero time for a job without a limit, and for a job that Slurm does not
// list.
func (c Client) EndTime(ctx context.Context, id string) (time.Time, error) {
	states, err := c.State(ctx, id)
	if err != nil || states[0].End == "" {
		return time.Time{}, err
	}
	end, err := time.ParseInLocation("2006-01-02T15:04:05", states[0].End, time.Local)
	if err != nil {
		return time.Time{}, fmt.Errorf("parse end time of job %s: %w", id, err)
	}
	return end, nil
}

// Owner returns the ID of the user who submitted a job that has not ended.
func (c Client) Owner(ctx context.Context, id string) (uid int, err error) {
	if err := checkIDs([]string{id}); err != nil {
		return 0, fmt.Errorf("query owner of %w", err)
	}
	out, err := c.run(ctx, "", "squeue", "--noheader", "--jobs="+id, "--format=%U")
	if err != nil {
		return 0, fmt.Errorf("query owner of job %s: %w", id, err)
	}
	line, _, _ := strings.Cut(strings.TrimSpace(out), "\n")
	if uid, err = strconv.Atoi(strings.TrimSpace(line)); err != nil {
		return 0, fmt.Errorf("query owner of job %s: squeue printed %q", id, line)
	}
	return uid, nil
}

// squeueFormat prints columns of any width (width 0), each followed by a separator
// (squeue(1), -O). The reason is last, because its text may contain the separator.
const squeueFormat = "JobID:0|,ArrayJobID:0|,ArrayTaskID:0|,State:0|,NodeList:0|,TimeUsed:0|,StartTime:0|,EndTime:0|," +
	"RestartCnt:0|,exit_code:0|,Reason:0"

const squeueColumns = 11

// querySqueue adds the controller's records of jobs to known. It reads text and not JSON:
// the text has not changed since before 22.05, while the JSON changes with most versions,
// and before 23.02 squeue --json ignores --jobs.
func (c Client) querySqueue(ctx context.Context, jobs []string, known jobTable) error {
	out, err := c.run(ctx, "", "squeue", "--noheader", "--states=all", "--array", "--jobs="+strings.Join(jobs, ","), "--Format="+squeueFormat)
	var failed *CommandError
	if errors.As(err, &failed) && strings.Contains(failed.Stderr, "Invalid job id specified") {
		err = nil // the controller has forgotten a single job
	}
	if err != nil {
		return err
	}
	known.add(parseSqueue(out), jobs)
	return nil
}

// parseSqueue parses the lines of squeueFormat. It skips incomplete lines.
func parseSqueue(out string) []jobRecord {
	var records []jobRecord
	for line := range strings.Lines(out) {
		f := strings.SplitN(line, "|", squeueColumns)
		if len(f) < squeueColumns {
			continue
		}
		for i := range f {
			f[i] = valueOrEmpty(f[i])
		}
		r := jobRecord{number: f[0], array: f[1], tasks: f[2], state: JobState{
			State: parseState(f[3]), Nodes: f[4], Elapsed: f[5], Start: f[6], End: f[7], Restarts: parseRestarts(f[8]), Reason: f[10],
		}}
		if r.state.Done() {
			r.state.ExitCode = parseExitCode(f[9])
		}
		records = append(records, r)
	}
	return records
}

// parseExitCode converts the exit code of squeue, a status of wait(2), to Slurm's usual
// form "code:signal".
func parseExitCode(s string) string {
	if n, err := parseCount(s); err == nil {
		return strconv.Itoa(n>>8&0xff) + ":" + strconv.Itoa(n&0x7f)
	}
	return s
}

// parseRestarts parses a number of restarts. It returns -1 if Slurm does not provide it.
func parseRestarts(s string) int {
	if n, err := parseCount(s); err == nil {
		return n
	}
	return -1
}

// valueOrEmpty trims a value. It returns "" for the client programs' words for no value.
func valueOrEmpty(s string) string {
	switch s = strings.TrimSpace(s); s {
	case "(null)", "N/A", "None", "None assigned", "Unknown", "NONE", "n/a":
		return ""
	}
	return s
}

// sacctFormat are the columns of sacct --parsable2. The text has not changed since before
// 22.05. The JSON changes with most versions, and cannot be limited to a few fields.
const sacctFormat = "JobID,JobIDRaw,State,ExitCode,NodeList,Elapsed,Start,End"

const sacctColumns = 8

// querySacct adds the accounting records of jobs to known. It adds nothing if the cluster
// has no accounting or the host has no sacct.
func (c Client) querySacct(ctx context.Context, jobs []string, known jobTable) error {
	out, err := c.run(ctx, "", "sacct", "--noheader", "--parsable2", "--allocations", "--jobs="+strings.Join(jobs, ","), "--format="+sacctFormat)
	var failed *CommandError
	if errors.As(err, &failed) && strings.Contains(failed.Stderr, "accounting storage is disabled") || errors.Is(err, exec.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	known.add(parseSacct(out), jobs)
	return nil
}

// parseSacct parses the lines of sacctFormat. A job ID is "18", "18_3" or "18_[4-5%2]" for
// array tasks, or "18+0" for a component of a heterogeneous job.
func parseSacct(out string) []jobRecord {
	var records []jobRecord
	for line := range strings.Lines(out) {
		f := strings.Split(line, "|")
		if len(f) != sacctColumns {
			continue
		}
		for i := range f {
			f[i] = valueOrEmpty(f[i])
		}
		array, tasks, _ := strings.Cut(f[0], "_")
		r := jobRecord{number: f[1], array: array, tasks: tasks, state: JobState{
			State: parseState(f[2]), Nodes: f[4], Elapsed: f[5], Start: f[6], End: f[7], Restarts: -1,
		}}
		if r.state.Done() {
			r.state.ExitCode = f[3]
		}
		records = append(records, r)
	}
	return records
}

// A jobRecord is a line of squeue or sacct. Its state has no ID yet, because the line may
// describe several array tasks.
type jobRecord struct {
	number string // the job's own number
	array  string // number of the job array, if tasks is set
	tasks  string // index of the array task, or an expression for pending tasks; empty for other jobs
	state  JobState
}

// A jobTable stores the states of jobs.
type jobTable struct {
	byID   map[string]JobState    // by number: jobs, and array tasks that have their own number
	arrays map[string]*arrayTasks // by job array
}

func newJobTable() jobTable {
	return jobTable{byID: make(map[string]JobState), arrays: make(map[string]*arrayTasks)}
}

func (t jobTable) isEmpty() bool { return len(t.byID) == 0 && len(t.arrays) == 0 }

// add adds the valid records of the requested jobs. The first record of a job counts:
// squeue, which runs first, is more recent than accounting.
func (t jobTable) add(records []jobRecord, requested []string) {
	isRequested := setOf(requested)
	for i := range records {
		r := &records[i]
		if !isID(r.number) {
			continue
		}
		if r.tasks == "" {
			if isRequested[r.number] {
				t.set(r.number, r.state)
			}
			continue
		}
		spans, err := parseArrayTasks(r.tasks)
		if err != nil || !isID(r.array) || !isRequested[r.array] && !isRequested[r.number] {
			continue
		}
		if t.arrays[r.array] == nil {
			t.arrays[r.array] = &arrayTasks{single: make(map[int]*JobState)}
		}
		t.arrays[r.array].add(spans, &r.state)
		// The last array task to start has the number of the job array.
		if r.number != r.array {
			t.set(r.number, r.state.ofTask(r.array, spans[0].low))
		}
	}
}

// set stores a state, unless the table has one for id.
func (t jobTable) set(id string, j JobState) {
	if _, ok := t.byID[id]; ok {
		return
	}
	j.ID = id
	t.byID[id] = j
}

// get returns the state of a job, an array task, or a job array.
func (t jobTable) get(id string) (JobState, bool) {
	array, task, _ := strings.Cut(id, "_")
	tasks := t.arrays[array]
	switch {
	case task == "" && tasks != nil:
		return aggregateStates(id, tasks.groups()), true
	case task == "":
		j, ok := t.byID[id]
		return j, ok
	}
	index, err := strconv.Atoi(task)
	if err != nil || tasks == nil || task != strconv.Itoa(index) {
		return JobState{}, false
	}
	state := tasks.get(index)
	if state == nil {
		return JobState{}, false
	}
	j := state.ofTask(array, index)
	j.ID = id
	return j, true
}

// isComplete reports whether accounting has nothing to add about id. The controller
// forgets array tasks one by one. If all tasks that it lists have ended, others may be
// missing.
func (t jobTable) isComplete(id string) bool {
	j, ok := t.get(id)
	return ok && (t.arrays[id] == nil || !j.Done())
}

// ofTask returns the state for a task of a job array.
func (j JobState) ofTask(array string, index int) JobState {
	j.ArrayJobID, j.ArrayTask = array, strconv.Itoa(index)
	return j
}

// arrayTasks holds the states of the tasks of a job array. It stores no state for each task of a span:
// one line of sacct describes all tasks of a job array that was canceled before its start, and another
// user can name thousands of such job arrays.
type arrayTasks struct {
	single map[int]*JobState // by index
	spans  []spanState       // without the tasks in single
}

// A spanState is the state of several tasks.
type spanState struct {
	taskSpan
	state *JobState
}

// add adds the tasks of a line. Squeue, which is more recent, has a line for each task.
func (a *arrayTasks) add(spans []taskSpan, state *JobState) {
	for _, s := range spans {
		if s.count() > 1 {
			a.spans = append(a.spans, spanState{s, state})
		} else if a.single[s.low] == nil {
			a.single[s.low] = state
		}
	}
}

// get returns the state of a task, or nil.
func (a *arrayTasks) get(index int) *JobState {
	if state := a.single[index]; state != nil {
		return state
	}
	for _, s := range a.spans {
		if s.contains(index) {
			return s.state
		}
	}
	return nil
}

// groups returns all tasks, by their lowest index.
func (a *arrayTasks) groups() (all []taskGroup) {
	for index, state := range a.single {
		all = append(all, taskGroup{index, 1, state})
	}
	for _, s := range a.spans {
		if n := s.count() - a.singlesIn(s.taskSpan); n > 0 {
			all = append(all, taskGroup{s.low, n, s.state})
		}
	}
	slices.SortFunc(all, func(a, b taskGroup) int { return cmp.Compare(a.first, b.first) })
	return all
}

// singlesIn returns the number of tasks of a span that have their own state.
func (a *arrayTasks) singlesIn(s taskSpan) (n int) {
	if s.count() > len(a.single) {
		for index := range a.single {
			if s.contains(index) {
				n++
			}
		}
		return n
	}
	for index := s.low; index <= s.high; index += s.step {
		if a.single[index] != nil {
			n++
		}
	}
	return n
}
