package jobs

import "slices"

// A Job is a training job as described by its TOML file, with all defaults set. Exactly one of
// Train and Command is set.
//
// Each field with a toml tag is a key of the file. Its tags are the only declaration of the
// key. The decoder, the defaults, the JSON schema, and the documentation all use them:
//
//	toml      name of the key
//	help      description
//	default   value if the key is not set
//	auto      description of a default that depends on other keys; see setComputedDefaults
//	required  example; the key must be set if its table is set
//	example   example for a key that is required in some cases only
//	range     limits of a number: "1..", "0..0.5", "0..<1", or "0<.." for greater than 0
//	bits      64 for a number that training does not convert to float32
//	typed     Go field that takes the prefix of a number, as in "a100:4"
//	enum      valid strings; "gpu=cuda" declares the alias gpu
//	kinds     kinds of the table that have the key; "mlp!" means that mlp requires it
type Job struct {
	Name       Name        `toml:"name" required:"my-job" help:"Name of the job and of its run directory."`
	Site       string      `toml:"site" default:"generic" help:"Profile of the computing center: its name or the path of a profile file."`
	Slurm      Slurm       `toml:"slurm" help:"Resources that the job requests from Slurm. The site profile supplies defaults."`
	Setup      Setup       `toml:"setup" help:"Environment of the ranks."`
	Network    Network     `toml:"network" help:"Network of the ranks."`
	Train      *Train      `toml:"train" help:"Built-in trainer. A job has either [train] or [command]."`
	Command    *Command    `toml:"command" help:"User program that runs instead of the built-in trainer."`
	Components []Component `toml:"component" help:"Programs that run next to [command] in the same allocation, such as servers. Each [[component]] has the keys name, argv, node, every_node, ready, ready_pattern, ready_timeout, restart, optional, and stop_grace."`
	Checkpoint Checkpoint  `toml:"checkpoint" help:"Checkpoints of the built-in trainer."`
	Restart    Restart     `toml:"restart" help:"Restarts in the same allocation after a failure, and requeues at the time limit."`
	Log        Log         `toml:"log" help:"Output in addition to the log and metrics.jsonl."`
	Notify     *Notify     `toml:"notify" help:"Messages about the run, which ddpbatch sends to a webhook or to a program. They never delay or fail the job. For mail, see slurm.mail."`
	Sweep      *Sweep      `toml:"sweep" help:"Set of trials. Each trial is this job with some values changed, and has its own run directory. A sweep has exactly one of array, grid, list, and random."`

	// layout lets later checks (files, sites) refer to positions in the file. It is nil for a
	// Job that was not parsed.
	layout *layout
}

