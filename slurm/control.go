package slurm

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"
)

// Cancel cancels a job, a job array, or an array task. Slurm sends SIGTERM, and SIGKILL
// after KillWait (30 s by default). Cancel returns an error if Slurm does not know the job,
// but not if the job has ended.
func (c Client) Cancel(ctx context.Context, id string) error {
	if err := checkIDs([]string{id}); err != nil {
		return fmt.Errorf("cancel %w", err)
	}
	if _, err := c.run(ctx, "", "scancel", "--quiet", id); err != nil {
		return fmt.Errorf("cancel job %s: %w", id, err)
	}
	return nil
}

// KillStep kills all tasks of a step, such as "12.0". The job keeps running.
func (c Client) KillStep(ctx context.Context, step string) error {
	job, number, ok := strings.Cut(step, ".")
	if !ok || !isID(job) || !isID(number) {
		return fmt.Errorf("kill step %q: not a step ID, such as 12.0", step)
	}
	if _, err := c.run(ctx, "", "scancel", "--quiet", "--signal=KILL", step); err != nil {
		return fmt.Errorf("kill step %s: %w", step, err)
	}
	return nil
}

// The delay between two queries about a requeue doubles from requeueMinDelay to
// requeueMaxDelay.
const (
	requeueMinDelay = time.Second
	requeueMaxDelay = 15 * time.Second
)

// A NoReplyError reports a requeue whose outcome is unknown.
type NoReplyError struct {
	ID  string
	Err error // last error
}

func (e *NoReplyError) Error() string {
	return fmt.Sprintf("requeue job %s: no reply from Slurm: %v", e.ID, e.Err)
}

// Unwrap returns the last error.
func (e *NoReplyError) Unwrap() error { return e.Err }

// Requeue stops a job or an array task and returns it to the queue under the same ID. Slurm
// starts it again after 2 minutes or later. restarts is the number of requeues when the job
// started.
//
// The batch script of the job may call Requeue. Slurm then kills the script's processes,
// including scontrol. If scontrol is killed or the controller does not reply, Requeue
// queries the job. It repeats the request only if the job is still running and was not
// requeued. It returns a [*NoReplyError] if ctx ends first, and a different error if Slurm
// rejects the request.
func (c Client) Requeue(ctx context.Context, id string, restarts int) error {
	if err := checkIDs([]string{id}); err != nil {
		return fmt.Errorf("requeue %w", err)
	}
	delay := requeueMinDelay
	for {
		_, err := c.run(ctx, "", "scontrol", "requeue", id)
		if err == nil {
			return nil
		}
		for {
			if errors.Is(err, exec.ErrNotFound) {
				return fmt.Errorf("requeue job %s: %w", id, err)
			}
			job, queryErr := c.showJob(ctx, id)
			if queryErr == nil && parseRestarts(job["Restarts"]) > restarts {
				return nil
			}
			// The error is final if the job is unchanged, or if it no longer exists.
			isRunning := queryErr == nil && job["JobState"] == string(StateRunning)
			if queryErr == nil && (GotReply(err) || !isRunning) || queryErr != nil && GotReply(queryErr) {
				return fmt.Errorf("requeue job %s: %w", id, err)
			}
			if !sleep(ctx, delay) {
				return &NoReplyError{ID: id, Err: err}
			}
			delay = min(2*delay, requeueMaxDelay)
			if isRunning {
				break // repeat the request
			}
		}
	}
}

// sleep waits for d. It returns false if ctx ends first.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// Preemption describes whether Slurm preempts a job, and which side requeues it.
type Preemption string

const (
	// NotPreempted is a job that Slurm does not preempt.
	NotPreempted Preemption = ""
	// Preempted is a running job in its GraceTime. The job must request its requeue: if
	// it exits, Slurm before 24.05 does not requeue it. With PreemptMode=CANCEL no
	// version does.
	Preempted Preemption = "preempted"
	// PreemptedRequeued is a running job in its GraceTime that slurmctld requeues when its
	// batch script exits, with any exit code. The job must not request a requeue: Slurm
	// would requeue it now and again at the end of its next run.
	PreemptedRequeued Preemption = "preempted, requeued at its end"
	// AllocationRevoked is a job that Slurm is already requeueing or canceling.
	AllocationRevoked Preemption = "allocation revoked"
)

