package jobs

// Job is a training job as its TOML file describes it, with every default
// filled in. Exactly one of Train and Command is set.
type Job struct {
	Name       Name       `toml:"name"` // of the job; also names the run folder
	Site       string     `toml:"site"` // profile of the computing centre; default "generic"
	Slurm      Slurm      `toml:"slurm"`
	Setup      Setup      `toml:"setup"`
	Network    Network    `toml:"network"`
	Train      *Train     `toml:"train"`
	Command    *Command   `toml:"command"`
	Checkpoint Checkpoint `toml:"checkpoint"`
	Restart    Restart    `toml:"restart"`
	Log        Log        `toml:"log"`
	Sweep      *Sweep     `toml:"sweep"`

	// layout lets later checks (files, sites) point into the file. It is nil
	// for a Job that was not parsed.
	layout *layout
}

// Slurm is what the job asks of the scheduler. Empty values are left to the
// site's defaults.
type Slurm struct {
	Nodes           Count        `toml:"nodes"`             // nodes to train on; default 1
	TasksPerNode    Count        `toml:"tasks_per_node"`    // ranks per node; default gpus_per_node, else 1
	GPUsPerNode     Count        `toml:"gpus_per_node"`     // GPUs of each node; default none are asked for
	CPUsPerTask     Count        `toml:"cpus_per_task"`     // cores of each rank; default 1
	Time            WallTime     `toml:"time"`              // limit, as sbatch --time: "02:00:00", "1-12:00:00", "90" (minutes); default the site's
	Memory          Memory       `toml:"mem"`               // per node, as sbatch --mem: "64G", "512M"; default the site's
	Partition       Word         `toml:"partition"`         // sbatch --partition; default the site's
	Account         Word         `toml:"account"`           // sbatch --account
	QOS             Word         `toml:"qos"`               // sbatch --qos
	Reservation     Word         `toml:"reservation"`       // sbatch --reservation
	Constraint      Text         `toml:"constraint"`        // sbatch --constraint, features of nodes: may hold & | [ ]
	Exclusive       bool         `toml:"exclusive"`         // sbatch --exclusive: share the nodes with no other job
	Dependency      []Dependency `toml:"dependency"`        // runs that must come first: "afterok:prepare"
	GPUBind         Word         `toml:"gpu_bind"`          // srun --gpu-bind; default the site's
	CPUBind         Word         `toml:"cpu_bind"`          // srun --cpu-bind; default the site's
	MPI             Word         `toml:"mpi"`               // srun --mpi, for an MPI program in [command] if given, and with train.backend = "mpi": pmix, pmi2, cray_shasta; default the site's, else pmix
	SignalBeforeEnd Duration     `toml:"signal_before_end"` // save and stop this long before the time limit; 0 is off; default 120s or a quarter of a shorter time, with [command] off
}

// Setup is what a node needs before a rank starts.
type Setup struct {
	Lines     []Text           `toml:"lines"`   // lines of shell, before the modules; in submitted jobs only, `launch` warns
	Modules   []Word           `toml:"modules"` // to load with `module load`, in order; in submitted jobs only, `launch` warns
	Conda     Text             `toml:"conda"`   // conda environment, name or path; in submitted jobs only, `launch` warns
	Venv      Text             `toml:"venv"`    // path of a Python virtual environment
	Env       map[EnvName]Text `toml:"env"`     // variables for the ranks
	Secrets   Secrets          `toml:"secrets"`
	Container Container        `toml:"container"`
}

// Secrets are variables for the ranks that stand in no script, record or argument
// list. A value comes from the file, else from the environment at submission.
type Secrets struct {
	Names []EnvName `toml:"names"` // names of the variables
	File  Text      `toml:"file"`  // with lines NAME=value; only its owner may read it; default their values come from the environment
}