// Slurm holds the resources that the job requests. The site profile supplies defaults for
// empty values.
type Slurm struct {
	Nodes        int `toml:"nodes" default:"1" range:"1.." help:"Number of nodes that train."`
	TasksPerNode int `toml:"tasks_per_node" auto:"gpus_per_node, or 1 without GPUs" range:"1.." help:"Ranks per node."`
	// RanksPerNode is empty if all nodes have TasksPerNode ranks.
	RanksPerNode []int `toml:"ranks_per_node" example:"[4, 2, 1]" range:"1.." help:"Ranks on each node, if the nodes have different numbers of ranks: [4, 2, 1] are 4 ranks on the first node, 2 on the second, and 1 on the third. It sets nodes, and excludes tasks_per_node. Each node gets the resources for the largest number."`
	GPUsPerNode  int   `toml:"gpus_per_node" auto:"none" range:"1.." typed:"GPUType" example:"4" help:"GPUs per node. A type may precede the number, such as a100:4."`
	// GPUType is the type in gpus_per_node, such as "a100"; empty for any type.
	GPUType         string
	ShareGPUs       bool         `toml:"share_gpus" help:"Allow more ranks than GPUs on a node. Each rank sees all GPUs of its node, and should use the one with the index LOCAL_RANK modulo the number of GPUs. Requires [command]. NCCL rejects two ranks of a group on one GPU."`
	CPUsPerTask     Cores        `toml:"cpus_per_task" default:"1" help:"CPU cores per rank. With all, the ranks of a node share all cores that the job has on the node; set exclusive = true for a whole node."`
	Time            WallTime     `toml:"time" auto:"the site's" help:"Time limit as in sbatch --time: 02:00:00, 1-12:00:00, or 90 (minutes)."`
	Memory          Memory       `toml:"mem" auto:"the site's" help:"Memory per node as in sbatch --mem: 64G or 512M."`
	MemoryPerCPU    Memory       `toml:"mem_per_cpu" help:"Memory per core, as in sbatch --mem-per-cpu. Excludes mem and mem_per_gpu."`
	MemoryPerGPU    Memory       `toml:"mem_per_gpu" help:"Memory per GPU, as in sbatch --mem-per-gpu. Excludes mem and mem_per_cpu."`
	Partition       Word         `toml:"partition" auto:"the site's" help:"Partition, as in sbatch --partition."`
	Account         Word         `toml:"account" help:"Billing account, as in sbatch --account."`
	QOS             Word         `toml:"qos" help:"Quality of service, as in sbatch --qos."`
	Reservation     Word         `toml:"reservation" help:"Reservation, as in sbatch --reservation."`
	Constraint      Text         `toml:"constraint" help:"Required node features, as in sbatch --constraint. May contain &, |, and brackets."`
	Exclusive       bool         `toml:"exclusive" help:"Do not share the nodes with other jobs, as in sbatch --exclusive."`
	Dependency      []Dependency `toml:"dependency" help:"Runs that must start or finish first, such as afterok:prepare. The value singleton waits for all earlier jobs with the same name."`
	GPUBind         Word         `toml:"gpu_bind" auto:"the site's" help:"Binding of ranks to GPUs, as in srun --gpu-bind."`
	CPUBind         Word         `toml:"cpu_bind" auto:"the site's" help:"Binding of ranks to cores, as in srun --cpu-bind."`
	MPI             Word         `toml:"mpi" auto:"the site's, or pmix" help:"MPI plugin, as in srun --mpi: pmix, pmi2, or cray_shasta. Applies with train.backend = mpi, and with [command] if it is set."`
	Gres            Word         `toml:"gres" help:"Generic resources per node other than GPUs, as in sbatch --gres: nvme:1,shard:2."`
	Exclude         Word         `toml:"exclude" help:"Nodes that the job must not get, as in sbatch --exclude: n[1-3],n7."`
	NodeList        Word         `toml:"nodelist" help:"Nodes that the job must get, as in sbatch --nodelist: n[4-7]."`
	Hint            Hint         `toml:"hint" enum:"compute_bound,memory_bound,multithread,nomultithread" help:"Binding hint, as in sbatch --hint. The value nomultithread uses one hardware thread per core. Excludes cpu_bind."`
	Licenses        Word         `toml:"licenses" help:"Licenses, as in sbatch --licenses: matlab:1,ansys:2."`
	Switches        Word         `toml:"switches" help:"Maximum number of network switches, and the maximum time to wait for them, as in sbatch --switches: 1@00:30:00."`
	Segment         int          `toml:"segment" auto:"none" range:"1.." help:"Number of nodes in a segment of a block topology, as in sbatch --segment. Requires Slurm 24.05."`
	Begin           Text         `toml:"begin" help:"Earliest start, as in sbatch --begin: now+1hour, 20:00, or 2030-01-31T08:00:00."`
	Nice            int          `toml:"nice" default:"0" range:"-2147483645..2147483645" help:"Decrease of the priority, as in sbatch --nice. Only administrators may use negative numbers."`
	WCKey           Word         `toml:"wckey" help:"Workload characterization key, as in sbatch --wckey."`
	Comment         Text         `toml:"comment" help:"Comment of the job, as in sbatch --comment. It follows the ID that ddpbatch stores in the comment."`
	OpenMode        OpenMode     `toml:"open_mode" default:"append" enum:"append,truncate" help:"Handling of the log slurm-JOBID.out if the job is requeued. The value truncate empties it."`
	Requeue         *bool        `toml:"requeue" auto:"the site's, or true" help:"Let Slurm requeue the job after a preemption or a failure of the first node, as in sbatch --requeue and --no-requeue."`
	Export          Export       `toml:"export" default:"all" enum:"all,none" help:"Environment of the job: the environment of the submission (all), or a login environment that Slurm builds on the node (none)."`
	Mail            *Mail        `toml:"mail" help:"Mail that Slurm sends."`
	Options         []Option     `toml:"options" help:"Additional options of sbatch, such as --tmp=10G. Options that have a key are rejected."`
	StepOptions     []Option     `toml:"step_options" help:"Additional options of srun, such as --unbuffered. Options that have a key are rejected."`
	Omit            []Directive  `toml:"omit" enum:"account,constraint,cpus-per-task,exclusive,export,mem,no-kill,ntasks-per-node,open-mode,partition,qos,requeue,reservation,time" help:"Options of sbatch that the script must not contain, because the center rejects them."`
	Groups          []Group      `toml:"group" help:"Groups of nodes with different resources, which form a heterogeneous job of Slurm. A group is a table with nodes, tasks_per_node, gpus_per_node, cpus_per_task, mem, partition, qos, constraint, gres, and nodelist. Ranks are numbered in the order of the groups. Keys that a group does not set have the values of [slurm]."`
	SignalBeforeEnd Duration     `toml:"signal_before_end" auto:"120s, or a quarter of a time limit below 8 minutes; 0 with [command], unless restart.requeue is set" help:"Time before the time limit at which the job saves a checkpoint and stops. 0 disables the signal."`
}

