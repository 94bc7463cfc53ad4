// Package cluster starts a real Slurm cluster on one Debian machine, as root, for tests.
//
// A cluster is a control machine (slurmctld, munged) and a few nodes (slurmd), each a set of
// Linux namespaces of its own: network, process ids, mounts, host name and IPC. So a node has
// its own eth0, hsn0 and docker0, its own /proc and /dev/shm, and the host names ctl, n1, n2 and
// so on. The machine that runs the test is the login node: it has an address in the management
// network and none in the fast one. The file system is shared by all of them because it is one
// and the same.
//
//	              management 10.10.x.0/24                 fast 10.20.x.0/24, MTU 9000
//	login .254 ──┬── ctl .253    (slurmctld, munged)
//	             ├── n1 .1 eth0  (slurmd, default route)  hsn0 .1 ──┐
//	             ├── n2 .2 eth0  (slurmd, default route)  hsn0 .2 ──┤
//	             ...                                                ...
//
// Every node also has docker0 with the address 172.17.0.1/16, up and with a container's link on
// it: the trap that a program meets when it chooses an interface by name.
//
// What the package promises:
//   - [Start] returns when every node is idle, or it fails and leaves nothing behind.
//   - [Cluster.Stop] leaves no process, link, namespace or mount behind, jobs included.
//   - When the process that called Start dies, however it dies, the kernel ends the cluster:
//     each machine's first process ends with the pipe that it holds, and takes the whole
//     process namespace along; links and network namespaces end with their last process.
//   - Clusters do not disturb one another, a Slurm or a munge installed on the machine, or cgroups.
//
// With Options.Accounting the control machine also runs slurmdbd and a MariaDB whose files lie in
// the cluster's directory and whose socket only that machine has.
//
// It does not limit the processors or the memory of a job (task/none: Slurm only counts them),
// measure what a job uses, or keep users apart by more than Slurm and the kernel do. Everything
// runs as root except munged, MariaDB, and the programs and jobs of Options.Users.
// GPUs are counted and numbered (CUDA_VISIBLE_DEVICES), but there is no device.
package cluster
