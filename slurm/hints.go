package slurm

import (
	"context"
	"errors"
	"os/exec"
	"slices"
	"strings"

	"github.com/ddpbatch/ddpbatch/internal/lazyregexp"
)

// The hints of this file name keys of the job file, such as slurm.time, and not options of
// sbatch. The users of ddpbatch know these keys. A translation would be needed in every
// place that prints a hint.
const (
	hintAccount       = "set slurm.account to one of `sacctmgr show associations user=$USER format=account`"
	hintAssociation   = "set slurm.account or slurm.partition to a pair of `sacctmgr show associations user=$USER format=account,partition,qos`"
	hintCPUs          = "lower slurm.nodes, slurm.tasks_per_node, or slurm.cpus_per_task to the size of the partition: `sinfo --format='%P %D %c'`"
	hintCheckQueue    = "check with `squeue --me` whether Slurm has the job before you submit again"
	hintConfig        = "run `module load slurm`, or set SLURM_CONF"
	hintController    = "check the controller with `scontrol ping`, and try again later"
	hintDownNodes     = "see `sinfo --list-reasons`, or choose a different slurm.partition"
	hintGRES          = "check slurm.gpus_per_node: `sinfo --format='%P %G'` lists the GPUs of each partition"
	hintMemory        = "lower slurm.mem to the memory of a node, in MB: `sinfo --Node --format='%N %m'`"
	hintMunge         = "check that munge runs on this host: `munge -n | unmunge`"
	hintNode          = "compare slurm.gpus_per_node, slurm.cpus_per_task, slurm.tasks_per_node, slurm.mem, and slurm.constraint with `sinfo --Node --format='%N %c %m %G %f'`"
	hintPartitionDown = "choose a different slurm.partition, or wait: `sinfo --summarize` lists the partitions that are up"
	hintQOS           = "set slurm.qos to one of `sacctmgr show associations user=$USER format=account,qos`"
	hintQOSTime       = "lower slurm.time, or choose a different slurm.qos"
	hintRelease       = "run `scontrol release JOBID`"
	hintReservation   = "set slurm.reservation to an active reservation of `scontrol show reservation`"
	hintTime          = "lower slurm.time to the partition's limit: `sinfo --format='%P %l'`"
	hintWaitOrAccount = "wait for jobs to end (`squeue --me`), or choose a different slurm.account"
	hintWaitOrQOS     = "wait for jobs to end (`squeue --me`), or choose a different slurm.qos"
)

// An advice is a hint for error messages that contain a text.
type advice struct {
	text string // in lower case
	hint string
}

// rejections are messages after which no job exists: a program did not send the request,
// or Slurm rejected it. The texts are from slurm_strerror (Slurm 22.05 to 25.05) and from
// the programs. The first match counts, so specific texts precede general ones.
// Messages that name a limit, such as QOSMaxGRESPerUser, are in pendingReasons.
var rejections = []advice{
	{"unable to process configuration file", hintConfig},
	{"could not establish a configuration source", hintConfig},
	{"i/o error writing script/environment to file", "tell your center that the controller's disk is full or not writable"},
	{"account or account/partition combination", hintAssociation},
	{"invalid account", hintAccount},
	{"invalid partition", "set slurm.partition to a partition of `sinfo --summarize`"},
	{"no partition specified", "set slurm.partition to a partition of `sinfo --summarize`: this cluster has no default"},
	{"user's group not permitted to use this partition", "choose a different slurm.partition: this one is limited to certain groups"},
	{"invalid qos", hintQOS},
	{"job violates accounting/qos policy", "lower slurm.nodes, slurm.gpus_per_node, or slurm.time to the limits of your account and QOS: `sacctmgr show qos format=name,maxwall,maxtrespu,maxsubmitpu`"},
	{"requested time limit is invalid", hintTime},
	{"time limit exceeds", hintTime},
	{"time limit specification required", "set slurm.time: this partition requires it"},
	{"more processors requested than permitted", hintCPUs},
	{"requested more tasks than available", hintCPUs},
	{"cpu count specification invalid", "lower slurm.cpus_per_task or slurm.tasks_per_node to the CPUs of a node: `sinfo --Node --format='%N %c'`"},
	{"node count specification invalid", "lower slurm.nodes to the size or limit of the partition: `scontrol show partition`"},
	{"requested node configuration is not available", hintNode},
	{"required node not available", hintDownNodes},
	{"required partition not available", hintPartitionDown},
	{"partition in down state", hintPartitionDown},
	{"requested partition configuration not available", hintDownNodes},
	{"memory specification can not be satisfied", hintMemory},
	{"memory required by task is not available", hintMemory},
	{"invalid memory specification", hintMemory},
	{"invalid generic resource (gres) specification", hintGRES},
	{"invalid trackable resource (tres) specification", hintGRES},
	{"invalid feature specification", "set slurm.constraint to features of `sinfo --format='%P %f'`"},
	{"requested reservation is invalid", hintReservation},
	{"access denied to requested reservation", "check that `scontrol show reservation` allows slurm.reservation for you or your slurm.account"},
	{"requested reservation not usable", hintReservation},
	{"invalid job array specification", "make the sweep smaller: the largest index is one less than MaxArraySize of `scontrol show config`"},
	{"job dependency problem", "remove the dependency on a job that no longer exists: `sacct` lists jobs that ended"},
	{"dependency specification", "write a dependency as type and job IDs, such as afterok:12"},
	{"invalid license specification", "request licenses of `scontrol show licenses` only"},
	{"access/permission denied", "check slurm.account, or ask your center for access"},
	{"user not found on host", "ask your center to add your user account to Slurm's controller"},
	{"batch script contains dos line breaks", "end the lines of the script with \\n only"},
	{"this does not look like a batch script", "start the script with #! and a path, such as #!/bin/bash"},
	{"unable to open file", "check that the run directory is visible on this host and that the script is readable"},
	{"unrecognized option", "compare `ddpbatch render job.toml` with `sbatch --help`, and tell the maintainers of the site's profile"},
	{"requires an argument", "compare `ddpbatch render job.toml` with `sbatch --help`, and tell the maintainers of the site's profile"},
	{"invalid --", "check the value of this option in the [slurm] section of the job file"},
	{"pathname of a file, directory or other parameter too long", "use a shorter run directory"},
	{"invalid job id specified", "check the job ID: the job ended long ago, or belongs to a different cluster"},
}

