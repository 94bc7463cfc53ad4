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
			return warn("", "unknown version", "tell the maintainers of ddpbatch")
		case release < 2011:
			return warn("", "older than 20.11: steps share their nodes, and srun has no --overlap", "ask the center for a newer Slurm, and do not set restart.spare_nodes or restart.min_nodes")
		case release >= 2205 && release < 2311:
			return pass("", "srun ignores the job's --cpus-per-task: ddpbatch passes it to each step; use srun -c in your own scripts")
		}
		return pass("", "")
	}},
	{"JobFileAppend", func(v string) Finding {
		return remarkIf(v == "0", pass("", "a requeued job overwrites its log: ddpbatch's scripts set --open-mode=append; set it in your own scripts as well"))
	}},
	{"JobRequeue", func(v string) Finding {
		return remarkIf(v == "0", pass("", "jobs are requeued after a preemption or a node failure only with --requeue: ddpbatch's scripts set it, unless the site's profile forbids it; set it in your own scripts as well"))
	}},
	{"KillWait", func(v string) Finding {
		if parseSeconds(v) < 30 {
			return warn("", "short time from SIGTERM to SIGKILL at the time limit and at scancel", "set slurm.signal_before_end to more than the time of a save")
		}
		return pass("", "from SIGTERM to SIGKILL")
	}},
	{"PreemptMode", func(v string) Finding {
		switch {
		case listContains(v, "cancel"):
			return warn("", "Slurm cancels preempted jobs; within a GraceTime, ddpbatch saves and requeues them first", "set checkpoint.every to the work that you can lose, and submit again if the job is not requeued; or use a partition without preemption")
		case listContains(v, "suspend"), listContains(v, "gang"):
			return warn("", "jobs may be suspended and continue later: timeouts of NCCL and other libraries may expire", "ask the center for a partition without it")
		case listContains(v, "requeue"):
			return pass("", "preempted jobs are requeued; ddpbatch saves and resumes")
		}
		return pass("", "")
	}},
	{"PreemptParameters", checkPreemptionSignal},
	{"SlurmctldParameters", checkPreemptionSignal},
	{"RequeueExit", func(v string) Finding {
		return remarkIf(parseCodes(v)[3], fail("", "the site requeues jobs with exit code 3, the code of stopped ddpbatch jobs", "ask the center to remove 3 from RequeueExit"))
	}},
	{"RequeueExitHold", func(v string) Finding {
		return remarkIf(parseCodes(v)[3], warn("", "jobs with exit code 3, the code of stopped ddpbatch jobs, are requeued and held", "run `scontrol release JOB`, or cancel the job"))
	}},
	{"ProctrackType", func(v string) Finding {
		return remarkIf(!strings.HasSuffix(v, "/cgroup"), warn("", "processes that detach from their parents outlive the job", "check the nodes for processes of yours after a crash, and ask the center to use proctrack/cgroup"))
	}},
	{"TaskPlugin", func(v string) Finding {
		if !strings.Contains(v, "cgroup") && !strings.Contains(v, "affinity") {
			return warn("", "tasks are not bound to cores: ranks and other jobs compete for the same cores", "request whole nodes (slurm.exclusive), or bind in the program (taskset, OMP_PROC_BIND)")
		}
		return remarkIf(!strings.Contains(v, "cgroup"), pass("", "cores are bound, but GPUs and memory are not limited to the job"))
	}},
	{"SelectType", func(v string) Finding {
		return remarkIf(strings.HasSuffix(v, "/linear"), warn("", "jobs get whole nodes, and --gpus-per-task is rejected", "request all GPUs and cores of a node"))
	}},
	{"PropagateResourceLimits", func(v string) Finding {
		return remarkIf(listContains(v, "all") || listContains(v, "memlock"), pass("", "the limits of the submitting shell apply to the job"))
	}},
	{"MpiDefault", func(string) Finding { return pass("", "ddpbatch always passes --mpi") }},
	{"SlurmdTimeout", func(v string) Finding {
		if s := parseSeconds(v); s == 0 || s > 600 {
			return warn("", "time until Slurm detects a down node; 0 means never", "rely on network.heartbeat_timeout (60 s): ddpbatch detects lost ranks itself")
		}
		return pass("", "time until Slurm detects a down node")
	}},
	{"AccountingStorageType", func(v string) Finding {
		return remarkIf(v == "(null)" || strings.HasSuffix(v, "/none"), warn("", "no accounting: Slurm forgets jobs MinJobAge after their end", "run `ddpbatch status` soon after the end, or read ended.json in the run directory"))
	}},
	{"AccountingStoreFlags", func(v string) Finding {
		return remarkIf(listContains(v, "job_env"), warn("", "accounting stores the environment of each job, which others may read", "pass secrets through [setup.secrets], not in variables of the submitting shell"))
	}},
	{"MinJobAge", func(string) Finding { return pass("", "time until the controller forgets a job that has ended") }},
}

// checkPreemptionSignal reports whether Slurm sends the signal of --signal also at a preemption.
// The parameter is PreemptParameters=send_user_signal since Slurm 23.02. Earlier versions use
// SlurmctldParameters=preempt_send_user_signal, which later versions still read.
func checkPreemptionSignal(v string) Finding {
	return remarkIf(strings.Contains(strings.ToLower(v), "send_user_signal"), pass("", "Slurm also sends the signal of --signal at a preemption"))
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
