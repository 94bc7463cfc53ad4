package slurm

import "strings"

// answer is something that Slurm's programs say when they refuse or fail, in
// lower case, and what a user can do about it in terms of the job file.
type answer struct{ says, hint string }

// refusals are definite: the controller, or sbatch before asking it, has said
// no. The texts are those of slurm_strerror (Slurm 22.05 to 25.05) and of the
// programs; the first that fits counts, so the narrower ones come first.
var refusals = []answer{
	{"i/o error writing script/environment to file", "the controller cannot write where it keeps jobs: tell the administrator that its disk is full or broken"},
	{"account or account/partition combination", "set [slurm] account to one of `sacctmgr show associations user=$USER format=account,partition,qos`, and check that it may use [slurm] partition"},
	{"invalid account", "set [slurm] account to one of `sacctmgr show associations user=$USER format=account`"},
	{"invalid partition", "set [slurm] partition to one that `sinfo --summarize` lists"},
	{"no partition specified", "set [slurm] partition: this cluster has no default; `sinfo --summarize` lists them"},
	{"user's group not permitted to use this partition", "choose another [slurm] partition: yours is open to certain groups only"},
	{"invalid qos", "set [slurm] qos to one that your account may use: `sacctmgr show associations user=$USER format=account,qos`"},
	{"qosmaxsubmitjob", "you have as many jobs as the QOS allows: wait for some (`squeue --me`), or choose another [slurm] qos"},
	{"assocmaxsubmitjob", "you have as many jobs as your account allows: wait for some (`squeue --me`), or choose another [slurm] account"},
	{"qosmaxnode", "lower [slurm] nodes, or choose another [slurm] qos: the QOS limits the nodes of a job"},
	{"qosmaxgres", "lower [slurm] gpus_per_node or nodes, or choose another [slurm] qos: the QOS limits the GPUs of a job"},
	{"qosmaxwall", "lower [slurm] time, or choose another [slurm] qos: the QOS limits the time of a job"},
	{"qosmincpunotsatisfied", "ask for more: the QOS has a minimum size; or choose another [slurm] qos"},
	{"job violates accounting/qos policy", "lower [slurm] nodes, gpus_per_node or time to the limits of your account and QOS: `sacctmgr show qos format=name,maxwall,maxtrespu,maxsubmitpu`"},
	{"requested time limit is invalid", "lower [slurm] time to the partition's limit: `sinfo --format='%P %l'`"},
	{"time limit exceeds", "lower [slurm] time to the partition's limit: `sinfo --format='%P %l'`"},
	{"partitiontimelimit", "lower [slurm] time to the partition's limit: `sinfo --format='%P %l'`"},
	{"time limit specification required", "set [slurm] time: this partition wants one"},
	{"more processors requested than permitted", "lower [slurm] nodes, or tasks_per_node times cpus_per_task, to what the partition has: `sinfo --format='%P %D %c'`"},
	{"requested more tasks than available", "lower [slurm] nodes, or tasks_per_node times cpus_per_task, to what the partition has: `sinfo --format='%P %D %c'`"},
	{"cpu count specification invalid", "lower [slurm] cpus_per_task times tasks_per_node to what a node has: `sinfo --Node --format='%N %c'`"},
	{"partitionnodelimit", "lower [slurm] nodes to the partition's limit: `scontrol show partition`"},
	{"node count specification invalid", "lower [slurm] nodes: the partition has or allows fewer; see `scontrol show partition`"},
	{"requested node configuration is not available", "no node has all of [slurm] gpus_per_node, cpus_per_task times tasks_per_node, mem and constraint: compare `sinfo --Node --format='%N %c %m %G %f'`"},
	{"required node not available", "the nodes asked for are down or reserved: see `sinfo --list-reasons`, or choose another [slurm] partition"},
	{"required partition not available", "the partition is closed: `sinfo --summarize` shows which are up; choose another [slurm] partition, or wait"},
	{"partition in down state", "the partition is closed: `sinfo --summarize` shows which are up; choose another [slurm] partition, or wait"},
	{"requested partition configuration not available", "the nodes asked for are down or reserved: see `sinfo --list-reasons`, or choose another [slurm] partition"},
	{"memory specification can not be satisfied", "lower [slurm] mem to what a node has, in MB: `sinfo --Node --format='%N %m'`"},
	{"memory required by task is not available", "lower [slurm] mem to what a node has, in MB: `sinfo --Node --format='%N %m'`"},
	{"invalid memory specification", "lower [slurm] mem to what a node has, in MB: `sinfo --Node --format='%N %m'`"},
	{"invalid generic resource (gres) specification", "check [slurm] gpus_per_node: `sinfo --format='%P %G'` shows which partitions have GPUs, and their type"},
	{"invalid trackable resource (tres) specification", "check [slurm] gpus_per_node: `sinfo --format='%P %G'` shows which partitions have GPUs, and their type"},
	{"invalid feature specification", "set [slurm] constraint to features that exist: `sinfo --format='%P %f'`"},
	{"requested reservation is invalid", "set [slurm] reservation to one that `scontrol show reservation` lists as ACTIVE"},
	{"access denied to requested reservation", "[slurm] reservation is not open to you or your [slurm] account: see `scontrol show reservation`"},
	{"requested reservation not usable", "[slurm] reservation has not begun, or is over: see `scontrol show reservation`"},
	{"invalid job array specification", "make the sweep smaller: `scontrol show config | grep MaxArraySize` is one more than the largest index"},
	{"job dependency problem", "a job that this one waits for does not exist any more: look for it with `sacct`, or leave the dependency out"},
	{"dependency specification", "a dependency is a type and job ids, such as afterok:12"},
	{"invalid license specification", "ask only for licences that `scontrol show licenses` lists"},
	{"access/permission denied", "Slurm does not let this user or account do that: ask your centre, and check [slurm] account"},
	{"user not found on host", "the controller does not know this user: ask your centre to add the account to Slurm"},
	{"batch script contains dos line breaks", "write the lines of the script with \\n alone"},
	{"this does not look like a batch script", "the first line of a script has to be #! and a path, such as #!/bin/bash"},
	{"unable to open file", "sbatch cannot read the script: is the run directory visible on this host?"},
	{"unrecognized option", "this version of Slurm does not have an option that the batch script or the command line uses: compare `ddpbatch render job.toml` with `sbatch --help`, and tell the maintainers of the site's profile"},
	{"requires an argument", "compare the options in `ddpbatch render job.toml` with `sbatch --help`, and tell the maintainers of the site's profile"},
	{"invalid --", "check the value of that option in the job file's [slurm] section"},
	{"pathname of a file, directory or other parameter too long", "use a shorter run directory"},
	{"invalid job id specified", "Slurm does not know this job: it ended long ago, or belongs to another cluster"},
}