// noReplyErrors leave open whether the controller has handled the request. An empty hint
// depends on the request.
var noReplyErrors = []advice{
	{"socket timed out", ""},
	{"unable to contact slurm controller", hintController},
	{"zero bytes were transmitted", "check munge and the clock of this host with `munge -n | unmunge`; after sbatch, check `squeue --me` before you submit again"},
	{"communication connection failure", hintController},
	{"communications connection failure", hintController},
	{"message receive failure", ""},
	{"message send failure", ""},
	{"shutdown failure", ""},
	{"unexpected message received", ""},
	{"connection reset", ""},
	{"connection refused", hintController},
	{"connection timed out", hintController},
	{"insane message length", ""},
	{"received zero length message", ""},
	{"failed to send entire message", ""},
	{"standby mode", "try again in a minute: the controller is switching to its backup"},
	{"munge", hintMunge},
	{"protocol authentication error", hintMunge},
}

// findAdvice returns the first advice whose text is in message.
func findAdvice(list []advice, message string) (advice, bool) {
	message = strings.ToLower(message)
	i := slices.IndexFunc(list, func(a advice) bool { return strings.Contains(message, a.text) })
	if i < 0 {
		return advice{}, false
	}
	return list[i], true
}

// limitName matches the limits that sbatch names when it rejects a job.
var limitName = lazyregexp.New(`\b(?:QOS|Assoc|Partition)[A-Z]\w*`)

// findRejection returns the hint for a message after which no job exists.
func findRejection(message string) (hint string, ok bool) {
	for _, name := range limitName().FindAllString(message, -1) {
		if r, ok := ExplainPending("", name); ok && r.Hint != "" {
			return r.Hint, true
		}
	}
	a, ok := findAdvice(rejections, message)
	return a.hint, ok
}

// Hint returns what the user can do, or "" if the error is unknown.
func (e *CommandError) Hint() string {
	// A missing reply matters more than a rejection: sbatch retries and may have had both.
	a, noReply := findAdvice(noReplyErrors, e.Stderr)
	timedOut := errors.Is(e.Err, context.DeadlineExceeded)
	submits := e.Argv[0] == "sbatch" && !slices.Contains(e.Argv, "--test-only")
	switch {
	case errors.Is(e.Err, exec.ErrNotFound):
		return "use a host with Slurm's client programs; on a login node, run `module load slurm`"
	case submits && (timedOut || noReply && a.hint == ""):
		return hintCheckQueue
	case a.hint != "":
		return a.hint
	case noReply || timedOut:
		return hintController
	}
	hint, _ := findRejection(e.Stderr)
	return hint
}

