//go:build linux

package cluster

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

// pollJob is the interval between the queries of WaitJob.
const pollJob = 100 * time.Millisecond

// final lists the states that a job does not leave (squeue(1), "job state codes"). A job that is
// requeued after preemption or the loss of a node is in none of them: Slurm shows it as PENDING.
var final = []string{
	"BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL",
	"OUT_OF_MEMORY", "PREEMPTED", "TIMEOUT",
}

// JobState returns a job's state, such as PENDING, RUNNING, or COMPLETED. Slurm keeps jobs for a
// day.
func (c *Cluster) JobState(ctx context.Context, id string) (string, error) {
	job, err := c.job(ctx, id)
	if err != nil {
		return "", err
	}
	return job["JobState"], nil
}

// controllerTimeout is the time for which WaitJob repeats requests that the controller does not answer.
const controllerTimeout = 3 * time.Minute

// WaitJob waits until a job is in one of the states, and returns the state. Without states it waits
// for any final state. It returns an error if the context ends, if there is no such job, or if the
// job is in a different final state. The error contains Slurm's description of the job and the end
// of its output. WaitJob repeats requests that a busy controller does not answer.
func (c *Cluster) WaitJob(ctx context.Context, id string, states ...string) (string, error) {
	if len(states) == 0 {
		states = final
	}
	answered := time.Now()
	for {
		job, err := c.job(ctx, id)
		switch {
		case err == nil:
			answered = time.Now()
		case ctx.Err() != nil, strings.Contains(err.Error(), "Invalid job id"), time.Since(answered) > controllerTimeout:
			return "", err
		}
		state := job["JobState"]
		if slices.Contains(states, state) {
			return state, nil
		}
		if slices.Contains(final, state) {
			return state, fmt.Errorf("job %s is %s, not %s: %s", id, state, strings.Join(states, " or "), explain(job))
		}
		select {
		case <-ctx.Done():
			return state, fmt.Errorf("job %s is still %s, not %s: %w: %s",
				id, state, strings.Join(states, " or "), ctx.Err(), explain(job))
		case <-time.After(pollJob):
		}
	}
}

// job returns the fields that scontrol shows for a job. For an array it returns the job of the
// first line.
func (c *Cluster) job(ctx context.Context, id string) (map[string]string, error) {
	out, err := output(c.Command(ctx, "scontrol", "--oneliner", "show", "job", id))
	if err != nil {
		return nil, err
	}
	line, _, _ := strings.Cut(out, "\n")
	return fields(line), nil
}

// explain describes the end of a job.
func explain(job map[string]string) string {
	text := fmt.Sprintf("reason %s, exit code %s, restarts %s, nodes %s",
		job["Reason"], job["ExitCode"], job["Restarts"], job["NodeList"])
	for _, name := range slices.Compact([]string{job["StdOut"], job["StdErr"]}) {
		if name == "" || name == "/dev/null" {
			continue
		}
		text += "\n" + tail(name, 20)
	}
	return text
}

// tail returns the last lines of a file under its name, or the error from reading it.
func tail(name string, lines int) string {
	text, err := os.ReadFile(name)
	if err != nil {
		return fmt.Sprintf("==> %v\n", err)
	}
	all := strings.SplitAfter(strings.TrimRight(string(text), "\n"), "\n")
	if len(all) > lines {
		all = all[len(all)-lines:]
	}
	return fmt.Sprintf("==> %s\n%s\n", name, strings.Join(all, ""))
}