// Container is what the ranks run in; under Slurm only: a local `launch` warns.
type Container struct {
	Image   Text             `toml:"image"`   // a file, or a name that the runtime knows
	Runtime ContainerRuntime `toml:"runtime"` // what runs it; default the site's
	Options []Text           `toml:"options"` // further options of the runtime, such as "--nv"; default the site's
	Mounts  []Text           `toml:"mounts"`  // "/data", "/data:/inside" or "/data:/inside:ro"; the run's own folders are always there
}

// Network steers the choice of the network that ranks talk over.
type Network struct {
	Interface         InterfaceName   `toml:"interface"`          // an interface's name, or "auto"; default "auto"
	Family            Family          `toml:"family"`             // version of IP: auto (default), ipv4, ipv6
	Exclude           []InterfaceName `toml:"exclude"`            // interfaces never to use
	JoinTimeout       Duration        `toml:"join_timeout"`       // all ranks must have joined by then; default 60s
	CollectiveTimeout Duration        `toml:"collective_timeout"` // one operation between ranks may take this long; default 5m
	Integrity         Integrity       `toml:"integrity"`          // protection of data between nodes: checksum (default) detects damage, mac also detects deliberate changes; neither encrypts
	MPILibrary        Text            `toml:"mpi_library"`        // with train.backend = "mpi": path or name of libmpi; default what the loader finds
	HeartbeatTimeout  Duration        `toml:"heartbeat_timeout"`  // a rank may be silent for so long; default 60s
	ProgressTimeout   Duration        `toml:"progress_timeout"`   // a training may stand still for so long; default 30m
}

// Train is a run of the built-in trainer.
type Train struct {
	Device      Device    `toml:"device"`       // what computes: auto (default), cuda (or gpu), cpu
	Backend     Backend   `toml:"backend"`      // what carries the exchange between ranks: auto (default), tcp, mpi, nccl
	Strategy    Strategy  `toml:"strategy"`     // how the model is spread over ranks: ddp (default), zero1, zero2 or zero3 (or fsdp)
	Precision   Precision `toml:"precision"`    // of products of matrices: fp32 (default), bf16
	Epochs      Count     `toml:"epochs"`       // passes over the training set
	Batch       Count     `toml:"batch"`        // samples per rank and micro-batch
	Accumulate  Count     `toml:"accumulate"`   // micro-batches whose gradients make one step; default 1
	NoSync      bool      `toml:"no_sync"`      // zero2, zero3 with accumulate: add up micro-batches on each rank first, which takes memory for whole gradients and gives the bits of ddp; default false: after each micro-batch
	Bucket      Size      `toml:"bucket"`       // gradients that ranks add up at a time; default an eighth of the model, from "1 MiB" to "25 MiB"
	FirstBucket Size      `toml:"first_bucket"` // the first of a step, which should start early; default "1 MiB", or bucket if that is less
	Reduce      Reduce    `toml:"reduce"`       // what ranks add gradients up in: fp32 (default), bf16
	NonFinite   NonFinite `toml:"nonfinite"`    // what becomes of a step that is not finite: stop (default), skip
	Seed        Seed      `toml:"seed"`         // of all that is random; default 0
	LogEvery    Interval  `toml:"log_every"`    // between lines of progress; default "50 steps"
	Model       Model     `toml:"model"`
	Data        Data      `toml:"data"`
	Optimizer   Optimizer `toml:"optimizer"`
	Schedule    Schedule  `toml:"schedule"`
}

