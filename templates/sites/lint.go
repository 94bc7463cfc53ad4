package sites

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/jobs"
)

// Apply sets the keys that the job does not set to the site's values.
func (p *Profile) Apply(job *jobs.Job) {
	s, d := &job.Slurm, p.Defaults
	fill(job, "slurm.partition", &s.Partition, d.Partition)
	fill(job, "slurm.account", &s.Account, d.Account)
	fill(job, "slurm.qos", &s.QOS, d.QOS)
	fill(job, "slurm.constraint", &s.Constraint, d.Constraint)
	fill(job, "slurm.reservation", &s.Reservation, d.Reservation)
	if s.MemoryPerCPU == "" && s.MemoryPerGPU == "" {
		fill(job, "slurm.mem", &s.Memory, d.Memory)
	}
	fill(job, "slurm.exclusive", &s.Exclusive, d.Exclusive)
	fill(job, "slurm.cpus_per_task", &s.CPUsPerTask, jobs.Cores(p.coresPerTask(job)))
	fill(job, "slurm.gpu_bind", &s.GPUBind, p.Step.GPUBind)
	if s.Hint == "" { // srun accepts only one of them
		fill(job, "slurm.cpu_bind", &s.CPUBind, p.Step.CPUBind)
	}
	if job.Train != nil && job.Train.Backend == jobs.BackendMPI {
		fill(job, "slurm.mpi", &s.MPI, p.Step.MPI)
	}
	fill(job, "setup.container.runtime", &job.Setup.Container.Runtime, p.Container.Runtime)
	if d.Time != "" && !job.IsSet("slurm.time") {
		job.LimitTime(d.Time)
	}
}

// coresPerTask returns the site's number of cores per rank, which is one GPU's share. It
// returns fewer if the ranks of a node would otherwise need more cores than the node has.
func (p *Profile) coresPerTask(job *jobs.Job) int {
	cores := p.Defaults.CPUsPerTask
	if r, ok := p.ResourceOf(job); ok && r.CPUsPerNode > 0 {
		cores = min(cores, max(1, r.CPUsPerNode/job.TasksPerNode()))
	}
	return cores
}

// fill sets *v if the job file does not set the key and the site has a value.
func fill[T comparable](job *jobs.Job, key string, v *T, value T) {
	var none T
	if !job.IsSet(key) && value != none {
		*v = value
	}
}

// Lint returns one diagnostic for each value that the site rejects, with its position in the
// job file. [Profile.Apply] must have been called for the job.
func (p *Profile) Lint(job *jobs.Job) jobs.Diagnostics {
	l := linter{p: p, job: job}
	l.required()
	l.account()
	for _, part := range job.SplitGroups() {
		if l.job = part; len(l.found) > 0 && len(job.Slurm.Groups) > 0 {
			break // one group with errors is enough
		}
		if r, ok := p.ResourceOf(part); ok {
			l.limits(r)
		} else {
			l.partition()
		}
	}
	l.job = job
	if c := job.Setup.Container; c.Image != "" && c.Runtime == jobs.ContainerNone {
		l.report("setup.container.image", "set setup.container.runtime", "the profile of %s does not define a container runtime", p.name)
	} else if c.Image != "" && job.RunsOnce() && (c.Runtime == jobs.ContainerPyxis || c.Runtime == jobs.ContainerEDF) {
		l.report("setup.container.image", "call srun with the container in the program", "the runtime %s is a part of srun, which does not start a program with command.run = \"once\"", c.Runtime)
	}
	l.vendor()
	for key, limit := range map[string]int{"restart.requeue": job.Restart.Requeue, "restart.on_failure": job.Restart.OnFailure} {
		if limit > 0 && !p.Requeue() && job.Slurm.Requeue == nil {
			l.report(key, "submit again after the job has ended, or ask your center", "jobs are not requeued at %s", p.name)
		}
	}
	return l.found
}

