package manual

// A Variable is one that the program reads or sets.
type Variable struct {
	Name    string
	Use     string // read, set, "read and set", "left out", "read by the loader"
	Meaning string
}

// VariableGroup is variables of one kind.
type VariableGroup struct {
	Title, About string
	Own          bool // they steer the program itself
	Variables    []Variable
}

// Variables are those of the environment that the program knows, by what they are for.
// TestEveryVariableIsTold holds the list to the code.
var Variables = []VariableGroup{
	{Title: "Yours to set", Own: true, About: "They steer the program itself.", Variables: []Variable{
		{"DDPBATCH_SITES", "read", "folders of site profiles, separated by colons, before /etc/ddpbatch and those that come with the program"},
		{"CUDA_VISIBLE_DEVICES", "read and set", "GPUs that ranks may use; ranks of a node that see one each are shown all of them"},
		{"ROCR_VISIBLE_DEVICES", "read and set", "the same, of AMD's GPUs, for a program of yours"},
		{"DDPBATCH_ATTENTION", "read", "wgmma: the trainer's attention in bf16 takes the instructions that only Hopper has (docs/gpu.md); mma, as without it, those of every GPU"},
		{"CUDA_LAUNCH_BLOCKING", "read", "1: the trainer on GPUs waits for each kernel, so that an error stands where it happened"},
		{"CUDA_HOME", "read", "a CUDA toolkit, in which libraries are looked for"},
		{"CUDA_PATH", "read", "the same, by another name"},
		{"LD_LIBRARY_PATH", "read by the loader", "where libmpi, NCCL and cuBLASLt are looked for first"},
		{"VIRTUAL_ENV", "read and set", "a Python environment, in which libraries are looked for; set by setup.venv"},
		{"CONDA_PREFIX", "read", "the same, of conda"},
		{"PYTHONPATH", "read", "folders of Python packages, in which libraries are looked for"},
		{"PATH", "read and set", "where programs are looked for; setup.venv comes before it"},
		{"TERM", "read", "the terminal; without it, or with dumb, there is no view that changes"},
		{"NO_COLOR", "read", "if it is not empty, that view has no colours"},
		{"LC_ALL", "read", "with UTF-8 in it, or else in LC_CTYPE or LANG, that view has lines and not ASCII"},
		{"HOME", "read", "where .nccl.conf and Python packages of the user are"},
		{"NCCL_CONF_FILE", "read", "NCCL's file of settings, in the place of ~/.nccl.conf"},
	}},
	{Title: "Set for your program", About: "For each rank of a [command] job, in the place of what the environment has.", Variables: []Variable{
		{"RANK", "set", "the rank, from 0"},
		{"WORLD_SIZE", "set", "number of ranks"},
		{"LOCAL_RANK", "set", "the rank on its node, from 0"},
		{"LOCAL_WORLD_SIZE", "set", "ranks on its node"},
		{"GROUP_RANK", "set", "the node's number, from 0"},
		{"MASTER_ADDR", "set", "rank 0's address on the chosen network"},
		{"MASTER_PORT", "set", "a port that is free there"},
		{"PYTHONHOME", "left out", "with setup.venv"},
		{"PYTHONUNBUFFERED", "set", "1, unless it is set already"},
	}},
	{Title: "Set for the network", About: "From the network that all ranks agreed on, where it takes them, and unless the environment, the site's profile or nccl.conf has them: then they are judged, and stay. `ddpbatch env --explain` gives the reason for each.", Variables: []Variable{
		{"NCCL_SOCKET_IFNAME", "set", "interface of NCCL's sockets"},
		{"NCCL_SOCKET_FAMILY", "set", "version of IP"},
		{"NCCL_IB_HCA", "set", "RDMA adapters of the network"},
		{"NCCL_IB_DISABLE", "set", "1 where one host has no RDMA that works"},
		{"NCCL_IB_GID_INDEX", "set", "of a RoCE address, for NCCL before 2.21"},
		{"NCCL_IB_ADDR_FAMILY", "set", "version of IP of RoCE addresses"},
		{"NCCL_IB_ADDR_RANGE", "set", "RoCE addresses to take"},
		{"NCCL_CROSS_NIC", "set", "whether rings may change between adapters"},
		{"NCCL_NET", "set", "the plugin of a fabric that NCCL does not speak"},
		{"NCCL_NET_PLUGIN", "read", "a plugin that NCCL is to load"},
		{"NCCL_COMM_ID", "read", "a rendezvous of NCCL's own; it is warned of"},
		{"NCCL_DEBUG", "read, set", "detail of NCCL's messages: WARN if you do not set it"},
		{"NCCL_DEBUG_FILE", "set", "file of NCCL's messages: logs/nccl-HOST-PROCESS.log in the run directory, unless you set NCCL_DEBUG"},
		{"GLOO_SOCKET_IFNAME", "set", "Gloo's interface"},
		{"TP_SOCKET_IFNAME", "set", "TensorPipe's interface"},
		{"UCX_NET_DEVICES", "set", "UCX's devices"},
		{"OMPI_MCA_btl_tcp_if_include", "set", "networks of Open MPI's TCP"},
		{"OMPI_MCA_btl_tcp_if_exclude", "read", "networks that Open MPI's TCP leaves out; include is not set beside it"},
		{"OMPI_MCA_oob_tcp_if_include", "set", "networks of Open MPI's own messages"},
		{"OMPI_MCA_oob_tcp_if_exclude", "read", "networks that these leave out; include is not set beside it"},
	}},
	{Title: "Of Slurm", About: "A rank's place is read from what belongs to its step, and checked against the rest. A submitted job gets no SLURM_*, SLURMD_*, SBATCH_*, SRUN_*, PMI_*, PMI2_* and PMIX_* of the shell, but SLURM_CONF.", Variables: []Variable{
		{"SLURM_JOB_ID", "read", "the job"},
		{"SLURM_STEP_ID", "read", "the step"},
		{"SLURM_PROCID", "read", "the rank"},
		{"SLURM_LOCALID", "read", "the local rank"},
		{"SLURM_NODEID", "read", "the node's number"},
		{"SLURM_GTIDS", "read", "the ranks on this node"},
		{"SLURM_STEP_NUM_TASKS", "read", "ranks of the step"},
		{"SLURM_STEP_NODELIST", "read", "its nodes"},
		{"SLURM_STEP_TASKS_PER_NODE", "read", "and the ranks on each"},
		{"SLURM_JOB_NODELIST", "read", "nodes of the job, which those of the step must be among"},
		{"SLURMD_NODENAME", "read", "this node"},
		{"SLURM_CPUS_PER_TASK", "read", "cores of a rank, where the job does not say"},
		{"SLURM_RESTART_COUNT", "read", "how often the job was requeued"},
		{"SLURM_ARRAY_JOB_ID", "read", "the array that the job is an element of"},
		{"SLURM_ARRAY_TASK_ID", "read", "the element"},
		{"SLURM_JOB_END_TIME", "read", "when the time limit is reached"},
		{"SLURM_HET_SIZE", "read", "components of a heterogeneous job"},
		{"SLURM_PACK_SIZE", "read", "the same, of Slurm before 20.02"},
		{"SLURM_CONF", "read", "where the cluster's configuration is: kept in a submitted job"},
	}},
	{Title: "Of other launchers", About: "A rank's place under them, for `ddpbatch run` without a launcher of ours (docs/launchers.md); MASTER_ADDR and MASTER_PORT only tell starts apart. A program gets no TORCHELASTIC_* and PET_*.", Variables: []Variable{
		{"GROUP_WORLD_SIZE", "read", "nodes, by torchrun"},
		{"TORCHELASTIC_RUN_ID", "read", "torchrun's --rdzv_id"},
		{"TORCHELASTIC_RESTART_COUNT", "read", "how often torchrun has started the ranks again"},
		{"OMPI_COMM_WORLD_RANK", "read", "rank, by Open MPI's mpirun"},
		{"OMPI_COMM_WORLD_SIZE", "read", "number of ranks, by the same"},
		{"OMPI_COMM_WORLD_LOCAL_RANK", "read", "local rank, by the same"},
		{"OMPI_COMM_WORLD_LOCAL_SIZE", "read", "ranks on this host, by the same"},
		{"PMIX_NAMESPACE", "read", "this start of the ranks, by PMIx"},
		{"PMIX_RANK", "read", "rank, by PMIx"},
		{"PMI_RANK", "read", "rank, by PMI"},
		{"PMI_SIZE", "read", "number of ranks, by PMI"},
		{"MPI_LOCALRANKID", "read", "local rank, by MPICH's and Intel MPI's mpirun"},
		{"MPI_LOCALNRANKS", "read", "ranks on this host, by the same"},
		{"PMI_FD", "read", "a connection to PMI, by which train.backend = \"mpi\" knows its launcher"},
		{"PMI_PORT", "read", "the same"},
		{"PMI_CONTROL_PORT", "read", "the same, of PMI2 on Cray systems"},
		{"SM_HOSTS", "read", "hosts, by SageMaker"},
		{"SM_CURRENT_HOST", "read", "this host, by SageMaker"},
		{"SM_NUM_GPUS", "read", "its GPUs, by SageMaker"},
		{"TRAINING_JOB_NAME", "read", "the job, by SageMaker"},
		{"KUBERNETES_SERVICE_HOST", "read", "there in every pod"},
		{"JOB_COMPLETION_INDEX", "read", "the pod of an indexed Job"},
		{"PET_NNODES", "read", "pods of a PyTorchJob or TrainJob"},
		{"PET_NODE_RANK", "read", "the pod of a TrainJob"},
		{"PET_MASTER_ADDR", "read", "as MASTER_ADDR, of a TrainJob"},
		{"PET_RDZV_ENDPOINT", "read", "there in the pods of an elastic PyTorchJob, which have no numbers"},
	}},
	{Title: "Of git", About: "When the commit of your code is looked up or its snapshot made, other GIT_* than these and GIT_CONFIG_* are left out, for they would lead to another repository.", Variables: []Variable{
		{"GIT_CONFIG", "left out", "another file of settings"},
		{"GIT_CONFIG_PARAMETERS", "left out", "settings of the git that is running"},
		{"GIT_CEILING_DIRECTORIES", "read", "where git stops to look for a repository"},
		{"GIT_DISCOVERY_ACROSS_FILESYSTEM", "read", "whether it looks on other file systems"},
		{"GIT_EXEC_PATH", "read", "where git's programs are"},
	}},
	{Title: "Between launcher and ranks", About: "Set by the launcher for the ranks that it starts, and taken out of the environment of your program.", Variables: []Variable{
		{"DDPBATCH_RENDEZVOUS", "set", "addresses of the launcher"},
		{"DDPBATCH_SECRET", "set", "the attempt's secret"},
		{"DDPBATCH_ATTEMPT", "set", "number of the attempt, from 1"},
		{"DDPBATCH_PROCESSES_PER_NODE", "set", "ranks that a node is to run"},
		{"DDPBATCH_WORKDIR", "set", "where your program starts"},
		{"DDPBATCH_LOCAL_RANK", "set", "the rank, without Slurm"},
		{"DDPBATCH_LOCAL_WORLD_SIZE", "set", "number of ranks, without Slurm"},
		{"DDPBATCH_BENCH_RANK", "set", "a rank of `bench`"},
	}},
}
