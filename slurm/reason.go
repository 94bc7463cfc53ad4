package slurm

import "strings"

// Waiting is why a job waits, for people.
type Waiting struct {
	Why    string // a sentence's part: "other jobs come first"
	Advice string // what to do about it; empty where waiting is all there is to do
	// Stuck says that the job will not start by itself.
	Stuck bool
}

// waits are Slurm's reasons (Slurm 22.05 to 25.05, job_reason_codes and
// job_reason_string), but for limits: those have names that are made of parts.
var waits = map[string]Waiting{
	"Priority":                 {Why: "other jobs come first", Advice: "`sprio --jobs=ID` shows what its priority is made of; a smaller or shorter job may fit into a gap"},
	"Resources":                {Why: "it is the next in line, and not enough nodes are free yet", Advice: "a smaller or shorter job may start earlier"},
	"WaitingForScheduling":     {Why: "the scheduler has not looked at it yet"},
	"SchedDefer":               {Why: "the scheduler has not looked at it yet"},
	"Dependency":               {Why: "a job that it waits for has not ended", Advice: "`scontrol show job ID` names it under Dependency"},
	"DependencyNeverSatisfied": {Why: "a job that it waits for has failed", Advice: "cancel it, and submit it again once that one is right", Stuck: true},
	"BeginTime":                {Why: "its time to begin has not come; after a requeue Slurm waits about two minutes"},
	"JobHeldUser":              {Why: "it is held by its owner", Advice: "`scontrol release ID` lets it go", Stuck: true},
	"JobHeldAdmin":             {Why: "it is held by an administrator", Advice: "ask your centre why: only they can release it", Stuck: true},
	"JobHoldMaxRequeue":        {Why: "it was requeued too often, and is held", Advice: "look at its log; `scontrol release ID` lets it try again", Stuck: true},
	"Licenses":                 {Why: "it waits for a licence", Advice: "`scontrol show licenses` shows who has how many"},
	"ReqNodeNotAvail":          {Why: "nodes that it needs are down, drained or reserved, perhaps for maintenance that begins before it would end", Advice: "see `sinfo --list-reasons` and `scontrol show reservation`; a shorter slurm.time may fit before a maintenance"},
	"Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions": {Why: "nodes that it needs are down, drained or reserved for more important partitions", Advice: "see `sinfo --list-reasons`, or choose another [slurm] partition"},
	"NodeDown":                        {Why: "a node that it needs is down", Advice: "see `sinfo --list-reasons`"},
	"Reservation":                     {Why: "its reservation has not begun, or is full", Advice: "`scontrol show reservation` says when it begins"},
	"ReservationDeleted":              {Why: "its reservation was deleted", Advice: "cancel it, and submit it without [slurm] reservation", Stuck: true},
	"PartitionDown":                   {Why: "its partition is closed to new jobs", Advice: "`sinfo --summarize` shows which are up"},
	"PartitionInactive":               {Why: "its partition starts no jobs", Advice: "`sinfo --summarize` shows which are up"},
	"PartitionNodeLimit":              {Why: "it asks for more or fewer nodes than its partition allows", Advice: "change [slurm] nodes: see `scontrol show partition`", Stuck: true},
	"PartitionTimeLimit":              {Why: "it asks for more time than its partition allows", Advice: "lower [slurm] time to the partition's limit: `sinfo --format='%P %l'`", Stuck: true},
	"PartitionConfig":                 {Why: "its partition does not allow what it asks for", Advice: "compare `scontrol show partition`", Stuck: true},
	"AccountNotAllowed":               {Why: "its account may not use the partition", Advice: "set [slurm] account or partition: `sacctmgr show associations user=$USER format=account,partition,qos`", Stuck: true},
	"InvalidAccount":                  {Why: "its account is not valid", Advice: "set [slurm] account to one of `sacctmgr show associations user=$USER format=account`", Stuck: true},
	"InvalidQOS":                      {Why: "its QOS is not valid", Advice: "set [slurm] qos to one that your account may use: `sacctmgr show associations user=$USER format=account,qos`", Stuck: true},
	"QOSNotAllowed":                   {Why: "its account or partition does not allow the QOS", Advice: "set [slurm] qos to one that your account may use: `sacctmgr show associations user=$USER format=account,qos`", Stuck: true},
	"QOSUsageThreshold":               {Why: "your account has used too much of its share for this QOS", Advice: "choose another [slurm] qos, or wait for the usage to decay: `sshare`"},
	"QOSTimeLimit":                    {Why: "it asks for more time than its QOS allows", Advice: "lower [slurm] time", Stuck: true},
	"BadConstraints":                  {Why: "no node can ever do what it asks for", Advice: "compare [slurm] gpus_per_node, cpus_per_task, mem and constraint with `sinfo --Node --format='%N %c %m %G %f'`", Stuck: true},
	"Constraints":                     {Why: "no node has the features that it asks for now", Advice: "see `sinfo --format='%P %f %t'`"},
	"JobArrayTaskLimit":               {Why: "as many elements of the sweep run as it allows at a time", Advice: "`sweep.throttle` is that number"},
	"DeadLine":                        {Why: "it cannot end before its deadline", Advice: "submit it with a later one", Stuck: true},
	"JobLaunchFailure":                {Why: "it could not be started on its nodes", Advice: "tell your centre: the nodes or the job's account on them are broken", Stuck: true},
	"launch failed requeued held":     {Why: "it could not be started on its nodes, and is held", Advice: "tell your centre; `scontrol release ID` lets it try again", Stuck: true},
	"job requeued in held state":      {Why: "it was requeued and is held", Advice: "`scontrol release ID` lets it go", Stuck: true},
	"BurstBufferResources":            {Why: "there is no room in the burst buffer"},
	"BurstBufferStageIn":              {Why: "its data are copied to the burst buffer"},
	"BurstBufferOperation":            {Why: "the burst buffer failed", Advice: "`scontrol show job ID` says how; tell your centre", Stuck: true},
	"Prolog":                          {Why: "the prolog of an earlier job has not ended on its nodes"},
	"Cleaning":                        {Why: "what it left when it was requeued is being cleaned up"},
	"FrontEndDown":                    {Why: "no front end is there to run it"},
	"AssociationJobLimit":             {Why: "as many jobs run as your account allows"},
	"AssociationResourceLimit":        {Why: "your account has reached a limit of its resources", Advice: "`sshare --long` and `sacctmgr show associations user=$USER` show limits"},
	"AssociationTimeLimit":            {Why: "your account has used up its time", Advice: "choose another [slurm] account, or ask for more: `sshare --long`"},
	"QOSJobLimit":                     {Why: "as many jobs run as the QOS allows"},
	"QOSResourceLimit":                {Why: "the QOS has reached a limit of its resources", Advice: "`sacctmgr show qos` shows limits"},
	"AssocMaxJobsLimit":               {Why: "as many of your jobs run as your account allows"},
	"MaxMemPerLimit":                  {Why: "it asks for more memory than a node or CPU may give", Advice: "lower [slurm] mem", Stuck: true},
	"SystemFailure":                   {Why: "Slurm or a node failed", Advice: "tell your centre; cancel it, and submit it again", Stuck: true},
	"OutOfMemory":                     {Why: "it ran out of memory before, and is held", Advice: "ask for more [slurm] mem", Stuck: true},
	"AssocGrpSubmitJobsLimit":         {Why: "your account has as many jobs in the queue as it may"},
	"QOSGrpSubmitJobsLimit":           {Why: "the QOS has as many jobs in the queue as it may"},
	"QOSMaxSubmitJobPerUserLimit":     {Why: "you have as many jobs in the queue as the QOS allows"},
	"AssocMaxSubmitJobLimit":          {Why: "you have as many jobs in the queue as your account allows"},
	"AccountingPolicy":                {Why: "a limit of your account or QOS keeps it back", Advice: "`sacctmgr show qos` and `sshare --long` show limits"},
	"FedJobLock":                      {Why: "the clusters of the federation are agreeing on where it runs"},
	"PowerNotAvail":                   {Why: "there is not enough power for more nodes now"},
	"PowerReserved":                   {Why: "the power that it needs is reserved for other jobs"},
	"MaxJobsPerAccount":               {Why: "as many jobs of your account run as the QOS allows at a time"},
	"MaxSubmitJobsPerAccount":         {Why: "your account has as many jobs in the queue as the QOS allows"},
	"QOSMaxJobsPerUserLimit":          {Why: "as many of your jobs run as the QOS allows at a time"},
	"QOSMaxJobsPerAccountLimit":       {Why: "as many jobs of your account run as the QOS allows at a time"},
	"AssocGrpJobsLimit":               {Why: "as many jobs of your account run as it may have at a time"},
	"QOSGrpJobsLimit":                 {Why: "as many jobs run in the QOS as it may have at a time"},
	"AssocMaxWallDurationPerJobLimit": {Why: "it asks for more time than your account allows a job", Advice: "lower [slurm] time", Stuck: true},
	"QOSMaxWallDurationPerJobLimit":   {Why: "it asks for more time than the QOS allows a job", Advice: "lower [slurm] time, or choose another [slurm] qos", Stuck: true},
	"AssocGrpWallLimit":               {Why: "your account has used up its time", Advice: "choose another [slurm] account, or ask for more: `sshare --long`"},
	"QOSGrpWallLimit":                 {Why: "the QOS has used up its time", Advice: "choose another [slurm] qos"},
}