// Doubts returns warnings about values that the site accepts but that are probably not
// intended. [Profile.Apply] must have been called for the job.
func (p *Profile) Doubts(job *jobs.Job) jobs.Diagnostics {
	l := linter{p: p, job: job}
	s := job.Slurm
	if p.warning != nil {
		l.report("site", hints.Of(p.warning), "%v", p.warning)
	}
	if cores := p.coresPerTask(job); job.IsSet("slurm.cpus_per_task") && s.CPUsPerTask > 0 && int(s.CPUsPerTask) < cores {
		l.report("slurm.cpus_per_task", "remove the key to use the site's default",
			"%d overrides the %d cores that %s gives each rank", s.CPUsPerTask, cores, p.name)
	}
	if key := p.sharedCores(job); key != "" {
		l.report(key, "set slurm.exclusive = true",
			"\"all\" means the cores that Slurm gives the job; without slurm.exclusive, this is usually one core per task")
	}
	r, _ := p.ResourceOf(job)
	// 128 tasks with one core each may fill a node. Nodes with GPUs have more cores than GPUs.
	hasMore := job.TasksPerNode() == 1 || s.GPUsPerNode > 0 || r.CPUsPerNode > job.TasksPerNode()
	if s.Exclusive && job.IsSet("slurm.exclusive") && s.CPUsPerTask == 1 && !job.IsSet("slurm.cpus_per_task") && len(s.Groups) == 0 && hasMore {
		l.report("slurm.exclusive", `set slurm.cpus_per_task = "all", or the number of cores of each rank`,
			"the job gets all cores of its nodes, but each rank only 1 of them")
	}
	if s.GPUType != "" && p.Request.GPUs == "none" {
		l.report("slurm.gpus_per_node", "write the number only", "the type %q has no effect: jobs at %s get whole nodes and do not request GPUs", s.GPUType, p.name)
	}
	if t := job.Train; t != nil && t.Device == jobs.DeviceAuto && s.GPUsPerNode > 0 && p.HasForeignGPUs() {
		l.report("train.device", `set train.device = "cpu", or run your own program with [command]`,
			"the GPU code of the built-in trainer needs CUDA: the %s GPUs of %s stay idle, and ranks train on CPUs", p.GPUVendor(), p.name)
	}
	return l.found
}

// sharedCores returns the key that requests all cores of nodes that the job may share with other
// jobs. It returns an empty string if the nodes are not shared, or if the job requests a number of
// cores.
func (p *Profile) sharedCores(job *jobs.Job) string {
	for i, part := range job.SplitGroups() {
		r, _ := p.ResourceOf(part)
		isWhole := part.Slurm.Exclusive || r.Exclusive || p.Request.GPUs == "none" || slices.Contains(part.Slurm.Options, "--exclusive=topo")
		if isWhole || part.Slurm.CPUsPerTask != jobs.AllCores {
			continue
		}
		if groups := job.Slurm.Groups; len(groups) > 0 && groups[i].CPUsPerTask == jobs.AllCores {
			return fmt.Sprintf("slurm.group[%d].cpus_per_task", i)
		}
		return "slurm.cpus_per_task"
	}
	return ""
}

// HasForeignGPUs reports whether the built-in trainer does not support the site's GPUs.
func (p *Profile) HasForeignGPUs() bool {
	return p.GPUs.Vendor != "" && p.GPUs.Vendor != VendorNVIDIA
}

// GPUVendor returns the name of the vendor of the site's GPUs, such as "AMD", or "" if it is
// unknown.
func (p *Profile) GPUVendor() string { return vendorNames[p.GPUs.Vendor] }

// vendor rejects GPU training if the built-in trainer does not support the site's GPUs.
func (l *linter) vendor() {
	if t := l.job.Train; t != nil && t.Device == jobs.DeviceCUDA && l.p.HasForeignGPUs() {
		l.report("train.device", `use "cpu", or run your own program with [command]`,
			"the GPU code of the built-in trainer needs CUDA, and %s has %s GPUs", l.p.name, l.p.GPUVendor())
	}
}

type linter struct {
	p     *Profile
	job   *jobs.Job
	found jobs.Diagnostics
}

// report adds an error at a key, or at its table if the file does not set the key.
func (l *linter) report(key, allowed, format string, args ...any) {
	d := l.job.Near(key)
	d.Message, d.Allowed = key+": "+fmt.Sprintf(format, args...), allowed
	l.found = append(l.found, d)
}

// given returns whether the job sets each key that a site may require.
func (l *linter) given() map[string]bool {
	s := l.job.Slurm
	return map[string]bool{
		"account": s.Account != "", "time": s.Time != "", "partition": s.Partition != "", "qos": s.QOS != "",
		"constraint": s.Constraint != "", "mem": s.Memory != "" || s.MemoryPerCPU != "" || s.MemoryPerGPU != "", "gpus_per_node": s.GPUsPerNode > 0, "reservation": s.Reservation != "",
	}
}

func (l *linter) required() {
	given := l.given()
	for _, key := range l.p.Require {
		if !given[string(key)] {
			l.report("slurm."+string(key), l.note(string(key)), "required at %s", l.p.name)
		}
	}
}