// A PendingReason explains why a job is pending.
type PendingReason struct {
	Text  string // a phrase, such as "other jobs come first"
	Hint  string // empty if the user can only wait
	Stuck bool   // the job does not start unless the user or an administrator acts
}

// pendingReasons are Slurm's reasons (job_reason_codes and job_reason_string of Slurm 22.05
// to 25.05). Reasons that are composed of the parts of a limit are in explainLimit.
var pendingReasons = map[string]PendingReason{
	"Priority":                 {Text: "other jobs come first", Hint: "run `sprio --jobs=JOBID` to see its priority; a smaller or shorter job may start earlier"},
	"Resources":                {Text: "next in the queue; waiting for free nodes", Hint: "lower slurm.nodes or slurm.time to start earlier"},
	"WaitingForScheduling":     {Text: "waiting for the scheduler"},
	"SchedDefer":               {Text: "waiting for the scheduler"},
	"Dependency":               {Text: "waiting for a job that it depends on", Hint: "run `scontrol show job JOBID` to see its dependencies"},
	"DependencyNeverSatisfied": {Text: "a job that it depends on has failed", Hint: "cancel it, and submit it again after that job has succeeded", Stuck: true},
	"BeginTime":                {Text: "waiting for its begin time; after a requeue, Slurm waits about 2 minutes"},
	"JobHeldUser":              {Text: "held by its owner", Hint: hintRelease, Stuck: true},
	"JobHeldAdmin":             {Text: "held by an administrator", Hint: "ask your center: only an administrator can release it", Stuck: true},
	"JobHoldMaxRequeue":        {Text: "held after too many requeues", Hint: "check its log, then run `scontrol release JOBID`", Stuck: true},
	"Licenses":                 {Text: "waiting for a license", Hint: "run `scontrol show licenses` to see which are in use"},
	"ReqNodeNotAvail":          {Text: "required nodes are down, drained, or reserved, perhaps for maintenance", Hint: "see `sinfo --list-reasons` and `scontrol show reservation`; lower slurm.time to end before a maintenance"},
	"Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions": {Text: "required nodes are down, drained, or reserved for partitions with higher priority", Hint: hintDownNodes},
	"NodeDown":                        {Text: "a required node is down", Hint: hintDownNodes},
	"Reservation":                     {Text: "its reservation has not started, or is full", Hint: "run `scontrol show reservation` to see its start"},
	"ReservationDeleted":              {Text: "its reservation was deleted", Hint: "cancel it, and submit it without slurm.reservation", Stuck: true},
	"PartitionDown":                   {Text: "its partition accepts no jobs", Hint: hintPartitionDown},
	"PartitionInactive":               {Text: "its partition starts no jobs", Hint: hintPartitionDown},
	"PartitionNodeLimit":              {Text: "requests more or fewer nodes than its partition allows", Hint: "set slurm.nodes within the limits of `scontrol show partition`", Stuck: true},
	"PartitionTimeLimit":              {Text: "requests more time than its partition allows", Hint: hintTime, Stuck: true},
	"PartitionConfig":                 {Text: "its partition does not allow this request", Hint: "compare the job with `scontrol show partition`", Stuck: true},
	"AccountNotAllowed":               {Text: "its account may not use the partition", Hint: hintAssociation, Stuck: true},
	"InvalidAccount":                  {Text: "its account is not valid", Hint: hintAccount, Stuck: true},
	"InvalidQOS":                      {Text: "its QOS is not valid", Hint: hintQOS, Stuck: true},
	"QOSNotAllowed":                   {Text: "its account or partition does not allow the QOS", Hint: hintQOS, Stuck: true},
	"QOSUsageThreshold":               {Text: "your account has used too much of its share for this QOS", Hint: "choose a different slurm.qos, or wait until the usage in `sshare` decays"},
	"QOSTimeLimit":                    {Text: "requests more time than its QOS allows", Hint: hintQOSTime, Stuck: true},
	"BadConstraints":                  {Text: "no node can satisfy the request", Hint: hintNode, Stuck: true},
	"Constraints":                     {Text: "no node with the required features is available", Hint: "run `sinfo --format='%P %f %t'` to see features and states"},
	"JobArrayTaskLimit":               {Text: "the sweep already runs its maximum number of trials", Hint: "raise sweep.throttle"},
	"DeadLine":                        {Text: "cannot end before its deadline", Hint: "submit it with a later deadline", Stuck: true},
	"JobLaunchFailure":                {Text: "could not start on its nodes", Hint: "tell your center: the nodes, or your user account on them, do not work", Stuck: true},
	"launch failed requeued held":     {Text: "held because it could not start on its nodes", Hint: "tell your center, then run `scontrol release JOBID`", Stuck: true},
	"job requeued in held state":      {Text: "requeued and held", Hint: hintRelease, Stuck: true},
	"BurstBufferResources":            {Text: "waiting for space in the burst buffer"},
	"BurstBufferStageIn":              {Text: "copying its data to the burst buffer"},
	"BurstBufferOperation":            {Text: "the burst buffer failed", Hint: "run `scontrol show job JOBID` for the cause, and tell your center", Stuck: true},
	"Prolog":                          {Text: "waiting for the prolog of an earlier job on its nodes"},
	"Cleaning":                        {Text: "Slurm is cleaning up after its requeue"},
	"FrontEndDown":                    {Text: "no front end is available"},
	"AssociationJobLimit":             {Text: "your account runs its maximum number of jobs"},
	"AssociationResourceLimit":        {Text: "your account has reached a resource limit", Hint: "run `sshare --long` and `sacctmgr show associations user=$USER` to see the limits"},
	"AssociationTimeLimit":            {Text: "your account has used up its time", Hint: "choose a different slurm.account, or ask your center for more time: `sshare --long`"},
	"QOSJobLimit":                     {Text: "the QOS runs its maximum number of jobs"},
	"QOSResourceLimit":                {Text: "the QOS has reached a resource limit", Hint: "run `sacctmgr show qos` to see the limits"},
	"AssocMaxJobsLimit":               {Text: "your account runs its maximum number of your jobs"},
	"MaxMemPerLimit":                  {Text: "requests more memory than a node or CPU may provide", Hint: hintMemory, Stuck: true},
	"SystemFailure":                   {Text: "Slurm or a node failed", Hint: "tell your center; cancel it, and submit it again", Stuck: true},
	"OutOfMemory":                     {Text: "held because it ran out of memory before", Hint: "raise slurm.mem", Stuck: true},
	"AssocGrpSubmitJobsLimit":         {Text: "your account has its maximum number of jobs in the queue", Hint: hintWaitOrAccount},
	"QOSGrpSubmitJobsLimit":           {Text: "the QOS has its maximum number of jobs in the queue", Hint: hintWaitOrQOS},
	"QOSMaxSubmitJobPerUserLimit":     {Text: "you have the maximum number of jobs of the QOS in the queue", Hint: hintWaitOrQOS},
	"AssocMaxSubmitJobLimit":          {Text: "you have the maximum number of jobs of your account in the queue", Hint: hintWaitOrAccount},
	"AccountingPolicy":                {Text: "blocked by a limit of your account or QOS", Hint: "run `sacctmgr show qos` and `sshare --long` to see the limits"},
	"FedJobLock":                      {Text: "waiting for the federation to choose a cluster"},
	"PowerNotAvail":                   {Text: "waiting for power for more nodes"},
	"PowerReserved":                   {Text: "waiting for power that is reserved for other jobs"},
	"MaxJobsPerAccount":               {Text: "your account runs the maximum number of jobs of the QOS"},
	"MaxSubmitJobsPerAccount":         {Text: "your account has the maximum number of jobs of the QOS in the queue"},
	"QOSMaxJobsPerUserLimit":          {Text: "you run the maximum number of jobs of the QOS"},
	"QOSMaxJobsPerAccountLimit":       {Text: "your account runs the maximum number of jobs of the QOS"},
	"AssocGrpJobsLimit":               {Text: "your account runs its maximum number of jobs"},
	"QOSGrpJobsLimit":                 {Text: "the QOS runs its maximum number of jobs"},
	"AssocMaxWallDurationPerJobLimit": {Text: "requests more time than your account allows per job", Hint: "lower slurm.time", Stuck: true},
	"QOSMaxWallDurationPerJobLimit":   {Text: "requests more time than the QOS allows per job", Hint: hintQOSTime, Stuck: true},
	"AssocGrpWallLimit":               {Text: "your account has used up its time", Hint: "choose a different slurm.account, or ask your center for more time: `sshare --long`"},
	"QOSGrpWallLimit":                 {Text: "the QOS has used up its time", Hint: "choose a different slurm.qos"},
}