// Mail is the mail that Slurm sends about the job.
type Mail struct {
	User   Word        `toml:"user" auto:"the submitting user" help:"Recipients, as in sbatch --mail-user."`
	Events []MailEvent `toml:"events" required:"[\"end\", \"fail\"]" enum:"begin,end,fail,requeue,all,invalid_depend,stage_out,time_limit,time_limit_90,time_limit_80,time_limit_50,array_tasks" help:"Events that Slurm reports, as in sbatch --mail-type."`
}

// Setup holds the environment of the ranks.
type Setup struct {
	Steps     []SetupStep      `toml:"steps" help:"Steps of the setup, in order. A step is a table with one of run, modules, conda, venv, env, and source, and optionally where and may_fail. Excludes lines, modules, conda, and venv."`
	Lines     []Text           `toml:"lines" help:"Shell commands that run before the modules are loaded. Applies to submitted jobs only; ddpbatch launch prints a warning."`
	Modules   []Word           `toml:"modules" help:"Environment modules to load, in order. Applies to submitted jobs only; ddpbatch launch prints a warning."`
	Conda     Text             `toml:"conda" help:"Name or path of a conda environment. Applies to submitted jobs only; ddpbatch launch prints a warning."`
	Venv      Text             `toml:"venv" help:"Path of a Python virtual environment."`
	Env       map[EnvName]Text `toml:"env" help:"Environment variables of the ranks."`
	ArrayTask *int             `toml:"array_task" auto:"Slurm's" range:"0.." help:"Value of SLURM_ARRAY_TASK_ID in the setup and in the program, for programs that were written for a job array. The key sweep.array sets it in each trial."`
	Secrets   Secrets          `toml:"secrets" help:"Environment variables of the ranks whose values must stay secret. No script, record, or argument list contains them."`
	Container Container        `toml:"container" help:"Container of the ranks. Applies under Slurm only; a local ddpbatch launch prints a warning."`
}

// Secrets are environment variables that no script, record, or argument list contains.
type Secrets struct {
	Names []EnvName `toml:"names" required:"[\"HF_TOKEN\"]" help:"Names of the variables."`
	File  Text      `toml:"file" auto:"values from the environment at submission" help:"File with lines of the form NAME=value. Only its owner may have read permission."`
}

// Container is the container of the ranks.
type Container struct {
	Image   Text             `toml:"image" required:"/containers/pytorch.sif" help:"Image file, or an image name that the runtime resolves."`
	Runtime ContainerRuntime `toml:"runtime" auto:"the site's" enum:"apptainer,singularity,shifter,pyxis,edf,charliecloud,none" help:"Container runtime."`
	Options []Text           `toml:"options" auto:"the site's" help:"Additional options of the runtime, such as --nv."`
	Mounts  []Text           `toml:"mounts" help:"Directories to mount, such as /data, /data:/inside, or /data:/inside:ro. The directories of the run are always mounted."`
}

