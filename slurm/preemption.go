package slurm

import (
	"context"
	"fmt"
	"strings"
)

// Preemption says whether Slurm takes a job's nodes for another job, and who puts the job
// back into the queue.
type Preemption string

const (
	// NotPreempted is any job that Slurm does not preempt.
	NotPreempted Preemption = ""
	// Preempted is a job that was told to end and still has its nodes: it runs in its
	// GraceTime. It has to ask for its requeue: if it ends by itself, Slurm before 24.05
	// takes that for the job's end. With PreemptMode=CANCEL every version does.
	Preempted Preemption = "preempted"
	// PreemptedRequeued is the same, and slurmctld requeues the job when its batch script
	// ends, with any exit code. The job must not ask: Slurm would requeue it now, and
	// once more at the end of its next run.
	PreemptedRequeued Preemption = "preempted, requeued at its end"
	// TakenBack is a job that Slurm itself is putting back into the queue, or ending.
	TakenBack Preemption = "taken back"
)

// Preemption asks the controller whether it preempts a job, or an element of an array
// ("18_3"). Restarts is how often the job had been requeued when it started.
func (c Client) Preemption(ctx context.Context, id string, restarts int) (Preemption, error) {
	if err := checkIDs([]string{id}); err != nil {
		return NotPreempted, fmt.Errorf("asking about the preemption of %w", err)
	}
	job, err := c.showJob(ctx, id)
	if err != nil {
		return NotPreempted, fmt.Errorf("asking about the preemption of job %s: %w", id, err)
	}
	p := preemptionOf(job, restarts)
	if p == Preempted && job["Requeue"] == "1" && c.requeuesAtEnd(ctx, job) {
		p = PreemptedRequeued
	}
	return p, nil
}

// preemptionOf reads the preemption from the fields of a job. It does not know whether
// slurmctld requeues the job.
func preemptionOf(job map[string]string, restarts int) Preemption {
	// Slurm deletes PreemptTime when it requeues the job.
	switch running := job["JobState"] == string(StateRunning); {
	case running && job["PreemptTime"] != "":
		return Preempted
	case !running && (job["PreemptTime"] != "" || numberOrUnknown(job["Restarts"]) > restarts):
		return TakenBack
	}
	return NotPreempted
}

// requeuesAtEnd reports whether slurmctld requeues a job that ends in its GraceTime. It
// does since 24.05 (slurmctld, _slurm_rpc_complete_batch_script), if the job is preempted
// with PreemptMode=REQUEUE. If Slurm does not tell, the answer is no: a job that is
// requeued twice costs less than one that is not requeued.
func (c Client) requeuesAtEnd(ctx context.Context, job map[string]string) bool {
	config, err := c.Config(ctx)
	if err != nil {
		return false
	}
	major, minor, ok := parseVersion(config["SLURM_VERSION"])
	if !ok || major < 24 || major == 24 && minor < 5 {
		return false
	}
	return hasMode(c.preemptMode(ctx, config, job), "requeue")
}

// preemptMode returns the mode in which Slurm preempts a job: that of its partition or
// QOS, depending on PreemptType, or else that of the cluster.
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

// hasMode reports whether a list such as "GANG,REQUEUE" has a mode, in any case.
func hasMode(list, mode string) bool {
	for m := range strings.SplitSeq(list, ",") {
		if strings.EqualFold(strings.TrimSpace(m), mode) {
			return true
		}
	}
	return false
}

// showJob returns what the controller shows of a job, by field.
func (c Client) showJob(ctx context.Context, id string) (map[string]string, error) {
	out, err := c.run(ctx, "", "scontrol", "show", "job", "--oneliner", id)
	if err != nil {
		return nil, err
	}
	return parseFields(out), nil
}

// parseFields reads the fields that scontrol shows with --oneliner. The command line and
// the names of a job may contain anything. The fields that are used here come before
// them, and the first field of a name counts.
func parseFields(out string) map[string]string {
	fields := map[string]string{}
	for word := range strings.FieldsSeq(out) {
		key, value, ok := strings.Cut(word, "=")
		if _, twice := fields[key]; ok && !twice {
			fields[key] = told(value)
		}
	}
	return fields
}
