package jobs

import (
	"slices"
	"strings"
)

// The types of keys with a fixed set of values. The enum tag of the key lists the values.
type (
	Family        string // IP version of the ranks' connections
	Integrity     string // protection of messages between ranks on different nodes
	Device        string // hardware that the built-in trainer runs on
	Backend       string // communication library of the built-in trainer
	Strategy      string // sharding of the model across ranks
	Metric        string // value that determines which of two models is better
	ModelKind     string // model architecture of the built-in trainer
	Activation    string // function between the layers of an MLP or a CNN
	DataKind      string // format of training data
	Vocabulary    string // unit of text that a token represents
	DType         string // number format of a stored token
	Task          string // kind of target: values or classes
	Decay         string // parameters that weight decay applies to
	OptimizerKind string // update rule of the optimizer
	ScheduleKind  string // shape of the learning rate schedule
	Launcher      string // way to start the user's program
	RunMode       string // processes to start for the user's program
	Output        string // output of the user's program in the log of the run
	StopSignal    string // name of the signal that stops the user's program, without SIG
	Tracker       string // service that records experiments
	Hint          string // hint of sbatch about the binding of tasks to cores
	OpenMode      string // handling of an existing log file
	Export        string // environment that a batch script starts with
	NotifyEvent   string // event of a run that causes a message
	MailEvent     string // event of a job that Slurm reports by mail
	Directive     string // name of an option of sbatch, without dashes
)

// A Precision is the number format of the built-in trainer. With bf16, matrix multiplications
// use bfloat16 inputs, and a GPU may store intermediate results in bfloat16. Everything else,
// including the parameters, stays in fp32.
type Precision string

// A Reduce is the number format of the gradient all-reduce. With bf16, gradients and each sum
// are rounded to bfloat16, which halves the traffic between ranks.
type Reduce string

// A NonFinite is the reaction to a step with a non-finite loss or non-finite gradients. The
// run stops, or it skips the step and leaves the parameters unchanged.
type NonFinite string

// A SaveError is the reaction to a failed write of a checkpoint. The run stops, or it
// continues until the next checkpoint. The first and the last checkpoint must always be
// written.
type SaveError string

// An Uneven is the handling of an epoch's last samples if they do not divide evenly among the
// ranks. As in PyTorch's DistributedSampler, some samples are repeated (pad) or the last ones
// are dropped (drop). With join, ranks without samples take part with padding batches.
type Uneven string

// A ContainerRuntime starts containers. It is a program that starts each rank (apptainer,
// singularity, shifter) or an extension of srun: NVIDIA's pyxis plugin (--container-image) or
// CSCS's container engine (--environment).
type ContainerRuntime string