// Network selects the network of the ranks and limits waiting times.
type Network struct {
	Interface         InterfaceName   `toml:"interface" default:"auto" help:"Network interface, or auto."`
	Family            Family          `toml:"family" default:"auto" enum:"auto,ipv4,ipv6" help:"IP version."`
	Exclude           []InterfaceName `toml:"exclude" help:"Network interfaces that ranks must not use."`
	JoinTimeout       Duration        `toml:"join_timeout" default:"60s" help:"Maximum time until all ranks have joined."`
	CollectiveTimeout Duration        `toml:"collective_timeout" default:"5m" help:"Maximum time of one collective operation."`
	Integrity         Integrity       `toml:"integrity" default:"checksum" enum:"checksum,mac" help:"Protection of data between nodes. A checksum detects corruption; a mac also detects tampering. Neither encrypts."`
	CheckOperations   bool            `toml:"check_operations" help:"Compare the arguments of each operation of the GPUs over TCP. Slow, for debugging: an error then names the rank and the operation that differ."`
	MPILibrary        Text            `toml:"mpi_library" auto:"the dynamic loader's" help:"Path or name of libmpi, for train.backend = mpi."`
	HeartbeatTimeout  Duration        `toml:"heartbeat_timeout" default:"60s" help:"Maximum time without a heartbeat of a rank."`
	ProgressTimeout   Duration        `toml:"progress_timeout" default:"30m" help:"Maximum time without training progress."`
}

// Train configures the built-in trainer.
type Train struct {
	Device      Device    `toml:"device" default:"auto" enum:"auto,cuda,cpu,gpu=cuda" help:"Device that computes. The value gpu is an alias of cuda."`
	Backend     Backend   `toml:"backend" default:"auto" enum:"auto,tcp,mpi,nccl" help:"Communication backend."`
	Strategy    Strategy  `toml:"strategy" default:"ddp" enum:"ddp,zero1,zero2,zero3,fsdp=zero3" help:"Parallelism strategy. The value fsdp is an alias of zero3."`
	Precision   Precision `toml:"precision" default:"fp32" enum:"fp32,bf16" help:"Precision of matrix multiplications."`
	TuneMatmul  bool      `toml:"tune_matmul" help:"Before the first step, time the algorithms of cuBLASLt for each matrix multiplication, record the fastest in the run directory, and use them. Needs a GPU."`
	Epochs      int       `toml:"epochs" required:"10" range:"1.." help:"Number of epochs."`
	Batch       int       `toml:"batch" required:"32" range:"1.." help:"Samples per rank and micro-batch."`
	Accumulate  int       `toml:"accumulate" default:"1" range:"1.." help:"Micro-batches per optimizer step (gradient accumulation)."`
	NoSync      bool      `toml:"no_sync" help:"Accumulate gradients locally and reduce them once per step, for zero2 and zero3 with accumulate. Needs memory for all gradients and gives results bit-identical to ddp. By default, each micro-batch is reduced."`
	Bucket      Size      `toml:"bucket" auto:"an eighth of the model, from 1 MiB to 25 MiB" help:"Size of a gradient bucket."`
	FirstBucket Size      `toml:"first_bucket" auto:"1 MiB, or bucket if that is smaller" help:"Size of the first bucket of a step. A small bucket starts communication early."`
	Reduce      Reduce    `toml:"reduce" default:"fp32" enum:"fp32,bf16" help:"Number format of the gradient all-reduce."`
	NonFinite   NonFinite `toml:"nonfinite" default:"stop" enum:"stop,skip" help:"Reaction to a step with a non-finite loss or gradient."`
	Seed        uint64    `toml:"seed" default:"0" range:"0.." help:"Seed of all random numbers."`
	LogEvery    Interval  `toml:"log_every" default:"50 steps" help:"Interval between progress lines."`
	Model       Model     `toml:"model" required:"" help:"Model to train. The data set determines its input and output sizes."`
	Data        Data      `toml:"data" required:"" help:"Training data, and evaluation data if there are any."`
	Optimizer   Optimizer `toml:"optimizer" required:"" help:"Optimizer, with the semantics of PyTorch."`
	Schedule    Schedule  `toml:"schedule" help:"Learning rate schedule."`
}