// Preemption returns whether and how the controller preempts a job or an array task. restarts is
// the number of requeues when the job started.
func (c Client) Preemption(ctx context.Context, id string, restarts int) (Preemption, error) {
	if err := checkIDs([]string{id}); err != nil {
		return NotPreempted, fmt.Errorf("query preemption of %w", err)
	}
	job, err := c.showJob(ctx, id)
	if err != nil {
		return NotPreempted, fmt.Errorf("query preemption of job %s: %w", id, err)
	}
	p := preemptionOf(job, restarts)
	if p == Preempted && job["Requeue"] == "1" && c.requeuesAtEnd(ctx, job) {
		p = PreemptedRequeued
	}
	return p, nil
}

// preemptionOf returns the preemption according to the fields of a job. It does not
// distinguish PreemptedRequeued.
func preemptionOf(job map[string]string, restarts int) Preemption {
	// Slurm deletes PreemptTime when it requeues the job.
	isRunning, hasPreemptTime := job["JobState"] == string(StateRunning), job["PreemptTime"] != ""
	switch {
	case isRunning && hasPreemptTime:
		return Preempted
	case !isRunning && (hasPreemptTime || parseRestarts(job["Restarts"]) > restarts):
		return AllocationRevoked
	}
	return NotPreempted
}

// requeuesAtEnd reports whether slurmctld requeues a job that exits in its GraceTime. Since
// 24.05 it does (slurmctld, _slurm_rpc_complete_batch_script), if the preemption mode is
// REQUEUE. If the configuration is unavailable, requeuesAtEnd returns false: a job that is
// requeued twice loses less than a job that is not requeued.
func (c Client) requeuesAtEnd(ctx context.Context, job map[string]string) bool {
	config, err := c.Config(ctx)
	if err != nil {
		return false
	}
	year, month, ok := parseVersion(config["SLURM_VERSION"])
	if !ok || year < 24 || year == 24 && month < 5 {
		return false
	}
	return hasMode(c.preemptMode(ctx, config, job), "requeue")
}

// preemptMode returns the mode in which Slurm preempts a job. Depending on PreemptType, it
// is the mode of the job's partition or QOS. The default is the mode of the cluster.
func (c Client) preemptMode(ctx context.Context, config, job map[string]string) string {
	switch {
	case strings.HasSuffix(config["PreemptType"], "/partition_prio") && job["Partition"] != "":
		out, err := c.run(ctx, "", "scontrol", "show", "partition", "--oneliner", job["Partition"])
		if mode := parseFields(out)["PreemptMode"]; err == nil && mode != "" {
			return mode
		}
	case strings.HasSuffix(config["PreemptType"], "/qos") && job["QOS"] != "":
		out, err := c.run(ctx, "", "sacctmgr", "--noheader", "--parsable2", "show", "qos", "where", "name="+job["QOS"], "format=preemptmode")
		if mode := strings.TrimSpace(out); err == nil && mode != "" && !hasMode(mode, "cluster") {
			return mode
		}
	}
	return config["PreemptMode"]
}

// hasMode reports whether a list such as "GANG,REQUEUE" contains mode, in any case.
func hasMode(list, mode string) bool {
	for m := range strings.SplitSeq(list, ",") {
		if strings.EqualFold(strings.TrimSpace(m), mode) {
			return true
		}
	}
	return false
}

// showJob returns the controller's fields of a job.
func (c Client) showJob(ctx context.Context, id string) (map[string]string, error) {
	out, err := c.run(ctx, "", "scontrol", "show", "job", "--oneliner", id)
	if err != nil {
		return nil, err
	}
	return parseFields(out), nil
}

// parseFields parses the output of scontrol --oneliner. The first field of a name counts, because
// the command line and the comment of a job may contain anything, and follow the fields that this
// package uses. Fields before UserId do not count if there is one: a job may have a name such as
// "x Restarts=9", and the name precedes UserId.
func parseFields(out string) map[string]string {
	if _, rest, ok := strings.Cut(out, " UserId="); ok {
		out = rest
	}
	fields := map[string]string{}
	for word := range strings.FieldsSeq(out) {
		key, value, ok := strings.Cut(word, "=")
		if _, exists := fields[key]; ok && !exists {
			fields[key] = valueOrEmpty(value)
		}
	}
	return fields
}