// Values of the enum tags in [Job].
const (
	OpenModeAppend   OpenMode = "append"
	OpenModeTruncate OpenMode = "truncate"

	NotifyStarted   NotifyEvent = "started"
	NotifyFinished  NotifyEvent = "finished"
	NotifyFailed    NotifyEvent = "failed"
	NotifyStopped   NotifyEvent = "stopped"   // by a stop request, such as at the time limit
	NotifyRestarted NotifyEvent = "restarted" // after a failure or a requeue

	ExportAll  Export = "all"
	ExportNone Export = "none" // --export=NONE

	FamilyAuto Family = "auto"
	FamilyIPv4 Family = "ipv4"
	FamilyIPv6 Family = "ipv6"

	IntegrityChecksum Integrity = "checksum" // CRC-32C: detects corruption
	IntegrityMAC      Integrity = "mac"      // AES-256-GMAC: also detects tampering

	DeviceAuto Device = "auto" // a GPU, or the CPU if there is no GPU
	DeviceCUDA Device = "cuda"
	DeviceCPU  Device = "cpu"

	BackendAuto Backend = "auto" // tcp for CPUs; nccl for GPUs if it is installed
	BackendTCP  Backend = "tcp"  // shared memory inside a node, TCP between nodes
	BackendMPI  Backend = "mpi"  // the site's MPI library
	BackendNCCL Backend = "nccl" // between GPUs

	StrategyDDP   Strategy = "ddp"
	StrategyZeRO1 Strategy = "zero1"
	StrategyZeRO2 Strategy = "zero2"
	StrategyZeRO3 Strategy = "zero3"

	PrecisionFP32 Precision = "fp32"
	PrecisionBF16 Precision = "bf16"

	ReduceFP32 Reduce = "fp32"
	ReduceBF16 Reduce = "bf16"

	SaveErrorStop     SaveError = "stop"
	SaveErrorContinue SaveError = "continue"

	MetricEvalLoss Metric = "eval_loss" // lower is better
	MetricAccuracy Metric = "accuracy"  // higher is better

	NonFiniteStop NonFinite = "stop"
	NonFiniteSkip NonFinite = "skip"

	ModelLinear ModelKind = "linear"
	ModelMLP    ModelKind = "mlp"
	ModelCNN    ModelKind = "cnn"
	ModelGPT    ModelKind = "gpt"

	ActivationReLU Activation = "relu"
	ActivationTanh Activation = "tanh"
	ActivationGELU Activation = "gelu"

	DataIDX         DataKind = "idx"
	DataCSV         DataKind = "csv"
	DataSafetensors DataKind = "safetensors"
	DataText        DataKind = "text"
	DataTokens      DataKind = "tokens"
	DataSynthetic   DataKind = "synthetic"

	VocabularyChar Vocabulary = "char"
	VocabularyByte Vocabulary = "byte"

	DTypeUint16 DType = "uint16"
	DTypeUint32 DType = "uint32"

	UnevenPad  Uneven = "pad"
	UnevenDrop Uneven = "drop"
	UnevenJoin Uneven = "join"

	TaskRegression     Task = "regression"
	TaskClassification Task = "classification"

	OptimizerSGD   OptimizerKind = "sgd"
	OptimizerAdam  OptimizerKind = "adam"
	OptimizerAdamW OptimizerKind = "adamw"
	OptimizerLion  OptimizerKind = "lion"
	OptimizerMuon  OptimizerKind = "muon"

	DecayMatrices Decay = "matrices"
	DecayAll      Decay = "all"

	ScheduleConstant ScheduleKind = "constant"
	ScheduleCosine   ScheduleKind = "cosine"
	ScheduleStep     ScheduleKind = "step"

	LauncherRank     Launcher = "rank"
	LauncherTorchrun Launcher = "torchrun"

	RunRanks RunMode = "ranks" // one process per rank, or one torchrun per node
	RunOnce  RunMode = "once"  // one process on the first node

	TrackerWandB  Tracker = "wandb"
	TrackerMLflow Tracker = "mlflow"

	ContainerApptainer    ContainerRuntime = "apptainer"
	ContainerSingularity  ContainerRuntime = "singularity"
	ContainerShifter      ContainerRuntime = "shifter"
	ContainerPyxis        ContainerRuntime = "pyxis"
	ContainerEDF          ContainerRuntime = "edf"
	ContainerCharliecloud ContainerRuntime = "charliecloud"
	ContainerNone         ContainerRuntime = "none"

	OutputMerged  Output = "merged"
	OutputLabeled Output = "labeled"
	OutputPerRank Output = "per-rank"
	OutputRank0   Output = "rank0"
)

// choose returns v, or the value of the alias v, if it is one of the choices. The error lists
// the choices.
func (r rules) choose(v any) (string, error) {
	allowed := "allowed: " + strings.Join(r.choices, ", ")
	s, err := stringValue(v)
	if err != nil {
		return "", valueErrorf(allowed, "%s", err)
	}
	if !slices.Contains(r.choices, s) {
		invalid := valueErrorf(allowed, "%q is not a valid value", s)
		invalid.suggestion = Nearest(s, r.choices)
		return "", invalid
	}
	if value, ok := r.aliases[s]; ok {
		return value, nil
	}
	return s, nil
}

// text returns a TOML string without control characters, or one of the choices.
func (r rules) text(v any) (string, error) {
	if r.choices != nil {
		return r.choose(v)
	}
	var t Text
	err := t.UnmarshalTOML(v)
	return string(t), err
}