// Model is the model to train. The data set determines its input and output sizes.
type Model struct {
	Kind       ModelKind  `toml:"kind" required:"mlp" enum:"linear,mlp,cnn,gpt" help:"Architecture."`
	Hidden     []int      `toml:"hidden" kinds:"mlp!,cnn" example:"[128]" range:"1.." help:"Width of each hidden layer. In a CNN, these layers follow the convolutions, and the list may be empty."`
	Activation Activation `toml:"activation" kinds:"mlp,cnn" default:"relu" enum:"relu,tanh,gelu" help:"Activation function. The value gelu is the tanh approximation that GPT-2 uses."`
	Dropout    float64    `toml:"dropout" kinds:"mlp,cnn,gpt" default:"0" range:"0..<1" help:"Dropout probability."`
	Channels   []int      `toml:"channels" kinds:"cnn!" example:"[32, 64]" range:"1.." help:"Output channels of each convolution. A 2x2 max pooling follows each convolution."`
	Kernel     int        `toml:"kernel" kinds:"cnn" default:"3" range:"1.." help:"Side length of the convolution kernels. Must be odd."`
	Size       GPTSize    `toml:"size" kinds:"gpt" auto:"required without layers, heads, width, and context" example:"gpt2" enum:"gpt2,gpt2-medium,gpt2-large,gpt2-xl" help:"Size of a published GPT-2 model. Sets layers, heads, width, and context, unless they are also set."`
	Layers     int        `toml:"layers" kinds:"gpt" auto:"from size" example:"4" range:"1.." help:"Number of transformer blocks."`
	Heads      int        `toml:"heads" kinds:"gpt" auto:"from size" example:"4" range:"1.." help:"Attention heads per block."`
	Width      int        `toml:"width" kinds:"gpt" auto:"from size" example:"128" range:"1.." help:"Hidden size. Must be divisible by heads."`
	Context    int        `toml:"context" kinds:"gpt" auto:"from size" example:"64" range:"1.." help:"Context length, in tokens per sample."`
	Weights    Text       `toml:"weights" kinds:"gpt" auto:"random initialization" help:"Safetensors file with initial weights, with the tensor names of GPT-2 at Hugging Face."`
}

// Data is the training data and, if there are any, the evaluation data.
type Data struct {
	Kind           DataKind   `toml:"kind" required:"idx" enum:"idx,csv,safetensors,text,tokens,synthetic" help:"Format of the data."`
	Path           Text       `toml:"path" kinds:"idx!,csv!,safetensors!,text!,tokens!" example:"data/train" help:"File with the training data. For idx, a directory or builtin:fashion-mnist. For tokens, the file name may be a pattern."`
	EvalPath       Text       `toml:"eval_path" kinds:"csv,safetensors,tokens" help:"File with the evaluation data, in the same format as path."`
	Holdout        float64    `toml:"holdout" kinds:"csv,safetensors,text,tokens" default:"0" range:"0..0.5" bits:"64" help:"Fraction of the samples that is held out for evaluation if eval_path is not set."`
	Target         Text       `toml:"target" kinds:"csv,safetensors" auto:"the last column, or y" help:"Column of the CSV file, or name of the tensor, with the values to predict."`
	Features       Text       `toml:"features" kinds:"safetensors" default:"x" help:"Name of the tensor with the input features."`
	Task           Task       `toml:"task" kinds:"csv!,safetensors!,synthetic!" example:"regression" enum:"regression,classification" help:"Kind of target. For idx, it is always classification."`
	Vocabulary     Vocabulary `toml:"vocabulary" kinds:"text" default:"char" enum:"char,byte" help:"Unit of text that a token represents."`
	DType          DType      `toml:"dtype" kinds:"tokens" default:"uint16" enum:"uint16,uint32" help:"Number format of the tokens in files without a header."`
	VocabularySize int        `toml:"vocabulary_size" kinds:"tokens" auto:"the minimum for the files, or 50257 for GPT-2's tokens" range:"1.." help:"Size of the vocabulary."`
	Samples        int        `toml:"samples" kinds:"synthetic!" example:"4096" range:"1.." help:"Number of samples."`
	Inputs         int        `toml:"inputs" kinds:"synthetic!" example:"20" range:"1.." help:"Input features per sample."`
	Outputs        int        `toml:"outputs" kinds:"synthetic!" example:"2" range:"1.." help:"Targets per sample for regression, or number of classes."`
	Shuffle        *bool      `toml:"shuffle" default:"true" help:"Shuffle the samples in each epoch."`
	DropLast       bool       `toml:"drop_last" help:"Drop the last batch of an epoch if it is incomplete, as in PyTorch's DataLoader."`
	Uneven         Uneven     `toml:"uneven" default:"pad" enum:"pad,drop,join" help:"Handling of samples that do not divide evenly among the ranks. With drop_last, the default is drop."`
}

