package jobs

import "time"

const (
	defaultSite              = "generic"
	defaultSignalBeforeEnd   = 120 * time.Second
	defaultJoinTimeout       = 60 * time.Second
	defaultCollectiveTimeout = 5 * time.Minute
	defaultHeartbeatTimeout  = 60 * time.Second
	defaultProgressTimeout   = 30 * time.Minute
	defaultKeep              = 3
	defaultRestarts          = 2 // if nodes may fail
	defaultKernel            = 3
	defaultFeatures          = "x"
	defaultTarget            = "y"

	// Defaults of torch.optim.Adam and AdamW.
	defaultBeta1      = 0.9
	defaultBeta2      = 0.999
	defaultEps        = 1e-8
	defaultAdamWDecay = 0.01
)

var (
	defaultLogEvery        = Interval{50, Steps}
	defaultCheckpointEvery = Interval{1, Epochs}
)

// fillDefaults sets the keys that are not in the file. The Job must be valid.
func (j *Job) fillDefaults() {
	setDefault(&j.Site, defaultSite)
	setDefault(&j.Slurm.Nodes, 1)
	setDefault(&j.Slurm.TasksPerNode, Count(j.TasksPerNode()))
	setDefault(&j.Slurm.CPUsPerTask, 1)
	if !j.IsSet("slurm.signal_before_end") { // 0 turns the signal off
		j.Slurm.SignalBeforeEnd = j.signalBeforeEnd()
	}
	setDefault(&j.Network.Interface, InterfaceAuto)
	setDefault(&j.Network.Family, FamilyAuto)
	setDefault(&j.Network.Integrity, IntegrityChecksum)
	setDefault(&j.Network.JoinTimeout, Duration(defaultJoinTimeout))
	setDefault(&j.Network.CollectiveTimeout, Duration(defaultCollectiveTimeout))
	setDefault(&j.Network.HeartbeatTimeout, Duration(defaultHeartbeatTimeout))
	setDefault(&j.Network.ProgressTimeout, Duration(defaultProgressTimeout))
	if j.Restart.SurvivesNodeLoss() {
		setDefault(&j.Restart.MaxWithoutProgress, defaultRestarts)
	}
	setDefault(&j.Checkpoint.Every, defaultCheckpointEvery)
	setDefault(&j.Checkpoint.Keep, defaultKeep)
	setDefault(&j.Checkpoint.OnError, SaveErrorStop)
	if j.Train != nil {
		j.Train.fillDefaults()
		j.fillOptimizer()
	}
	if j.Command != nil {
		setDefault(&j.Command.Launcher, LauncherRank)
	}
}

// LimitTime sets a time limit for a job whose file does not have one.
func (j *Job) LimitTime(limit WallTime) {
	j.Slurm.Time = limit
	if !j.IsSet("slurm.signal_before_end") {
		j.Slurm.SignalBeforeEnd = j.signalBeforeEnd()
	}
}

// signalBeforeEnd returns the default time between the warning signal and the time limit. It
// is enough to save a checkpoint, and at most a quarter of the time limit. A user's program
// gets no signal by default, because an unhandled signal would kill it.
func (j *Job) signalBeforeEnd() Duration {
	if j.Command != nil && j.Restart.Requeue == 0 {
		return 0
	}
	before := time.Duration(defaultSignalBeforeEnd)
	if limit := j.Slurm.Time.Duration(); limit > 0 {
		before = min(before, (limit / 4).Truncate(time.Second))
	}
	return Duration(before)
}

// fillOptimizer sets the default for weight decay and the hyperparameters of Adam and AdamW.
// For the hyperparameters, 0 in the file is a valid value, not a missing one.
func (j *Job) fillOptimizer() {
	o := &j.Train.Optimizer
	if j.Train.Model.Kind == ModelGPT { // as in nanoGPT and llm.c
		setDefault(&o.Decay, DecayMatrices)
	}
	setDefault(&o.Decay, DecayAll)
	if o.Kind != OptimizerAdam && o.Kind != OptimizerAdamW {
		return
	}
	setDefault(&o.Eps, defaultEps)
	if !j.IsSet("train.optimizer.beta1") {
		o.Beta1 = defaultBeta1
	}
	if !j.IsSet("train.optimizer.beta2") {
		o.Beta2 = defaultBeta2
	}
	if o.Kind == OptimizerAdamW && !j.IsSet("train.optimizer.weight_decay") {
		o.WeightDecay = defaultAdamWDecay
	}
}

func (t *Train) fillDefaults() {
	setDefault(&t.Device, DeviceAuto)
	setDefault(&t.Backend, BackendAuto)
	setDefault(&t.Strategy, StrategyDDP)
	setDefault(&t.Precision, PrecisionFP32)
	setDefault(&t.Accumulate, 1)
	setDefault(&t.Reduce, ReduceFP32)
	setDefault(&t.NonFinite, NonFiniteStop)
	setDefault(&t.LogEvery, defaultLogEvery)
	t.Model.fillDefaults()
	t.Data.fillDefaults()
}

func (m *Model) fillDefaults() {
	switch m.Kind {
	case ModelMLP:
		setDefault(&m.Activation, ActivationReLU)
	case ModelCNN:
		setDefault(&m.Activation, ActivationReLU)
		setDefault(&m.Kernel, defaultKernel)
		if len(m.Hidden) == 0 {
			m.Hidden = nil // [] and a missing key must give the same fingerprint
		}
	case ModelGPT:
		*m = m.sized()
	}
}

func (d *Data) fillDefaults() {
	switch d.Kind {
	case DataIDX:
		setDefault(&d.Task, TaskClassification)
	case DataSafetensors:
		setDefault(&d.Features, defaultFeatures)
		setDefault(&d.Target, defaultTarget)
	case DataText:
		setDefault(&d.Vocabulary, VocabularyChar)
	case DataTokens:
		setDefault(&d.DType, DTypeUint16)
	}
	if d.DropLast {
		setDefault(&d.Uneven, UnevenDrop)
	}
	setDefault(&d.Uneven, UnevenPad)
	if d.Shuffle == nil {
		d.Shuffle = new(true)
	}
}

// setDefault sets *v to value if it has its zero value.
func setDefault[T comparable](v *T, value T) {
	var zero T
	if *v == zero {
		*v = value
	}
}