// limited are what limits are of, as parts of their names.
var limited = []struct{ part, what, key string }{
	{"GRES", "GPUs or other devices", "gpus_per_node or nodes"},
	{"Node", "nodes", "nodes"},
	{"CPU", "CPUs", "cpus_per_task, tasks_per_node or nodes"},
	{"Mem", "memory", "mem or nodes"},
	{"BB", "the burst buffer", "what it asks of the burst buffer"},
	{"License", "licences", "the licences"},
	{"Billing", "billed resources", "nodes, gpus_per_node or mem"},
	{"Energy", "energy", "nodes or time"},
	{"TRES", "resources", "nodes, gpus_per_node or mem"},
	{"Unknown", "resources", "nodes, gpus_per_node or mem"},
}

// ExplainPending says in plain words why a job waits, from the reason that Slurm gives.
// It is false for a reason that is not known.
func ExplainPending(reason string) (Waiting, bool) {
	// "ReqNodeNotAvail, UnavailableNodes:n1" and "(null)" after some.
	name, detail, _ := strings.Cut(reason, ",")
	for _, r := range []string{reason, strings.TrimSpace(name)} {
		w, ok := waits[r]
		if !ok {
			w, ok = explainLimit(r)
		}
		if ok {
			if _, nodes, named := strings.Cut(detail, "UnavailableNodes:"); named && nodes != "" {
				w.Why += " (" + nodes + ")"
			}
			return w, true
		}
	}
	return Waiting{}, false
}

