package launchers

import (
	"encoding/json"
	"slices"
	"strconv"
)

// torchrun reads the variables that PyTorch's elastic agent sets for its workers
// (torch/distributed/elastic/agent/server/local_elastic_agent.py). The run ID is "none"
// without --rdzv_id. In that case the port of rank 0 distinguishes starts, unless the user has
// chosen a fixed port.
func torchrun(v *variables) (p RankInfo, ok bool) {
	if !v.areSet(markerVariables[Torchrun]...) {
		return p, false
	}
	p = v.rankInfo("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
	p.Start, p.Restart = v.text("TORCHELASTIC_RUN_ID")+" "+v.text("MASTER_ADDR")+" "+v.text("MASTER_PORT"), v.numberOr("TORCHELASTIC_RESTART_COUNT", 0)
	if v.areSet("GROUP_RANK", "GROUP_WORLD_SIZE") {
		p.NodeRank, p.Nodes = v.number("GROUP_RANK"), v.number("GROUP_WORLD_SIZE")
		v.checkBelow("GROUP_RANK", p.NodeRank, "GROUP_WORLD_SIZE", p.Nodes)
	}
	return p, true
}

// openMPI reads the variables of Open MPI's mpirun. It does not use OMPI_COMM_WORLD_NODE_RANK,
// which is not the index of a node: it counts the ranks of all jobs on a node.
func openMPI(v *variables) (p RankInfo, ok bool) {
	if !v.areSet(markerVariables[OpenMPI]...) {
		return p, false
	}
	p = v.rankInfo("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE")
	p.Start = v.text("PMIX_NAMESPACE")
	if text, has := v.lookup("PMIX_RANK"); has && v.err == nil && text != strconv.Itoa(p.Rank) {
		v.fail("OMPI_COMM_WORLD_RANK is %d, but PMIX_RANK is %q", p.Rank, text)
	}
	return p, true
}

// hydra reads the variables of the process manager of MPICH and Intel MPI. PMI_RANK and
// PMI_SIZE are not sufficient, because Slurm sets them as well.
func hydra(v *variables) (p RankInfo, ok bool) {
	if !v.areSet(markerVariables[Hydra]...) {
		return p, false
	}
	return v.rankInfo("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"), true
}

// sageMaker reads the variables that SageMaker's training toolkit sets on each host
// (github.com/aws/sagemaker-training-toolkit, ENVIRONMENT_VARIABLES.md).
func sageMaker(v *variables) (p RankInfo, ok bool) {
	if !v.areSet(markerVariables[SageMaker]...) {
		return p, false
	}
	var hosts []string
	text := v.text("SM_HOSTS")
	if err := json.Unmarshal([]byte(text), &hosts); err != nil {
		v.fail("SM_HOSTS is %q, not a JSON list of hosts", text)
		return p, false
	}
	host := v.text("SM_CURRENT_HOST")
	index := slices.Index(hosts, host)
	if index < 0 {
		v.fail("SM_CURRENT_HOST is %q, which is not in SM_HOSTS, %s", host, text)
	}
	p = perHostInfo(index, len(hosts))
	p.Start, p.GPUs = v.text("TRAINING_JOB_NAME"), v.numberOr("SM_NUM_GPUS", Unknown)
	return p, true
}

// kubernetes reads the variables of a pod. One of these sources sets them:
//
//   - Kubeflow's training operator, for a PyTorchJob: RANK and WORLD_SIZE, and PET_NNODES if a
//     pod has several ranks (pkg/controller.v1/pytorch/envvar.go)
//   - Kubeflow Trainer, for a TrainJob: PET_NODE_RANK and PET_NNODES
//     (pkg/runtime/framework/plugins/torch/torch.go)
//   - an indexed Job, with or without a JobSet: JOB_COMPLETION_INDEX. Kubernetes does not pass
//     the number of pods, so the user must set WORLD_SIZE.
func kubernetes(v *variables) (p RankInfo, ok bool) {
	_, inside := v.lookup("KUBERNETES_SERVICE_HOST")
	size := v.firstSet("PET_NNODES", "WORLD_SIZE")
	ranks := []string{"RANK", "PET_NODE_RANK", "JOB_COMPLETION_INDEX"}
	rank := v.firstSet(ranks...)
	if !inside || size == "" || rank == "" || v.areSet("LOCAL_RANK") {
		return p, false
	}
	p = perHostInfo(v.number(rank), v.number(size))
	for _, other := range ranks {
		if text, has := v.lookup(other); has && text != v.text(rank) {
			v.fail("%s is %q, but %s is %q", rank, v.text(rank), other, text)
		}
	}
	v.checkBelow(rank, p.Rank, size, p.WorldSize)
	p.Start = v.text(v.firstSet("MASTER_ADDR", "PET_MASTER_ADDR"))
	return p, true
}

// perHostInfo returns the rank information of the only process on a host.
func perHostInfo(host, hosts int) RankInfo {
	return RankInfo{PerHost: true, Rank: host, WorldSize: hosts, LocalRank: 0, LocalWorldSize: 1, NodeRank: host, Nodes: hosts, GPUs: Unknown}
}

// variables reads the variables of one launcher and records the first error.
type variables struct {
	lookup   Lookup
	launcher string
	err      error
}

func (v *variables) fail(format string, args ...any) {
	if v.err == nil {
		v.err = incompleteError(v.launcher+": "+format, args...)
	}
}

// areSet reports whether all given variables are set.
func (v *variables) areSet(names ...string) bool {
	for _, name := range names {
		if _, ok := v.lookup(name); !ok {
			return false
		}
	}
	return true
}

// firstSet returns the first of the given variables that is set, or an empty string if none is
// set.
func (v *variables) firstSet(names ...string) string {
	for _, name := range names {
		if v.areSet(name) {
			return name
		}
	}
	return ""
}

func (v *variables) text(name string) string {
	s, _ := v.lookup(name)
	return s
}

// number returns the value of a variable that must be an integer of at least 0.
func (v *variables) number(name string) int {
	n, err := strconv.ParseUint(v.text(name), 10, 31)
	if err != nil {
		v.fail("%s is %q, not an integer of at least 0", name, v.text(name))
	}
	return int(n)
}

func (v *variables) numberOr(name string, unset int) int {
	if !v.areSet(name) {
		return unset
	}
	return v.number(name)
}

// checkBelow checks that n is less than size.
func (v *variables) checkBelow(name string, n int, sizeName string, size int) {
	if n >= size {
		v.fail("%s is %d, but %s is %d", name, n, sizeName, size)
	}
}

// rankInfo reads the rank, the local rank, and the number of ranks in the job and on the host.
func (v *variables) rankInfo(rank, size, local, localSize string) RankInfo {
	p := RankInfo{Rank: v.number(rank), WorldSize: v.number(size), LocalRank: Unknown, LocalWorldSize: Unknown,
		NodeRank: Unknown, Nodes: Unknown, GPUs: Unknown}
	v.checkBelow(rank, p.Rank, size, p.WorldSize)
	if v.areSet(local, localSize) {
		p.LocalRank, p.LocalWorldSize = v.number(local), v.number(localSize)
		v.checkBelow(local, p.LocalRank, localSize, p.LocalWorldSize)
		if p.LocalWorldSize > p.WorldSize {
			v.fail("%s is %d, but %s is %d", localSize, p.LocalWorldSize, size, p.WorldSize)
		}
	}
	return p
}