// Model is the network to train. Its input and output sizes follow the data.
type Model struct {
	Kind       ModelKind  `toml:"kind"`       // architecture: linear, mlp, cnn, gpt
	Hidden     []Count    `toml:"hidden"`     // mlp, cnn: width of each hidden layer, in a CNN after the convolutions; [] for none
	Activation Activation `toml:"activation"` // mlp, cnn: relu (default), tanh, gelu (by tanh, as GPT-2's)
	Dropout    Fraction   `toml:"dropout"`    // mlp, cnn, gpt: chance that a value is left out in training; default 0
	Channels   []Count    `toml:"channels"`   // cnn: channels of each convolution, which 2x2 max pooling follows
	Kernel     Count      `toml:"kernel"`     // cnn: side of the square of each convolution, odd; default 3
	Size       GPTSize    `toml:"size"`       // gpt: stands for the four numbers below, which stand over it
	Layers     Count      `toml:"layers"`     // gpt: transformer blocks
	Heads      Count      `toml:"heads"`      // gpt: attention heads of each block
	Width      Count      `toml:"width"`      // gpt: numbers per token, divisible by the heads
	Context    Count      `toml:"context"`    // gpt: tokens per sample
	Weights    Text       `toml:"weights"`    // gpt: a safetensors file to start from, with Hugging Face's names for GPT-2; empty: drawn weights
}

// Data is the training set and, where there is one, the held-out set.
type Data struct {
	Kind           DataKind   `toml:"kind"`            // form of the data: idx, csv, safetensors, text, tokens, synthetic
	Path           Text       `toml:"path"`            // idx: a folder, or "builtin:fashion-mnist"; tokens: a file, or a pattern in its name; the others: a file
	EvalPath       Text       `toml:"eval_path"`       // csv, safetensors, tokens: the held-out data, of the form of path
	Holdout        Share      `toml:"holdout"`         // csv, safetensors, text, tokens: share of the samples to hold out where there is no eval_path; default 0
	Target         Text       `toml:"target"`          // csv: name of the column to predict; safetensors: of the tensor; default the last column, "y"
	Features       Text       `toml:"features"`        // safetensors: name of the tensor that goes in; default "x"
	Task           Task       `toml:"task"`            // csv, safetensors, synthetic: regression, classification; idx is always classification
	Vocabulary     Vocabulary `toml:"vocabulary"`      // text: what a token is: char (default), byte
	DType          DType      `toml:"dtype"`           // tokens: how files without a header store one: uint16 (default), uint32
	VocabularySize Count      `toml:"vocabulary_size"` // tokens: how many there are; default as the files need it, for GPT-2's 50257
	Samples        Count      `toml:"samples"`         // synthetic: how many
	Inputs         Count      `toml:"inputs"`          // synthetic: features per sample
	Outputs        Count      `toml:"outputs"`         // synthetic: targets (regression) or classes
	Shuffle        *bool      `toml:"shuffle"`         // draw another order for each epoch; default true
	DropLast       bool       `toml:"drop_last"`       // leave out the last batch where it is short, as PyTorch's drop_last
	Uneven         Uneven     `toml:"uneven"`          // samples that do not go around the ranks: pad (default), drop (with drop_last), join
}

// Optimizer is the update rule, as PyTorch defines it.
type Optimizer struct {
	Kind        OptimizerKind `toml:"kind"`         // update rule: sgd, adam, adamw
	LR          Positive      `toml:"lr"`           // learning rate
	Momentum    Fraction      `toml:"momentum"`     // sgd: default 0
	WeightDecay NonNegative   `toml:"weight_decay"` // L2, as torch.optim.SGD and Adam; decoupled for adamw; default 0, for adamw 0.01
	Decay       Decay         `toml:"decay"`        // parameters that weight_decay applies to: matrices (those with at least two dimensions, so no biases and no normalization gains), all; default all, for gpt matrices
	Nesterov    bool          `toml:"nesterov"`     // sgd: needs momentum
	Beta1       Fraction      `toml:"beta1"`        // adam, adamw: default 0.9
	Beta2       Fraction      `toml:"beta2"`        // adam, adamw: default 0.999
	Eps         Positive      `toml:"eps"`          // adam, adamw: default 1e-8
	ClipNorm    Positive      `toml:"clip_norm"`    // longest gradient over all parameters; longer ones are scaled down; default none
}