// explainLimit explains the reasons that name a limit: whose, of all its jobs, of a
// user's or of each, and of what: "QOSMaxGRESPerUser", "AssocGrpCPUMinutesLimit",
// "MaxNodePerAccount".
func explainLimit(reason string) (Waiting, bool) {
	whose, show := "the QOS", "`sacctmgr show qos format=name,grptres,maxtres,maxtrespu,maxtrespa`"
	rest, qos := strings.CutPrefix(reason, "QOS")
	if !qos {
		if after, assoc := strings.CutPrefix(reason, "Assoc"); assoc {
			rest, whose, show = after, "your account", "`sacctmgr show associations user=$USER format=account,grptres,maxtres,grptresmins`"
		}
	}
	kind := ""
	for _, k := range []string{"Grp", "Max", "Min"} {
		if after, ok := strings.CutPrefix(rest, k); ok {
			kind, rest = k, after
		}
	}
	if kind == "" {
		return Waiting{}, false
	}
	for _, l := range limited {
		after, ok := strings.CutPrefix(strings.ToUpper(rest), strings.ToUpper(l.part))
		if !ok {
			continue
		}
		switch {
		case kind == "Min":
			return Waiting{Why: "it asks for fewer " + l.what + " than " + whose + " wants of a job", Advice: "raise [slurm] " + l.key + ", or choose another [slurm] qos", Stuck: true}, true
		case strings.Contains(after, "MINUTESPERJOB"):
			return Waiting{Why: "it asks for more " + l.what + ", times its hours, than " + whose + " allows a job", Advice: "lower [slurm] time, " + l.key + "; " + show, Stuck: true}, true
		case strings.Contains(after, "RUNMINUTES"):
			return Waiting{Why: "the jobs that run have taken all that " + whose + " may use of " + l.what + " at a time, counted in minutes", Advice: "a shorter [slurm] time needs less; " + show}, true
		case strings.Contains(after, "MINUTES"):
			return Waiting{Why: whose + " has used up its minutes of " + l.what, Advice: "choose another [slurm] account or qos, or ask your centre for more; " + show}, true
		case kind == "Grp":
			return Waiting{Why: "all jobs together have reached the limit of " + whose + " on " + l.what, Advice: "it starts when some of them end; " + show}, true
		case strings.Contains(after, "PERUSER"):
			return Waiting{Why: "your jobs together have reached the limit of " + whose + " on " + l.what, Advice: "it starts when some of them end, or lower [slurm] " + l.key + "; " + show}, true
		case strings.Contains(after, "PERACCOUNT"):
			return Waiting{Why: "the jobs of your account together have reached the limit of " + whose + " on " + l.what, Advice: "it starts when some of them end, or lower [slurm] " + l.key + "; " + show}, true
		}
		return Waiting{Why: "it asks for more " + l.what + " than " + whose + " allows a job", Advice: "lower [slurm] " + l.key + ", or choose another [slurm] qos; " + show, Stuck: true}, true
	}
	return Waiting{}, false
}
