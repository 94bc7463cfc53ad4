package jobs

import "strings"

// A Family is the IP version that ranks use.
type Family string

// An Integrity is the protection of messages between ranks on different nodes.
type Integrity string

// A Device is the hardware that the built-in trainer runs on.
type Device string

// A Strategy is how the built-in trainer shards the model across ranks.
type Strategy string

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

// A Metric is the value that determines which of two models is better.
type Metric string

// A ModelKind is a model architecture of the built-in trainer.
type ModelKind string

// An Activation is the function between the layers of an MLP or a CNN.
type Activation string

// A DataKind is a format of training data.
type DataKind string

// A Vocabulary is the unit of text that a token represents.
type Vocabulary string

// A DType is the number format of a stored token.
type DType string

// An Uneven is the handling of an epoch's last samples if they do not divide evenly among the
// ranks. As in PyTorch's DistributedSampler, some samples are repeated (pad) or the last ones
// are dropped (drop). With join, ranks without samples take part with padding batches.
type Uneven string

// A Task is the kind of target: values or classes.
type Task string

// A Decay selects the parameters that weight decay applies to.
type Decay string

// An OptimizerKind is the update rule of the optimizer.
type OptimizerKind string

// A ScheduleKind is the kind of learning rate schedule.
type ScheduleKind string

// A Launcher is the way to start the user's program.
type Launcher string

// A ContainerRuntime starts containers. It is a program that starts each rank (apptainer,
// singularity, shifter) or an extension of srun: NVIDIA's pyxis plugin (--container-image) or
// CSCS's container engine (--environment).
type ContainerRuntime string

// A Backend is the communication library for the ranks of the built-in trainer.
type Backend string

// Values of each choice. The default, if there is one, comes first.
const (
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

	DecayMatrices Decay = "matrices"
	DecayAll      Decay = "all"

	ScheduleConstant ScheduleKind = "constant"
	ScheduleCosine   ScheduleKind = "cosine"
	ScheduleStep     ScheduleKind = "step"

	LauncherRank     Launcher = "rank"
	LauncherTorchrun Launcher = "torchrun"

	ContainerApptainer   ContainerRuntime = "apptainer"
	ContainerSingularity ContainerRuntime = "singularity"
	ContainerShifter     ContainerRuntime = "shifter"
	ContainerPyxis       ContainerRuntime = "pyxis"
	ContainerEDF         ContainerRuntime = "edf"
	ContainerNone        ContainerRuntime = "none"
)

// choose returns v as a T if it is one of the options. The error lists the options.
func choose[T ~string](v any, options ...T) (T, error) {
	names := make([]string, len(options))
	for i, o := range options {
		names[i] = string(o)
	}
	allowed := "allowed: " + strings.Join(names, ", ")
	s, err := stringValue(v)
	if err != nil {
		return "", valueErrorf(allowed, "%s", err)
	}
	for _, o := range options {
		if s == string(o) {
			return o, nil
		}
	}
	r := valueErrorf(allowed, "%q is not known", s)
	r.suggestion, r.choices = nearest(s, names), names
	return "", r
}

// UnmarshalTOML accepts "auto", "ipv4", and "ipv6".
func (f *Family) UnmarshalTOML(v any) (err error) {
	*f, err = choose(v, FamilyAuto, FamilyIPv4, FamilyIPv6)
	return err
}

// UnmarshalTOML accepts "checksum" and "mac".
func (i *Integrity) UnmarshalTOML(v any) (err error) {
	*i, err = choose(v, IntegrityChecksum, IntegrityMAC)
	return err
}

// UnmarshalTOML accepts "auto", "cuda", and "cpu". "gpu" means "cuda".
func (d *Device) UnmarshalTOML(v any) (err error) {
	const gpu Device = "gpu"
	if *d, err = choose(v, DeviceAuto, DeviceCUDA, DeviceCPU, gpu); *d == gpu {
		*d = DeviceCUDA
	}
	return err
}

// UnmarshalTOML accepts "auto", "tcp", "mpi", and "nccl".
func (b *Backend) UnmarshalTOML(v any) (err error) {
	*b, err = choose(v, BackendAuto, BackendTCP, BackendMPI, BackendNCCL)
	return err
}