// Schedule is how the learning rate changes with the steps.
type Schedule struct {
	Kind       ScheduleKind     `toml:"kind"`        // shape: constant (also without this table), cosine, step
	WarmUp     NonNegativeCount `toml:"warmup"`      // steps in which the rate rises to optimizer.lr; default 0
	WarmUpFrom NonNegative      `toml:"warmup_from"` // part of the rate in the first of them, 0 to 1; default 0
	Steps      Count            `toml:"steps"`       // cosine: steps, after the warm-up, until the floor is reached
	Floor      NonNegative      `toml:"floor"`       // cosine: the last rate; default 0
	Gamma      Positive         `toml:"gamma"`       // step: the factor, at most 1
	Every      Count            `toml:"every"`       // step: steps between two changes
}

// Command is the user's own program, run instead of the built-in trainer.
type Command struct {
	Argv     []Text   `toml:"argv"`     // program and arguments; no shell is involved
	Launcher Launcher `toml:"launcher"` // rank (default): argv once per rank; torchrun: one torchrun per node runs argv, without a Python interpreter in front of the script
	Workdir  Text     `toml:"workdir"`  // where it starts; default the folder of the job file
	Snapshot bool     `toml:"snapshot"` // run a copy of workdir as it was at submission
}

// Checkpoint says when rank 0 saves.
type Checkpoint struct {
	Every     Interval  `toml:"every"`      // between two saves: "500 steps"; default "1 epoch"
	Keep      Count     `toml:"keep"`       // newest ones kept; default 3
	KeepEvery Interval  `toml:"keep_every"` // and, for good, those after each so many steps or epochs; default none
	KeepBest  Metric    `toml:"keep_best"`  // and the best by eval_loss or accuracy; default none
	Async     bool      `toml:"async"`      // save while training goes on, from a copy of weights and optimiser state, for which each rank that saves needs memory; default false: a job that fits without the copy may not with it
	OnError   SaveError `toml:"on_error"`   // what a save that fails does: stop (default), continue
}

// Restart says how often a failed attempt is started again inside the
// allocation, and on which nodes, and a job that reached its time limit in another one.
type Restart struct {
	MaxWithoutProgress NonNegativeCount `toml:"max_without_progress"` // restarts with no newer checkpoint between them; default 0, or 2 with one of the next two
	SpareNodes         NonNegativeCount `toml:"spare_nodes"`          // asked for beside slurm.nodes, to take the place of nodes that fail; default 0
	MinNodes           Count            `toml:"min_nodes"`            // go on with so few when nodes have failed; default slurm.nodes
	Requeue            NonNegativeCount `toml:"requeue"`              // times that a job goes back into the queue at its time limit; default 0
}

// Log says what else is told of a training, beside the log and metrics.jsonl.
type Log struct {
	Prometheus Text      `toml:"prometheus"` // folder that the textfile collector of rank 0's node_exporter reads; default none
	Trace      StepRange `toml:"trace"`      // steps whose timeline each rank records, for `ddpbatch trace`: "100-110", at most 1000; default none
}

// SurvivesNodeLoss says whether the job goes on in its allocation when a node has failed.
func (r Restart) SurvivesNodeLoss() bool { return r.SpareNodes > 0 || r.MinNodes > 0 }

// AllocatedNodes is how many nodes Slurm is asked for: those that are trained on, and
// the spare ones.
func (j *Job) AllocatedNodes() int { return int(j.Slurm.Nodes) + int(j.Restart.SpareNodes) }

// Ranks is the world size: nodes times ranks per node.
func (j *Job) Ranks() int {
	return max(1, int(j.Slurm.Nodes)) * j.TasksPerNode()
}

// TasksPerNode is the number of ranks on each node: tasks_per_node, else
// gpus_per_node, else 1. With launcher = "torchrun" it is the number of
// processes that each torchrun starts.
func (j *Job) TasksPerNode() int {
	switch {
	case j.Slurm.TasksPerNode > 0:
		return int(j.Slurm.TasksPerNode)
	case j.Slurm.GPUsPerNode > 0:
		return int(j.Slurm.GPUsPerNode)
	}
	return 1
}
