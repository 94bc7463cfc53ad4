package jobs

import "strings"

// Family is the version of IP that ranks talk.
type Family string

// Integrity is the protection of the messages between ranks on different nodes.
type Integrity string

// Device is what the built-in trainer computes on.
type Device string

// Strategy is how the built-in trainer spreads the model over ranks.
type Strategy string

// Precision is the number format of the built-in trainer. With bf16, products of
// matrices take bfloat16 numbers, and a GPU may store what goes between operations so;
// everything else, the weights too, stays fp32.
type Precision string

// Reduce is the number format in which ranks add up gradients. With bf16 they are
// rounded before, and each sum is: half the bytes between ranks.
type Reduce string

// NonFinite is what becomes of a step whose loss or gradients are not finite
// numbers: the run stops, or the step is skipped and changes no weight.
type NonFinite string

// SaveError is what becomes of a run that cannot write a checkpoint: it stops, or goes
// on until the next one is due. The first and the last must be written.
type SaveError string

// Metric is what says which of two models is better.
type Metric string

// ModelKind is a network that the built-in trainer knows.
type ModelKind string

// Activation is the function between the layers of an MLP or a CNN.
type Activation string

// DataKind is a form of training data.
type DataKind string

// Vocabulary is what a token of a text is.
type Vocabulary string

// DType is the number format of a stored token.
type DType string

// Uneven is what becomes of an epoch's last samples where they do not go around the
// ranks: some others are taken again beside them (pad) or they are left out (drop), as
// by PyTorch's DistributedSampler; or ranks without one join in with nothing (join).
type Uneven string

// Task is what a model learns: values or classes.
type Task string

// Decay selects the parameters that weight decay applies to.
type Decay string

// OptimizerKind is an update rule.
type OptimizerKind string

// ScheduleKind is how a learning rate changes.
type ScheduleKind string

// Launcher is how the user's own program is started.
type Launcher string

// ContainerRuntime is what brings up a container: a program that each rank is
// started by (apptainer, singularity, shifter), or srun itself with NVIDIA's pyxis
// plugin (--container-image) or CSCS's container engine (--environment).
type ContainerRuntime string

// Backend is what carries the numbers that ranks of the built-in trainer exchange.
type Backend string