// UnmarshalTOML accepts "ddp", "zero1", "zero2", and "zero3". "fsdp" means "zero3".
func (s *Strategy) UnmarshalTOML(v any) (err error) {
	const fsdp Strategy = "fsdp"
	if *s, err = choose(v, StrategyDDP, StrategyZeRO1, StrategyZeRO2, StrategyZeRO3, fsdp); *s == fsdp {
		*s = StrategyZeRO3
	}
	return err
}

// UnmarshalTOML accepts "fp32" and "bf16".
func (p *Precision) UnmarshalTOML(v any) (err error) {
	*p, err = choose(v, PrecisionFP32, PrecisionBF16)
	return err
}

// UnmarshalTOML accepts "fp32" and "bf16".
func (r *Reduce) UnmarshalTOML(v any) (err error) {
	*r, err = choose(v, ReduceFP32, ReduceBF16)
	return err
}

// UnmarshalTOML accepts "stop" and "continue".
func (e *SaveError) UnmarshalTOML(v any) (err error) {
	*e, err = choose(v, SaveErrorStop, SaveErrorContinue)
	return err
}

// UnmarshalTOML accepts "eval_loss" and "accuracy".
func (m *Metric) UnmarshalTOML(v any) (err error) {
	*m, err = choose(v, MetricEvalLoss, MetricAccuracy)
	return err
}

// UnmarshalTOML accepts "stop" and "skip".
func (n *NonFinite) UnmarshalTOML(v any) (err error) {
	*n, err = choose(v, NonFiniteStop, NonFiniteSkip)
	return err
}

// UnmarshalTOML accepts "linear", "mlp", "cnn", and "gpt".
func (k *ModelKind) UnmarshalTOML(v any) (err error) {
	*k, err = choose(v, ModelLinear, ModelMLP, ModelCNN, ModelGPT)
	return err
}

// UnmarshalTOML accepts "relu", "tanh", and "gelu".
func (a *Activation) UnmarshalTOML(v any) (err error) {
	*a, err = choose(v, ActivationReLU, ActivationTanh, ActivationGELU)
	return err
}

// UnmarshalTOML accepts "idx", "csv", "safetensors", "text", "tokens", and "synthetic".
func (k *DataKind) UnmarshalTOML(v any) (err error) {
	*k, err = choose(v, DataIDX, DataCSV, DataSafetensors, DataText, DataTokens, DataSynthetic)
	return err
}

// UnmarshalTOML accepts "char" and "byte".
func (u *Vocabulary) UnmarshalTOML(v any) (err error) {
	*u, err = choose(v, VocabularyChar, VocabularyByte)
	return err
}

// UnmarshalTOML accepts "uint16" and "uint32".
func (t *DType) UnmarshalTOML(v any) (err error) {
	*t, err = choose(v, DTypeUint16, DTypeUint32)
	return err
}

// UnmarshalTOML accepts "pad", "drop", and "join".
func (u *Uneven) UnmarshalTOML(v any) (err error) {
	*u, err = choose(v, UnevenPad, UnevenDrop, UnevenJoin)
	return err
}

// UnmarshalTOML accepts "regression" and "classification".
func (t *Task) UnmarshalTOML(v any) (err error) {
	*t, err = choose(v, TaskRegression, TaskClassification)
	return err
}

// UnmarshalTOML accepts "constant", "cosine", and "step".
func (k *ScheduleKind) UnmarshalTOML(v any) (err error) {
	*k, err = choose(v, ScheduleConstant, ScheduleCosine, ScheduleStep)
	return err
}

// UnmarshalTOML accepts "sgd", "adam", and "adamw".
func (k *OptimizerKind) UnmarshalTOML(v any) (err error) {
	*k, err = choose(v, OptimizerSGD, OptimizerAdam, OptimizerAdamW)
	return err
}

// UnmarshalTOML accepts "matrices" and "all".
func (d *Decay) UnmarshalTOML(v any) (err error) {
	*d, err = choose(v, DecayMatrices, DecayAll)
	return err
}

// UnmarshalTOML accepts "rank" and "torchrun".
func (l *Launcher) UnmarshalTOML(v any) (err error) {
	*l, err = choose(v, LauncherRank, LauncherTorchrun)
	return err
}

// UnmarshalTOML accepts "apptainer", "singularity", "shifter", "pyxis", "edf", and "none".
func (r *ContainerRuntime) UnmarshalTOML(v any) (err error) {
	*r, err = choose(v, ContainerApptainer, ContainerSingularity, ContainerShifter, ContainerPyxis, ContainerEDF, ContainerNone)
	return err
}