// Optimizer is the update rule of the parameters, with the semantics of PyTorch.
type Optimizer struct {
	Kind        OptimizerKind `toml:"kind" required:"sgd" enum:"sgd,adam,adamw,lion,muon" help:"Update rule. The value muon uses Muon for the weights of hidden layers and AdamW for all other parameters."`
	LR          float64       `toml:"lr" required:"0.1" range:"0<.." help:"Learning rate."`
	Momentum    float64       `toml:"momentum" kinds:"sgd,muon" auto:"0.95 for muon, 0 otherwise" range:"0..<1" help:"Momentum."`
	WeightDecay float64       `toml:"weight_decay" auto:"0.01 for adamw, 0.1 for muon, 0 otherwise" range:"0.." help:"Weight decay: an L2 penalty for sgd and adam, decoupled for adamw, lion, and muon."`
	Decay       Decay         `toml:"decay" auto:"matrices for gpt, all otherwise" enum:"matrices,all" help:"Parameters that weight_decay applies to. The value matrices selects parameters with two or more dimensions, so no biases and no normalization gains."`
	Nesterov    bool          `toml:"nesterov" kinds:"sgd" help:"Use Nesterov momentum. Requires momentum."`
	Beta1       float64       `toml:"beta1" kinds:"adam,adamw,lion,muon" default:"0.9" range:"0..<1" help:"Decay rate of the first moment. For lion, the weight of the average of gradients in the update. For muon, a setting of AdamW."`
	Beta2       float64       `toml:"beta2" kinds:"adam,adamw,lion,muon" auto:"0.999 for adam and adamw, 0.99 for lion, 0.95 for muon" range:"0..<1" help:"Decay rate of the second moment. For lion, the decay rate of the average of gradients. For muon, a setting of AdamW."`
	Eps         float64       `toml:"eps" kinds:"adam,adamw,muon" default:"1e-8" range:"0<.." help:"Term that is added to the denominator for numerical stability."`
	ClipNorm    float64       `toml:"clip_norm" auto:"no clipping" range:"0<.." help:"Maximum norm of the gradient over all parameters. Larger gradients are scaled down."`
}

// Schedule is the learning rate schedule.
type Schedule struct {
	Kind       ScheduleKind `toml:"kind" required:"cosine" enum:"constant,cosine,step" help:"Shape of the schedule. Without this table, the learning rate is constant."`
	WarmUp     int          `toml:"warmup" default:"0" range:"0.." help:"Steps in which the learning rate rises to optimizer.lr."`
	WarmUpFrom float64      `toml:"warmup_from" default:"0" range:"0.." help:"Learning rate of the first warm-up step, as a fraction of optimizer.lr from 0 to 1."`
	Steps      int          `toml:"steps" kinds:"cosine!" example:"10000" range:"1.." help:"Steps after the warm-up until the learning rate reaches floor."`
	Floor      float64      `toml:"floor" kinds:"cosine" default:"0" range:"0.." help:"Final learning rate."`
	Gamma      float64      `toml:"gamma" kinds:"step!" example:"0.1" range:"0<.." help:"Factor of each change of the learning rate, at most 1."`
	Every      int          `toml:"every" kinds:"step!" example:"1000" range:"1.." help:"Steps between two changes of the learning rate."`
}

