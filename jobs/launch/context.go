package launch

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/jobs/rundir"
)

// Variables that describe the run to a user's program. They are not secret.
const (
	programRunDir      = "DDPBATCH_RUN_DIR"
	programRunID       = "DDPBATCH_RUN_ID"
	programRestarts    = "DDPBATCH_RESTART_COUNT"
	programAttempt     = envAttempt // the launcher's own variable counts only its attempts
	programResume      = "DDPBATCH_RESUME"
	programCheckpoints = "DDPBATCH_CHECKPOINT_DIR"
	programStopFile    = "DDPBATCH_STOP_FILE"
	programDeadline    = "DDPBATCH_DEADLINE"
	programMetrics     = "DDPBATCH_METRICS"
	programInterface   = "DDPBATCH_INTERFACE"
	programAddress     = "DDPBATCH_ADDRESS"
	programHeartbeat   = "DDPBATCH_HEARTBEAT"
	programMLflowFile  = "DDPBATCH_MLFLOW_RUN_ID_FILE"
	programNodes       = "DDPBATCH_NODES"
	programHostfile    = "DDPBATCH_HOSTFILE"
)

// passedVariables are the variables that the launcher passes to ranks, and ranks pass to the
// program.
var passedVariables = []string{programRunDir, programRunID, programRestarts, programResume, programCheckpoints, programStopFile,
	programDeadline, programMetrics, programNodes}

// programContext returns the variables that describe the run to a user's program, for the next
// attempt. It creates the checkpoint directory and removes the stop file of earlier attempts.
func programContext(ctx context.Context, o Options) ([]string, error) {
	d := o.Dir
	var environ []string
	set := func(name, value string) { environ = append(environ, name+"="+value) }
	set(programRunDir, d.Path)
	set(programMetrics, d.ProgramMetrics())
	record, err := d.ReadRecord()
	if err != nil {
		return nil, err
	}
	set(programRunID, record.Run)
	set(programRestarts, strconv.Itoa(countAttempts(d)))
	checkpoints, err := makeCheckpointDir(o.Job.Command, d, record.Run, o.Say)
	if err != nil {
		return nil, err
	}
	set(programCheckpoints, checkpoints)
	set(programResume, "0")
	if !isEmpty(checkpoints) {
		set(programResume, "1")
	}
	if err := d.RemoveStopFile(); err != nil {
		return nil, err
	}
	set(programStopFile, d.StopFile())
	if o.Job.Command.Watch.Heartbeat > 0 {
		if err := d.MakeHeartbeats(); err != nil {
			return nil, err
		}
	}
	if o.Job.RunsOnce() && o.Allocation != nil {
		set(programNodes, strings.Join(o.Allocation.Nodes, ","))
	}
	if end, known := o.endTime(ctx); known {
		set(programDeadline, strconv.FormatInt(end.Unix(), 10))
	}
	return environ, nil
}

// countAttempts returns the number of attempts of the run that have begun. It does not count attempts
// that the launcher repeated because a port was in use.
func countAttempts(d rundir.Dir) (n int) {
	events, _ := d.ReadAttempts()
	for _, e := range events {
		switch {
		case e.Event == rundir.AttemptBegan:
			n++
		case e.PortTaken:
			n--
		}
	}
	return n
}

// isEmpty reports whether a directory has no entries, or cannot be read.
func isEmpty(path string) bool {
	dir, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK, 0)
	if err != nil {
		return true
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(1)
	return len(names) == 0
}

// endTime returns the end of the job's time limit, if it has one.
func (o Options) endTime(ctx context.Context) (end time.Time, known bool) {
	if o.Allocation == nil {
		return time.Time{}, false
	}
	if end, known = jobEnd(o.Environ); known {
		return end, true
	}
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	end, err := o.Slurm.EndTime(ctx, o.Allocation.ID())
	return end, err == nil && !end.IsZero()
}

// setContext sets the variables that describe the run to this rank's program. Lookup reads the
// variables of this process. Given reads the variables of the program, to detect which ones the
// user has set. If another launcher started this rank, there is no earlier attempt and no deadline.
func (r *Rank) setContext(set func(name, value string), lookup, given func(string) (string, bool)) error {
	runID, _ := lookup(programRunID)
	if _, launched := lookup(LauncherVariable); launched {
		for _, name := range passedVariables {
			if value, ok := lookup(name); ok {
				set(name, value)
			}
		}
		if path, ok := lookup(programCheckpoints); ok {
			if err := checkLocalCheckpointDir(path); err != nil {
				return err
			}
			if r.Info.NodeRank > 0 && r.Info.LocalRank == 0 && r.job.Command.CheckpointDir != "" {
				warnPreparedDir(path, r.say) // the launcher has checked its own node
			}
		}
	} else {
		record, err := r.dir.ReadRecord()
		if err != nil {
			return err
		}
		runID = record.Run
		set(programRunID, runID)
		checkpoints, err := makeCheckpointDir(r.job.Command, r.dir, record.Run, r.say)
		if err != nil {
			return err
		}
		set(programRunDir, r.dir.Path)
		set(programCheckpoints, checkpoints)
		set(programStopFile, r.dir.StopFile())
	}
	text, _ := lookup(programRestarts)
	restarts, _ := strconv.Atoi(text)
	set(programAttempt, strconv.Itoa(restarts+1))
	setTracePrefix(set, given, r.dir.TracePrefix())
	if r.job.Command.Watch.Heartbeat > 0 {
		if err := r.dir.MakeHeartbeats(); err != nil { // usually exists, but not without a launcher
			return err
		}
		set(programHeartbeat, r.dir.Heartbeat(r.Info.Rank))
	}
	if r.job.RunsOnce() {
		r.setTracking(set, given, runID)
		return nil
	}
	set(programInterface, r.Choice.Interface)
	set(programAddress, r.Choice.Addr.String())
	if r.job.Command.Launcher != jobs.LauncherTorchrun {
		r.setTorchrunVars(set, runID, restarts)
	}
	r.setTracking(set, given, runID)
	return nil
}

