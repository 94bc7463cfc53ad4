// Package cluster starts a real Slurm cluster on one Debian machine, as root, for tests.
//
// A cluster has a control machine (slurmctld, munged) and a few nodes (slurmd). Each machine is a
// set of Linux namespaces: network, process IDs, mounts, host name, and IPC. So a node has its own
// eth0, hsn0, docker0, /proc, and /dev/shm. The host names are ctl, n1, n2, and so on. The machine
// that runs the test is the login node: it has an address in the management network and none in the
// fast network. All machines share the file system of the host.
//
//	              management 10.10.x.0/24                 fast 10.20.x.0/24, MTU 9000
//	login .254 ──┬── ctl .253    (slurmctld, munged)
//	             ├── n1 .1 eth0  (slurmd, default route)  hsn0 .1 ──┐
//	             ├── n2 .2 eth0  (slurmd, default route)  hsn0 .2 ──┤
//	             ...                                                ...
//
// Every node also has docker0 with the address 172.17.0.1/16, up and with a container's link. A
// program that chooses an interface by name could choose it by mistake.
//
// The package guarantees:
//   - [Start] returns when every node is idle, or it fails and leaves nothing behind.
//   - [Cluster.Stop] leaves no process, link, namespace, or mount behind, and no job.
//   - When the process that called Start dies for any reason, the kernel stops the cluster: the init
//     process of each machine ends when its pipe closes, and the process namespace ends with it.
//     Links and network namespaces end with their last process.
//   - Clusters do not disturb each other, a Slurm or munge installation on the machine, or cgroups.
//
// With Options.Accounting the control machine also runs slurmdbd and MariaDB. The files of the
// database are in the cluster's directory, and only the control machine has its socket.
//
// The package does not limit the CPUs or the memory of a job (task/none: Slurm only counts them). It
// does not measure the usage of a job, and it isolates users only as far as Slurm and the kernel do.
// All programs run as root, except munged, MariaDB, and the programs and jobs of Options.Users. GPUs
// are counted and numbered (CUDA_VISIBLE_DEVICES), but there is no device.
package cluster