// Command is the user's program, which runs instead of the built-in trainer.
type Command struct {
	Argv     []Text   `toml:"argv" required:"[\"python3\", \"train.py\"]" help:"Program and its arguments. No shell interprets them. ddpbatch replaces {run_dir}, {run_id}, {attempt}, {checkpoint_dir}, {array_task}, and {component.NAME.address}; with run = \"once\" also {hostfile}."`
	Launcher Launcher `toml:"launcher" default:"rank" enum:"rank,torchrun,accelerate,deepspeed,lightning" help:"Way to start the program: once per rank; with one torchrun per node; or once per rank with the environment of Accelerate, DeepSpeed, or Lightning. For torchrun, argv starts with the script, without a Python interpreter."`
	Run      RunMode  `toml:"run" default:"ranks" enum:"ranks,once" help:"Processes to start: the ranks, or with once a single process on the first node. It starts its own processes on all nodes of the job, as Ray, mpirun, horovodrun, DeepSpeed, and scripts that call srun do."`
	Workdir  Text     `toml:"workdir" auto:"the directory of the job file" help:"Working directory."`
	Snapshot bool     `toml:"snapshot" help:"Run a copy of workdir that is made at submission."`

	StopSignal    StopSignal `toml:"stop_signal" auto:"TERM, or USR1 near the time limit unless launcher is lightning" enum:"USR1,USR2,TERM,INT,HUP" help:"Signal that asks the program to save and stop. ddpbatch sends it to the processes that handle it, also below torchrun, accelerate, deepspeed, and shells."`
	StopGrace     Duration   `toml:"stop_grace" auto:"no limit" help:"Maximum time from the stop signal to the end of the program. Then ddpbatch kills the program with SIGKILL."`
	StopCodes     []int      `toml:"stop_codes" example:"[42]" range:"1..255" help:"Exit codes, in addition to 0 and 3, with which the program ends after it has saved and stopped on request."`
	CheckpointDir Text       `toml:"checkpoint_dir" auto:"a directory in the run directory" help:"Directory for the program's checkpoints. ddpbatch creates it and passes it as DDPBATCH_CHECKPOINT_DIR. May contain {run_dir} and {run_id}."`
	Tracking      []Tracker  `toml:"tracking" enum:"wandb,mlflow" help:"Experiment trackers whose run continues after a restart. wandb: sets WANDB_RUN_ID and WANDB_RESUME. mlflow: sets MLFLOW_RUN_ID if the program has stored its ID."`
	Output        Output     `toml:"output" default:"merged" enum:"merged,labeled,per-rank,rank0" help:"Output in the log of the run: all ranks, all ranks with the rank in front of each line, no rank, or rank 0 only. The output of each rank is always in a separate file."`
	OutputLimit   Size       `toml:"output_limit" auto:"64 MiB" help:"Maximum size of the file with a rank's output, for each attempt. The file keeps the start and the end of longer output."`
	Progress      Progress   `toml:"progress" help:"Source of the program's progress and metrics (default: the usual forms in its output, and lines in DDPBATCH_METRICS)."`
	Watch         Watch      `toml:"watch" help:"Detection of a program that hangs."`
}

// Checkpoint configures the checkpoints of the built-in trainer.
type Checkpoint struct {
	Every     Interval  `toml:"every" default:"1 epoch" help:"Interval between checkpoints."`
	Keep      int       `toml:"keep" default:"3" range:"1.." help:"Number of recent checkpoints to retain."`
	KeepEvery Interval  `toml:"keep_every" auto:"none" help:"Interval between checkpoints that are retained permanently."`
	KeepBest  Metric    `toml:"keep_best" auto:"none" enum:"eval_loss,accuracy" help:"Metric of the best checkpoint, which is also retained."`
	Async     bool      `toml:"async" help:"Write checkpoints in the background, from a copy of the weights and the optimizer state. Each rank that saves needs memory for the copy, so a job may no longer fit."`
	OnError   SaveError `toml:"on_error" default:"stop" enum:"stop,continue" help:"Reaction to a failed checkpoint."`
}