// ExplainPending explains the reason that Slurm gives for a pending job. It returns false
// if the reason is unknown. Commands in the hint name the job by id.
func ExplainPending(id, reason string) (PendingReason, bool) {
	// A detail may follow the name: "ReqNodeNotAvail, UnavailableNodes:n1".
	name, detail, _ := strings.Cut(reason, ",")
	for _, key := range []string{reason, strings.TrimSpace(name)} {
		r, ok := pendingReasons[key]
		if !ok {
			r, ok = explainLimit(key)
		}
		if ok {
			if _, nodes, _ := strings.Cut(detail, "UnavailableNodes:"); nodes != "" {
				r.Text += " (" + nodes + ")"
			}
			r.Hint = strings.ReplaceAll(r.Hint, "JOBID", id)
			return r, true
		}
	}
	return PendingReason{}, false
}

// limitedResources are the resources in the names of limits, with the keys that request
// them.
var limitedResources = []struct{ name, text, keys string }{
	{"GRES", "GPUs or other devices", "slurm.gpus_per_node or slurm.nodes"},
	{"Node", "nodes", "slurm.nodes"},
	{"CPU", "CPUs", "slurm.cpus_per_task, slurm.tasks_per_node, or slurm.nodes"},
	{"Mem", "memory", "slurm.mem or slurm.nodes"},
	{"BB", "the burst buffer", "the request for the burst buffer"},
	{"License", "licenses", "the request for licenses"},
	{"Billing", "billed resources", "slurm.nodes, slurm.gpus_per_node, or slurm.mem"},
	{"Energy", "energy", "slurm.nodes or slurm.time"},
	{"TRES", "resources", "slurm.nodes, slurm.gpus_per_node, or slurm.mem"},
	{"Unknown", "resources", "slurm.nodes, slurm.gpus_per_node, or slurm.mem"},
}