// note returns the first note of the profile that contains word, or an empty string.
func (l *linter) note(word string) string {
	for _, n := range l.p.Notes {
		if strings.Contains(strings.ToLower(string(n)), word) {
			return string(n)
		}
	}
	return ""
}

func (l *linter) account() {
	s := l.job.Slurm
	suffix := l.p.Accounts.Suffix
	if by, ok := l.p.Accounts.SuffixByConstraint[jobs.Word(s.Constraint)]; ok {
		suffix = by
	}
	if s.Account == "" || suffix == "" || s.GPUsPerNode == 0 || strings.HasSuffix(string(s.Account), string(suffix)) {
		return
	}
	l.report("slurm.account", "", "%q does not end in %q, as accounts for GPU jobs on %s do", s.Account, suffix, l.p.name)
	l.found[len(l.found)-1].Suggestion = string(s.Account) + string(suffix)
}

func (r Resource) takes(partition, qos, constraint string) bool {
	return (r.Partition == "" || string(r.Partition) == partition) && (r.QOS == "" || string(r.QOS) == qos) &&
		(r.Constraint == "" || string(r.Constraint) == constraint)
}

// ResourceOf returns the resource of the profile that matches the job. It returns false if
// there is no match.
func (p *Profile) ResourceOf(job *jobs.Job) (Resource, bool) {
	s := job.Slurm
	for _, r := range p.Resources {
		if r.takes(string(s.Partition), string(s.QOS), string(s.Constraint)) {
			return r, true
		}
	}
	return Resource{}, false
}

// partition reports a misspelled partition.
func (l *linter) partition() {
	s := l.job.Slurm
	var partitions []string
	anyPartition := false
	for _, r := range l.p.Resources {
		anyPartition = anyPartition || r.Partition == ""
		if r.Partition != "" && !slices.Contains(partitions, string(r.Partition)) {
			partitions = append(partitions, string(r.Partition))
		}
	}
	// An unknown partition is not an error. Profiles contain only partitions for training, and
	// centers add new ones. Report only names that are similar to a known one.
	if near := jobs.Nearest(string(s.Partition), partitions); s.Partition != "" && !anyPartition && near != "" && !slices.Contains(partitions, string(s.Partition)) {
		l.report("slurm.partition", "known partitions: "+strings.Join(partitions, ", "), "the profile of %s has no partition %q", l.p.name, s.Partition)
		l.found[len(l.found)-1].Suggestion = near
	}
}

func (l *linter) limits(r Resource) {
	s := l.job.Slurm
	of := l.p.name + r.words()
	if nodes := l.job.AllocatedNodes(); r.Nodes > 0 && nodes > int(r.Nodes) {
		l.report("slurm.nodes", "", "%d nodes are more than the %d that a job may have on %s", nodes, r.Nodes, of)
	}
	if limit := r.Time.Duration(); limit > 0 && s.Time.Duration() > limit {
		l.report("slurm.time", "", "%s is longer than the limit of %s on %s", s.Time, r.Time, of)
	}
	if r.GPUsPerNode > 0 && s.GPUsPerNode > r.GPUsPerNode {
		l.report("slurm.gpus_per_node", "", "a node of %s has %d GPUs, not %d", of, r.GPUsPerNode, s.GPUsPerNode)
	}
	tasks := l.job.TasksPerNode()
	if cpus := tasks * int(s.CPUsPerTask); r.CPUsPerNode > 0 && cpus > int(r.CPUsPerNode) {
		key := "slurm.cpus_per_task"
		if !l.job.IsSet(key) {
			key = "slurm.tasks_per_node"
		}
		l.report(key, "", "%d ranks with %d cores each need %d cores; a node of %s has %d", tasks, s.CPUsPerTask, cpus, of, r.CPUsPerNode)
	}
	if r.Memory.Bytes() > 0 && s.Memory.Bytes() > r.Memory.Bytes() {
		l.report("slurm.mem", "", "%s is more than the %s of a node of %s", s.Memory, r.Memory, of)
	}
}

// words returns the jobs that a resource applies to, for messages.
func (r Resource) words() string {
	var all []string
	for _, w := range []struct{ name, value string }{
		{"partition", string(r.Partition)}, {"qos", string(r.QOS)}, {"constraint", string(r.Constraint)},
	} {
		if w.value != "" {
			all = append(all, w.name+" "+w.value)
		}
	}
	if len(all) == 0 {
		return ""
	}
	return " (" + strings.Join(all, ", ") + ")"
}
