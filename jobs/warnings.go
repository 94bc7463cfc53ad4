package jobs

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ddpbatch/ddpbatch/internal/lazyregexp"
)

// Limits above which [Job.Warnings] warns.
const (
	manyCores = 768 // more than the hardware threads of two 192-core CPUs
	largeRate = 100 // far above all published recipes
)

// Warnings returns warnings about values that are valid but probably not intended. It uses the
// job file only.
func (j *Job) Warnings() (warnings Diagnostics) {
	report := func(key, allowed, format string, args ...any) {
		d := j.Near(key)
		d.Message, d.Allowed = key+": "+fmt.Sprintf(format, args...), allowed
		warnings = append(warnings, d)
	}
	const limit = "slurm.time"
	if t := string(j.Slurm.Time); j.IsSet(limit) && strings.Count(t, ":") == 1 && !strings.Contains(t, "-") {
		d := j.Slurm.Time.Duration()
		report(limit, fmt.Sprintf("write %q, or %q for hours and minutes", formatClock(d), t+":00"),
			"Slurm reads %q as %s", t, FormatWallTime(d))
	}
	if cores := j.TasksPerNode() * int(j.Slurm.CPUsPerTask); cores > manyCores && j.IsSet("slurm.cpus_per_task") {
		report("slurm.cpus_per_task", "", "%d cores per node are more than most nodes have", cores)
	}
	if t := j.Train; t != nil && t.Optimizer.LR > largeRate {
		report("train.optimizer.lr", "", "training with a learning rate of %g is likely to diverge", t.Optimizer.LR)
	}
	const integrity = "network.integrity"
	if why := j.unprotectedTraffic(); why != "" && j.Network.Integrity == IntegrityMAC {
		report(integrity, "", "%q does not protect %s", j.Network.Integrity, why)
	}
	const checkpoints = "command.checkpoint_dir"
	if c := j.Command; c != nil && j.Sweep != nil && c.CheckpointDir != "" && !hasPlaceholder(string(c.CheckpointDir), PlaceholderRunDir, PlaceholderRunID) {
		report(checkpoints, fmt.Sprintf("write %q", strings.TrimRight(string(c.CheckpointDir), "/")+"/{"+PlaceholderRunID+"}"),
			"all trials of the sweep write their checkpoints to the same directory")
	}
	for _, name := range slices.Sorted(maps.Keys(j.Setup.Env)) {
		if unexpanded().MatchString(string(j.Setup.Env[name])) { // the value may be secret
			key := "setup.env." + string(name)
			report(key, fmt.Sprintf(`write the value itself, or set setup.steps = [{ env = { %s = "..." } }], which expands variables and "~/"`, name),
				"ranks get the value unchanged, with its variables or its ~")
		}
	}
	return append(warnings, j.warnAboutStopGrace()...)
}

// unexpanded matches values of variables that a shell would change.
var unexpanded = lazyregexp.New(`^~(?:/|$)|\$[A-Za-z_]|\$\{[A-Za-z_]`)

// unprotectedTraffic returns the messages from other nodes that network.integrity does not protect.
// It returns an empty string if it protects all of them.
func (j *Job) unprotectedTraffic() string {
	switch {
	case j.Ranks() == 1:
		return "anything: the job has one rank"
	case j.Command != nil:
		return "the connections of the user's program, such as NCCL's and Gloo's"
	case j.Train == nil:
		return ""
	case j.Train.Backend == BackendMPI:
		return `gradients: with train.backend = "mpi" the MPI library sends them`
	case j.Train.Backend == BackendNCCL:
		return `gradients: with train.backend = "nccl" NCCL sends them`
	case j.Train.Backend == BackendAuto && (j.Train.Device == DeviceCUDA || j.Train.Device == DeviceAuto && j.Slurm.GPUsPerNode > 0):
		return `gradients on GPUs, which NCCL sends: set train.backend = "tcp" if they must be protected`
	}
	return ""
}

// CheckSamples compares the batch sizes with the number of training samples. errs contains an
// error if the job cannot run a single step. warnings contains warnings.
func (j *Job) CheckSamples(samples int) (errs, warnings Diagnostics) {
	t := j.Train
	if t == nil || samples < 1 {
		return nil, nil
	}
	ranks, batch := j.Ranks(), t.Batch
	d := j.Near("train.batch")
	each := samples / ranks
	switch step := ranks * batch * max(1, t.Accumulate); {
	case t.Data.DropLast && each < batch:
		d.Message = fmt.Sprintf("train.batch: %d samples on %d ranks do not fill a batch of %d", samples, ranks, batch)
		d.Allowed = "use a smaller batch or fewer ranks, or set train.data.drop_last = false"
		return Diagnostics{d}, nil
	case ranks > samples && t.Data.Uneven == UnevenDrop:
		d = j.Near("train.data.uneven")
		d.Message = fmt.Sprintf(`train.data.uneven: %d samples do not divide among %d ranks, and "drop" drops all of them`,
			samples, ranks)
		d.Allowed = "use fewer ranks"
		return Diagnostics{d}, nil
	case ranks > samples:
		d.Message = fmt.Sprintf("train.batch: %d ranks are more than the %d training samples", ranks, samples)
		d.Allowed = "use fewer ranks"
		return nil, Diagnostics{d}
	case step > samples:
		d.Message = fmt.Sprintf("train.batch: a step needs %d samples on all ranks, but the data has only %d: "+
			"each epoch is a single step", step, samples)
		d.Allowed = "use a smaller batch"
		return nil, Diagnostics{d}
	}
	return nil, nil
}

// formatClock formats a time limit with hours, minutes, and seconds.
func formatClock(d time.Duration) string {
	s := int(d / time.Second)
	return fmt.Sprintf("%02d:%02d:%02d", s/3600, s/60%60, s%60)
}

// FormatWallTime formats a time limit for messages, such as "1 day 12 hours".
func FormatWallTime(d time.Duration) string {
	left := int64(d / time.Second)
	var parts []string
	for _, unit := range []struct {
		name    string
		seconds int64
	}{{"day", 86400}, {"hour", 3600}, {"minute", 60}, {"second", 1}} {
		n := left / unit.seconds
		left %= unit.seconds
		switch {
		case n == 1:
			parts = append(parts, "1 "+unit.name)
		case n > 1:
			parts = append(parts, fmt.Sprintf("%d %ss", n, unit.name))
		}
	}
	return strings.Join(parts, " ")
}