// explainLimit explains a reason that names a limit, such as "QOSMaxGRESPerUser",
// "AssocGrpCPUMinutesLimit", or "MaxNodePerAccount". The name consists of the owner of the
// limit, its kind (Grp, Max, or Min), the resource, and the scope.
func explainLimit(reason string) (PendingReason, bool) {
	owner, show := "the QOS", "`sacctmgr show qos format=name,grptres,maxtres,maxtrespu,maxtrespa`"
	rest, isQOS := strings.CutPrefix(reason, "QOS")
	if !isQOS {
		if after, ok := strings.CutPrefix(reason, "Assoc"); ok {
			rest, owner, show = after, "your account", "`sacctmgr show associations user=$USER format=account,grptres,maxtres,grptresmins`"
		}
	}
	kind := ""
	for _, k := range []string{"Grp", "Max", "Min"} {
		if after, ok := strings.CutPrefix(rest, k); ok {
			kind, rest = k, strings.ToUpper(after)
		}
	}
	if kind == "" {
		return PendingReason{}, false
	}
	for _, resource := range limitedResources {
		scope, ok := strings.CutPrefix(rest, strings.ToUpper(resource.name))
		if !ok {
			continue
		}
		what, lower := resource.text, "lower "+resource.keys
		switch {
		case kind == "Min":
			return PendingReason{Text: "requests less than the minimum that " + owner + " requires: " + what,
				Hint: "raise " + resource.keys + ", or choose a different slurm.qos", Stuck: true}, true
		case strings.Contains(scope, "MINUTESPERJOB"):
			return PendingReason{Text: "requests more minutes of " + what + " than " + owner + " allows per job",
				Hint: "lower slurm.time, " + resource.keys + ": " + show, Stuck: true}, true
		case strings.Contains(scope, "RUNMINUTES"):
			return PendingReason{Text: "running jobs use all minutes of " + what + " that " + owner + " allows at a time",
				Hint: "lower slurm.time, or wait for running jobs to end: " + show}, true
		case strings.Contains(scope, "MINUTES"):
			return PendingReason{Text: owner + " has used up its minutes of " + what,
				Hint: "choose a different slurm.account or slurm.qos, or ask your center for more: " + show}, true
		case kind == "Grp":
			return PendingReason{Text: "all jobs together have reached the limit of " + owner + " on " + what,
				Hint: "wait for running jobs to end: " + show}, true
		case strings.Contains(scope, "PERUSER"):
			return PendingReason{Text: "your jobs together have reached the limit of " + owner + " on " + what,
				Hint: lower + ", or wait for running jobs to end: " + show}, true
		case strings.Contains(scope, "PERACCOUNT"):
			return PendingReason{Text: "the jobs of your account together have reached the limit of " + owner + " on " + what,
				Hint: lower + ", or wait for running jobs to end: " + show}, true
		}
		return PendingReason{Text: "requests more " + what + " than " + owner + " allows per job",
			Hint: lower + ", or choose a different slurm.qos: " + show, Stuck: true}, true
	}
	return PendingReason{}, false
}