// Restart configures restarts in the same allocation after a failure, and requeues at the time
// limit.
type Restart struct {
	MaxWithoutProgress int `toml:"max_without_progress" auto:"2 with spare_nodes or min_nodes, 0 otherwise" range:"0.." help:"Maximum number of consecutive restarts without progress: a new checkpoint, or a later step in the output of the program."`
	SpareNodes         int `toml:"spare_nodes" default:"0" range:"0.." help:"Additional nodes to allocate, as replacements for failed nodes."`
	MinNodes           int `toml:"min_nodes" auto:"slurm.nodes" range:"1.." help:"Minimum number of nodes to continue with after node failures."`
	OnFailure          int `toml:"on_failure" default:"0" range:"0.." help:"Maximum number of requeues of a job that has failed. The job is requeued only if it made progress: a newer checkpoint, or a later step of a program than in all earlier attempts."`
	Requeue            int `toml:"requeue" default:"0" range:"0.." help:"Maximum number of requeues at the time limit."`
}

// Log configures output in addition to the log and metrics.jsonl.
type Log struct {
	Prometheus Text      `toml:"prometheus" auto:"no export" help:"Directory that the textfile collector of node_exporter reads on the node of rank 0."`
	Trace      StepRange `toml:"trace" auto:"no trace" help:"Steps whose timeline each rank records for ddpbatch trace, at most 1,000 steps."`
}

// Notify configures the messages about a run.
type Notify struct {
	Events      []NotifyEvent `toml:"events" auto:"finished and failed" enum:"started,finished,failed,stopped,restarted" help:"Events that cause a message."`
	WebhookFile Text          `toml:"webhook_file" help:"File with the address of a webhook. Only its owner may have access. The webhook gets JSON with the field text, which Slack and Mattermost show."`
	WebhookEnv  EnvName       `toml:"webhook_env" help:"Environment variable with the address of a webhook, instead of webhook_file."`
	Command     []Text        `toml:"command" help:"Program and its arguments. It gets the message as JSON on its standard input. No shell interprets the arguments."`
}

// DefaultNotifyEvents are the events that cause a message by default.
var DefaultNotifyEvents = []NotifyEvent{NotifyFinished, NotifyFailed}

// SurvivesNodeLoss reports whether the job continues in its allocation after a node failure.
func (r Restart) SurvivesNodeLoss() bool { return r.SpareNodes > 0 || r.MinNodes > 0 }

// AllocatedNodes returns the number of nodes to request from Slurm, including spare nodes.
func (j *Job) AllocatedNodes() int { return j.Slurm.Nodes + j.Restart.SpareNodes }

// RunsOnce reports whether the job is a program that runs once, on the first node.
func (j *Job) RunsOnce() bool { return j.Command != nil && j.Command.Run == RunOnce }

// Ranks returns the world size: the number of nodes times the number of ranks per node. A program
// with run = "once" is a single rank.
func (j *Job) Ranks() int {
	if j.RunsOnce() {
		return 1
	}
	if len(j.Slurm.RanksPerNode) > 0 {
		return sum(j.Slurm.RanksPerNode)
	}
	return max(1, j.Slurm.Nodes) * j.TasksPerNode()
}

// RanksOn returns the number of ranks on a node, for nodes from 0. See [Job.TasksPerNode].
func (j *Job) RanksOn(node int) int {
	if node < len(j.Slurm.RanksPerNode) {
		return j.Slurm.RanksPerNode[node]
	}
	return j.TasksPerNode()
}

// FirstRankOn returns the lowest rank on a node: the number of ranks on the nodes before it.
func (j *Job) FirstRankOn(node int) int {
	if list := j.Slurm.RanksPerNode; len(list) > 0 {
		return sum(list[:min(node, len(list))])
	}
	return node * j.TasksPerNode()
}

func sum(list []int) (total int) {
	for _, n := range list {
		total += n
	}
	return total
}

// TasksPerNode returns the number of ranks per node: tasks_per_node, else gpus_per_node, else
// 1. With ranks_per_node, it is the largest number of ranks on a node. With launcher = "torchrun",
// it is the number of processes that each torchrun starts. With run = "once", it is the number of
// tasks per node for the processes that the program starts.
func (j *Job) TasksPerNode() int {
	switch {
	case len(j.Slurm.RanksPerNode) > 0:
		return slices.Max(j.Slurm.RanksPerNode)
	case j.Slurm.TasksPerNode > 0:
		return j.Slurm.TasksPerNode
	case j.Slurm.GPUsPerNode > 0:
		return j.Slurm.GPUsPerNode
	}
	return 1
}