// The values of each choice. The first one of a choice with a default is it.
const (
	FamilyAuto Family = "auto"
	FamilyIPv4 Family = "ipv4"
	FamilyIPv6 Family = "ipv6"

	IntegrityChecksum Integrity = "checksum" // CRC-32C: detects damage
	IntegrityMAC      Integrity = "mac"      // AES-256-GMAC: also detects deliberate changes

	DeviceAuto Device = "auto" // a GPU, or the processor where there is none
	DeviceCUDA Device = "cuda"
	DeviceCPU  Device = "cpu"

	BackendAuto Backend = "auto" // of processors tcp, of GPUs nccl where that is installed
	BackendTCP  Backend = "tcp"  // shared memory inside a node, TCP between nodes
	BackendMPI  Backend = "mpi"  // the MPI library of the site
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

	MetricEvalLoss Metric = "eval_loss" // the lower
	MetricAccuracy Metric = "accuracy"  // the higher

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

// choose returns v if it is one of the options.
func choose[T ~string](v any, options ...T) (T, error) {
	names := make([]string, len(options))
	for i, o := range options {
		names[i] = string(o)
	}
	allowed := "allowed: " + strings.Join(names, ", ")
	s, err := stringValue(v)
	if err != nil {
		return "", refuse(allowed, "%s", err)
	}
	for _, o := range options {
		if s == string(o) {
			return o, nil
		}
	}
	r := refuse(allowed, "%q is not known", s)
	r.suggestion, r.choices = nearest(s, names), names
	return "", r
}

// UnmarshalTOML takes "auto", "ipv4" or "ipv6".
func (f *Family) UnmarshalTOML(v any) (err error) {
	*f, err = choose(v, FamilyAuto, FamilyIPv4, FamilyIPv6)
	return err
}

// UnmarshalTOML accepts "checksum" and "mac".
func (i *Integrity) UnmarshalTOML(v any) (err error) {
	*i, err = choose(v, IntegrityChecksum, IntegrityMAC)
	return err
}

// UnmarshalTOML takes "auto", "cuda", "cpu", or "gpu" for "cuda".
func (d *Device) UnmarshalTOML(v any) (err error) {
	const gpu Device = "gpu"
	if *d, err = choose(v, DeviceAuto, DeviceCUDA, DeviceCPU, gpu); *d == gpu {
		*d = DeviceCUDA
	}
	return err
}

// UnmarshalTOML takes "auto", "tcp", "mpi" or "nccl".
func (b *Backend) UnmarshalTOML(v any) (err error) {
	*b, err = choose(v, BackendAuto, BackendTCP, BackendMPI, BackendNCCL)
	return err
}

// UnmarshalTOML takes "ddp", "zero1", "zero2", "zero3", or "fsdp" for the last.
func (s *Strategy) UnmarshalTOML(v any) (err error) {
	const fsdp Strategy = "fsdp"
	if *s, err = choose(v, StrategyDDP, StrategyZeRO1, StrategyZeRO2, StrategyZeRO3, fsdp); *s == fsdp {
		*s = StrategyZeRO3
	}
	return err
}

// UnmarshalTOML takes "fp32" or "bf16".
func (p *Precision) UnmarshalTOML(v any) (err error) {
	*p, err = choose(v, PrecisionFP32, PrecisionBF16)
	return err
}

// UnmarshalTOML takes "fp32" or "bf16".
func (r *Reduce) UnmarshalTOML(v any) (err error) {
	*r, err = choose(v, ReduceFP32, ReduceBF16)
	return err
}

// UnmarshalTOML takes "stop" or "continue".
func (e *SaveError) UnmarshalTOML(v any) (err error) {
	*e, err = choose(v, SaveErrorStop, SaveErrorContinue)
	return err
}

// UnmarshalTOML takes one of the metrics.
func (m *Metric) UnmarshalTOML(v any) (err error) {
	*m, err = choose(v, MetricEvalLoss, MetricAccuracy)
	return err
}

// UnmarshalTOML takes "stop" or "skip".
func (n *NonFinite) UnmarshalTOML(v any) (err error) {
	*n, err = choose(v, NonFiniteStop, NonFiniteSkip)
	return err
}

// UnmarshalTOML takes "linear", "mlp", "cnn" or "gpt".
func (k *ModelKind) UnmarshalTOML(v any) (err error) {
	*k, err = choose(v, ModelLinear, ModelMLP, ModelCNN, ModelGPT)
	return err
}

// UnmarshalTOML takes "relu", "tanh" or "gelu".
func (a *Activation) UnmarshalTOML(v any) (err error) {
	*a, err = choose(v, ActivationReLU, ActivationTanh, ActivationGELU)
	return err
}

// UnmarshalTOML takes "idx", "csv", "safetensors", "text", "tokens" or "synthetic".
func (k *DataKind) UnmarshalTOML(v any) (err error) {
	*k, err = choose(v, DataIDX, DataCSV, DataSafetensors, DataText, DataTokens, DataSynthetic)
	return err
}

// UnmarshalTOML takes "char" or "byte".
func (u *Vocabulary) UnmarshalTOML(v any) (err error) {
	*u, err = choose(v, VocabularyChar, VocabularyByte)
	return err
}

// UnmarshalTOML takes "uint16" or "uint32".
func (t *DType) UnmarshalTOML(v any) (err error) {
	*t, err = choose(v, DTypeUint16, DTypeUint32)
	return err
}

// UnmarshalTOML takes "pad", "drop" or "join".
func (u *Uneven) UnmarshalTOML(v any) (err error) {
	*u, err = choose(v, UnevenPad, UnevenDrop, UnevenJoin)
	return err
}

// UnmarshalTOML takes "regression" or "classification".
func (t *Task) UnmarshalTOML(v any) (err error) {
	*t, err = choose(v, TaskRegression, TaskClassification)
	return err
}

// UnmarshalTOML takes "constant", "cosine" or "step".
func (k *ScheduleKind) UnmarshalTOML(v any) (err error) {
	*k, err = choose(v, ScheduleConstant, ScheduleCosine, ScheduleStep)
	return err
}

// UnmarshalTOML takes "sgd", "adam" or "adamw".
func (k *OptimizerKind) UnmarshalTOML(v any) (err error) {
	*k, err = choose(v, OptimizerSGD, OptimizerAdam, OptimizerAdamW)
	return err
}

// UnmarshalTOML takes "matrices" or "all".
func (d *Decay) UnmarshalTOML(v any) (err error) {
	*d, err = choose(v, DecayMatrices, DecayAll)
	return err
}

// UnmarshalTOML takes "rank" or "torchrun".
func (l *Launcher) UnmarshalTOML(v any) (err error) {
	*l, err = choose(v, LauncherRank, LauncherTorchrun)
	return err
}

// UnmarshalTOML takes "apptainer", "singularity", "shifter", "pyxis", "edf" or
// "none".
func (r *ContainerRuntime) UnmarshalTOML(v any) (err error) {
	*r, err = choose(v, ContainerApptainer, ContainerSingularity, ContainerShifter, ContainerPyxis, ContainerEDF, ContainerNone)
	return err
}