// silences leave open whether the controller has acted on a request. Where the
// hint is empty, it depends on what was asked.
var silences = []answer{
	{"socket timed out", ""},
	{"unable to contact slurm controller", "the controller does not answer: ask it with `scontrol ping`, and try again later"},
	{"zero bytes were transmitted", "the connection to the controller broke: is munge running on this host, and its clock right? Try `munge -n | unmunge`; after sbatch, look with `squeue --me` before you submit again"},
	{"communication connection failure", "the controller does not answer: ask it with `scontrol ping`, and try again later"},
	{"communications connection failure", "the controller does not answer: ask it with `scontrol ping`, and try again later"},
	{"message receive failure", ""},
	{"message send failure", ""},
	{"shutdown failure", ""},
	{"unexpected message received", ""},
	{"connection reset", ""},
	{"connection refused", "the controller does not answer: ask it with `scontrol ping`, and try again later"},
	{"connection timed out", "the controller does not answer: ask it with `scontrol ping`, and try again later"},
	{"insane message length", ""},
	{"received zero length message", ""},
	{"failed to send entire message", ""},
	{"standby mode", "the controller is changing over to its backup: try again in a minute"},
	{"munge", "is munge running on this host? Try `munge -n | unmunge`"},
	{"protocol authentication error", "is munge running on this host? Try `munge -n | unmunge`"},
}

// unsent are failures before any request: the program does not know whom to ask.
var unsent = []answer{
	{"unable to process configuration file", "Slurm's client finds no configuration: try `module load slurm`, or set SLURM_CONF"},
	{"could not establish a configuration source", "Slurm's client finds no configuration: try `module load slurm`, or set SLURM_CONF"},
}

// find returns the first answer that occurs in a text.
func find(answers []answer, said string) (answer, bool) {
	said = strings.ToLower(said)
	for _, a := range answers {
		if strings.Contains(said, a.says) {
			return a, true
		}
	}
	return answer{}, false
}
