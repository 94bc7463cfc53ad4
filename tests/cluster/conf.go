//go:build linux

package cluster

import (
	"fmt"
	"slices"
	"strings"
)

// slurmConf returns the text of slurm.conf (slurm.conf(5), Slurm 22.05).
func slurmConf(o Options, net subnet) string {
	d := layout(o.Dir)
	lines := []string{
		fmt.Sprintf("ClusterName=test%d", net.id),
		fmt.Sprintf("SlurmctldHost=%s(%s)", controlName, net.control()),
		"SlurmUser=root",
		"SlurmdUser=root",
		"AuthType=auth/munge",
		"AuthInfo=socket=" + d.mungeSocket(),
		"StateSaveLocation=" + d.state(),
		"SlurmdSpoolDir=" + d.spool("%n"),
		"SlurmctldPidFile=" + d.run("slurmctld.pid"),
		"SlurmdPidFile=" + d.run("slurmd.%n.pid"),
		"SlurmctldLogFile=" + d.log(controlName),
		"SlurmdLogFile=" + d.log("%n"),
		"SlurmctldDebug=verbose",
		"SlurmdDebug=verbose",

		// No cgroups: a test machine may have version 1, version 2, or none.
		"ProctrackType=proctrack/linuxproc",
		"TaskPlugin=task/none",
		"JobAcctGatherType=jobacct_gather/none",
		"MpiDefault=none",
		"TmpFS=/dev/shm", // PMIx names files after the step and puts them there; the nodes share /tmp
		"MailProg=/bin/true",
		// Slurm may count more CPUs than the machine has. It counts CPUs only, so that jobs can
		// share a node.
		"SlurmdParameters=config_overrides",
		"SelectType=select/cons_tres",
		"SelectTypeParameters=CR_CPU",

		// Short intervals, because tests wait for all of these.
		"SchedulerParameters=sched_interval=1,batch_sched_delay=0",
		// slurmctld pings the nodes three times in this period. If it retries the ping of a lost node for
		// longer than a third of it, slurmctld 24.11 can also count healthy nodes as lost.
		"SlurmdTimeout=60",
		"TCPTimeout=2",
		"KillWait=10",
		"ReturnToService=2",
		// Jobs can be queried for as long as a test runs.
		"MinJobAge=86400",
		"MaxJobCount=10000",

		"PreemptType=preempt/partition_prio",
		"PreemptMode=REQUEUE",
	}
	if o.Accounting {
		lines = append(lines,
			"AccountingStorageType=accounting_storage/slurmdbd",
			fmt.Sprintf("AccountingStorageHost=%s", net.control()),
			"AccountingStoragePass="+d.mungeSocket(), // clients do not use AuthInfo for slurmdbd
			"AccountingStoreFlags=job_comment",
		)
	}
	var types, all []string
	if o.GPUs > 0 {
		types = append(types, "gpu")
		all = append(all, strings.Replace(fmt.Sprintf("gpu:%s:%d", o.GPUType, o.GPUs), "::", ":", 1))
	}
	if o.Gres != "" {
		name, _, _ := strings.Cut(o.Gres, ":")
		types, all = append(types, name), append(all, o.Gres)
	}
	gres := ""
	if len(types) > 0 {
		lines = append(lines, "GresTypes="+strings.Join(types, ","))
		gres = " Gres=" + strings.Join(all, ",")
	}
	for i := 1; i <= o.Nodes; i++ {
		lines = append(lines, fmt.Sprintf("NodeName=%s NodeHostname=%[1]s NodeAddr=%s CPUs=%d RealMemory=4000%s",
			nodeName(i), net.management(i), o.CPUs, gres))
	}
	if o.Nodes == 0 {
		lines = append(lines, "NodeName=none State=FUTURE") // slurmctld requires at least one node
	}
	lines = append(lines,
		"PartitionName=batch Nodes=ALL Default=YES PriorityTier=10 PreemptMode=OFF",
		"PartitionName=low Nodes=ALL PriorityTier=1 PreemptMode=REQUEUE",
		"PartitionName=high Nodes=ALL PriorityTier=100 PreemptMode=OFF",
	)
	return strings.Join(override(lines, o.SlurmConf), "\n") + "\n"
}

// slurmdbdConf returns the text of slurmdbd.conf (slurmdbd.conf(5)). The database accepts every
// client that can open its socket.
func slurmdbdConf(o Options, net subnet) string {
	d := layout(o.Dir)
	return strings.Join([]string{
		"AuthType=auth/munge",
		"AuthInfo=socket=" + d.mungeSocket(),
		"SlurmUser=root",
		"DbdHost=" + controlName,
		fmt.Sprintf("DbdAddr=%s", net.control()),
		"PidFile=" + d.run("slurmdbd.pid"),
		"LogFile=" + d.log(accountingName),
		"DebugLevel=verbose",
		"StorageType=accounting_storage/mysql",
		"StorageHost=localhost",
		"StorageUser=root",
		"StorageLoc=slurm",
	}, "\n") + "\n"
}

// gresConf returns the text of gres.conf. With a device file for each GPU, Slurm also numbers the
// GPUs. It covers the cluster's own nodes only, not the nodes of [Cluster.Reconfigure].
func gresConf(o Options) string {
	if o.GPUs == 0 || o.Nodes == 0 {
		return ""
	}
	kind := ""
	if o.GPUType != "" {
		kind = " Type=" + o.GPUType
	}
	text := fmt.Sprintf("NodeName=n[1-%d] Name=gpu%s File=%s[0-%d]\n", o.Nodes, kind, layout(o.Dir).gpu(), o.GPUs-1)
	if name, count, ok := strings.Cut(o.Gres, ":"); ok {
		text += fmt.Sprintf("NodeName=n[1-%d] Name=%s Count=%s\n", o.Nodes, name, count)
	}
	return text
}

// cgroupConf names the plugin. Otherwise slurmd reads /sys/fs/cgroup to choose one, and does not
// start without a mount there. A configured plugin that is not used has no requirements.
const cgroupConf = "CgroupPlugin=cgroup/v1\n"

// hosts returns the text of /etc/hosts for every machine of the cluster.
func hosts(o Options, net subnet, login string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "127.0.0.1 localhost\n::1 localhost\n")
	fmt.Fprintf(&b, "%s %s %s\n", net.login(), login, "login")
	fmt.Fprintf(&b, "%s %s\n", net.control(), controlName)
	for i := 1; i <= o.Nodes; i++ {
		fmt.Fprintf(&b, "%s %s\n", net.management(i), nodeName(i))
	}
	return b.String()
}

// override replaces the lines whose key is in extra, and appends the other lines of extra. Slurm
// itself uses the later of two lines, but every client prints a warning about them.
func override(lines, extra []string) []string {
	out := append([]string(nil), lines...)
	for _, e := range extra {
		i := slices.IndexFunc(out, func(l string) bool { return confKey(l) == confKey(e) })
		if i >= 0 {
			out[i] = e
		} else {
			out = append(out, e)
		}
	}
	return out
}

// confKey returns the text that makes a line of slurm.conf unique: its first key, with the name
// that it defines if the key can repeat. It returns "" for other text.
func confKey(line string) string {
	key, rest, ok := strings.Cut(strings.TrimSpace(line), "=")
	if !ok || strings.ContainsAny(line, "\n\r") || strings.ContainsAny(key, " \t#") {
		return ""
	}
	key = strings.ToLower(key)
	switch key {
	case "nodename", "partitionname", "downnodes", "nodeset":
		value, _, _ := strings.Cut(rest, " ")
		return key + "=" + value
	}
	return key
}