// setTracePrefix directs the dumps of PyTorch's flight recorder to files that begin with prefix,
// unless the user has set one of the variables for it. PyTorch before 2.9 reads only the old name.
// Later versions read both, and prefer the new one.
func setTracePrefix(set func(name, value string), given func(string) (string, bool), prefix string) {
	const before, since = "TORCH_NCCL_DEBUG_INFO_TEMP_FILE", "TORCH_FR_DUMP_TEMP_FILE"
	old, hasOld := given(before)
	current, hasCurrent := given(since)
	switch {
	case hasOld && hasCurrent:
	case hasOld:
		set(since, old)
	case hasCurrent:
		set(before, current)
	default:
		set(before, prefix)
		set(since, prefix)
	}
}

// setTorchrunVars sets the variables with which libraries recognize workers of torchrun. Without
// them, some libraries start processes or choose a port themselves. TORCHELASTIC_USE_AGENT_STORE
// stays unset, because the launcher does not serve torchrun's store.
func (r *Rank) setTorchrunVars(set func(name, value string), runID string, restarts int) {
	p := r.Info
	set("TORCHELASTIC_RUN_ID", runID)
	set("TORCHELASTIC_RESTART_COUNT", strconv.Itoa(restarts))
	set("TORCHELASTIC_MAX_RESTARTS", strconv.Itoa(r.job.Restart.MaxWithoutProgress))
	set("GROUP_WORLD_SIZE", strconv.Itoa(p.Nodes))
	set("ROLE_NAME", "default")
	set("ROLE_RANK", strconv.Itoa(p.Rank))
	set("ROLE_WORLD_SIZE", strconv.Itoa(p.WorldSize))
}

// setTracking sets the variables of experiment trackers. It does not replace values of the user.
func (r *Rank) setTracking(set func(name, value string), given func(string) (string, bool), runID string) {
	setNew := func(name, value string) {
		if _, ok := given(name); !ok {
			set(name, value)
		}
	}
	c := r.job.Command
	if slices.Contains(c.Tracking, jobs.TrackerWandB) && runID != "" {
		// Two processes must not write to the same run at W&B.
		id := runID
		switch {
		case r.Info.Rank > 0 && c.Launcher == jobs.LauncherTorchrun:
			id += "-node-" + strconv.Itoa(r.Info.NodeRank)
		case r.Info.Rank > 0:
			id += "-rank-" + strconv.Itoa(r.Info.Rank)
		}
		setNew("WANDB_RUN_ID", id)
		setNew("WANDB_RESUME", "allow")
	}
	if slices.Contains(c.Tracking, jobs.TrackerMLflow) {
		// MLflow rejects an ID that it did not assign.
		set(programMLflowFile, r.dir.TrackerFile(string(jobs.TrackerMLflow)))
		id, err := r.dir.ReadTrackerID(string(jobs.TrackerMLflow))
		switch {
		case r.Info.Rank > 0:
		case err != nil:
			r.say(fmt.Sprintf("warning: %v; MLflow starts a new run", err))
		case id != "":
			setNew("MLFLOW_RUN_ID", id)
		}
	}
}

// expandPlaceholders replaces the placeholders of argv by the values in the program's
// environment. A value that would become code is an error.
func (r *Rank) expandPlaceholders(argv, environ []string) ([]string, error) {
	values := placeholderValues(environ)
	maps.Copy(values, componentPlaceholders(r.job.Components, environ))
	return jobs.ExpandArgv(argv, values)
}

// placeholderValues returns the values of the placeholders that all programs have.
func placeholderValues(environ []string) map[string]string {
	values := map[string]string{}
	for name, variable := range map[string]string{jobs.PlaceholderRunDir: programRunDir, jobs.PlaceholderRunID: programRunID,
		jobs.PlaceholderAttempt: programAttempt, jobs.PlaceholderCheckpoint: programCheckpoints, jobs.PlaceholderArrayTask: arrayTaskVariable,
		jobs.PlaceholderHostfile: programHostfile} {
		if value, ok := lookupIn(environ)(variable); ok {
			values[name] = value
		}
	}
	return values
}

// writeStopFile creates the stop file. It does not wait, because the file system may hang, and
// it ignores errors, because the program also receives a signal. It returns a channel that is
// closed when the write has succeeded or failed.
func writeStopFile(d rundir.Dir, reason string) (written <-chan struct{}) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = d.WriteStopFile(reason)
	}()
	return done
}
