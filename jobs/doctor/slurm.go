package doctor

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// A setting is a key of slurm.conf that can cause surprises. Its value is from the controller
// (scontrol show config; slurm.conf(5)).
type setting struct {
	key   string
	check func(value string) Finding
}

// Slurm checks the configuration of a cluster, as "scontrol show config" prints it.
func Slurm(config map[string]string) []Finding {
	var found []Finding
	for _, s := range settings {
		value, ok := config[s.key]
		if !ok {
			continue // this version of Slurm does not have the key
		}
		f := s.check(value)
		if value == "(null)" && f.Level == OK {
			continue // not set, and no problem
		}
		f.Part = "slurm " + s.key
		if f.Detail != "" {
			f.Detail = ": " + f.Detail
		}
		f.Detail = value + f.Detail
		found = append(found, f)
	}
	return found
}

func listContains(list, word string) bool {
	return slices.Contains(strings.FieldsFunc(strings.ToLower(list), func(r rune) bool { return r == ',' || r == ' ' }), word)
}

// parseSeconds returns the number at the start of a value such as "30 sec".
func parseSeconds(value string) int {
	n, _ := strconv.Atoi(strings.Fields(value + " x")[0])
	return n
}

var settings = []setting{
	{"SLURM_VERSION", func(v string) Finding {
		var year, month int
		fmt.Sscanf(v, "%d.%d", &year, &month)
		switch release := 100*year + month; {
		case release == 0:
			return warn("", "not a version that is known", "tell the maintainers of ddpbatch")
		case release < 2011:
			return warn("", "older than 20.11: steps share their nodes, and --overlap is not known", "ask the centre for a newer Slurm; leave restart.spare_nodes and min_nodes out")
		case release >= 2205 && release < 2311:
			return pass("", "srun does not take --cpus-per-task from the job: ddpbatch says it to every step; in a script of your own say srun -c")
		}
		return pass("", "")
	}},
	{"JobFileAppend", func(v string) Finding {
		if v == "0" {
			return pass("", "a requeued job's log is begun anew; ddpbatch's scripts say --open-mode=append, and so should your own")
		}
		return pass("", "")
	}},
	{"JobRequeue", func(v string) Finding {
		if v == "0" {
			return pass("", "jobs come back after a preemption or the loss of a node only if they ask for it: ddpbatch's scripts have --requeue, unless the site's profile forbids it; a script of your own needs it, too")
		}
		return pass("", "")
	}},
	{"KillWait", func(v string) Finding {
		if parseSeconds(v) < 30 {
			return warn("", "that is all the time from SIGTERM to SIGKILL at the time limit and at scancel", "keep slurm.signal_before_end longer than a save takes")
		}
		return pass("", "from SIGTERM to SIGKILL")
	}},
	{"PreemptMode", func(v string) Finding {
		switch {
		case listContains(v, "cancel"):
			return warn("", "Slurm cancels a job that it preempts; with a GraceTime ddpbatch saves and requeues it before that", "set checkpoint.every to what you can lose, and submit again if the job does not come back; or use a partition whose jobs are not preempted")
		case listContains(v, "suspend"), listContains(v, "gang"):
			return warn("", "jobs may be stopped and go on later: NCCL and other programs' timeouts may run out meanwhile", "ask the centre for a partition without it")
		case listContains(v, "requeue"):
			return pass("", "a job that is preempted comes back; ddpbatch saves and goes on")
		}
		return pass("", "")
	}},
	{"PreemptParameters", checkPreemptionSignal},
	{"SlurmctldParameters", checkPreemptionSignal},
	{"RequeueExit", func(v string) Finding {
		if parseCodes(v)[3] {
			return fail("", "the site requeues jobs that exit with 3, which ddpbatch's do when they are stopped on purpose", "ask the centre to take 3 out of RequeueExit")
		}
		return pass("", "")
	}},
	{"RequeueExitHold", func(v string) Finding {
		if parseCodes(v)[3] {
			return warn("", "jobs that exit with 3, as ddpbatch's do when they are stopped, are requeued and held", "release them with scontrol release, or cancel them")
		}
		return pass("", "")
	}},
	{"ProctrackType", func(v string) Finding {
		if !strings.HasSuffix(v, "/cgroup") {
			return warn("", "processes that leave their parents outlive the job", "after a crash look for your processes on the nodes; the centre should use proctrack/cgroup")
		}
		return pass("", "")
	}},
	{"TaskPlugin", func(v string) Finding {
		if !strings.Contains(v, "cgroup") && !strings.Contains(v, "affinity") {
			return warn("", "tasks are not bound to their cores: ranks get in each other's way, and in that of other jobs", "ask for whole nodes (slurm.exclusive), or bind in the program (taskset, OMP_PROC_BIND)")
		}
		if !strings.Contains(v, "cgroup") {
			return pass("", "cores are bound, and GPUs and memory are not confined to the job")
		}
		return pass("", "")
	}},
	{"SelectType", func(v string) Finding {
		if strings.HasSuffix(v, "/linear") {
			return warn("", "jobs get whole nodes, and --gpus-per-task is refused", "ask for all of a node's GPUs and cores")
		}
		return pass("", "")
	}},
	{"PropagateResourceLimits", func(v string) Finding {
		if listContains(v, "all") || listContains(v, "memlock") {
			return pass("", "limits of the shell that submits go with the job: see the limits")
		}
		return pass("", "")
	}},
	{"MpiDefault", func(string) Finding { return pass("", "ddpbatch says --mpi itself") }},
	{"SlurmdTimeout", func(v string) Finding {
		if s := parseSeconds(v); s == 0 || s > 600 {
			return warn("", "Slurm takes that long to see that a node is down; 0 is never", "ddpbatch sees it by network.heartbeat_timeout (60 s)")
		}
		return pass("", "until Slurm sees that a node is down")
	}},
	{"AccountingStorageType", func(v string) Finding {
		if v == "(null)" || strings.HasSuffix(v, "/none") {
			return warn("", "Slurm forgets jobs MinJobAge after their end", "`ddpbatch status` soon after, or read ended.json in the run directory")
		}
		return pass("", "")
	}},
	{"AccountingStoreFlags", func(v string) Finding {
		if listContains(v, "job_env") {
			return warn("", "the environment of each job is kept in the accounts, where others may read it", "give secrets by [setup.secrets], never by variables of the shell that submits")
		}
		return pass("", "")
	}},
	{"MinJobAge", func(string) Finding { return pass("", "how long the controller remembers a job") }},
}

// checkPreemptionSignal reports whether Slurm sends the signal of --signal also at a preemption. The
// parameter is PreemptParameters=send_user_signal since Slurm 23.02. Earlier versions use
// SlurmctldParameters=preempt_send_user_signal, which later versions still read.
func checkPreemptionSignal(v string) Finding {
	if strings.Contains(strings.ToLower(v), "send_user_signal") {
		return pass("", "--signal comes at a preemption, too")
	}
	return pass("", "")
}

// parseCodes returns the exit codes in a list such as "1-3,7".
func parseCodes(list string) map[int]bool {
	all := map[int]bool{}
	for part := range strings.SplitSeq(list, ",") {
		first, last, _ := strings.Cut(strings.TrimSpace(part), "-")
		lo, err := strconv.Atoi(first)
		if err != nil {
			continue
		}
		hi, err := strconv.Atoi(last)
		if err != nil {
			hi = lo
		}
		for code := lo; code <= min(hi, 255); code++ {
			all[code] = true
		}
	}
	return all
}
