package jobs

import "time"

const (
	defaultSite              = "generic"
	defaultSignalBeforeEnd   = 120 * time.Second
	defaultJoinTimeout       = 60 * time.Second
	defaultCollectiveTimeout = 5 * time.Minute
	defaultKeep              = 3

	// Those of torch.optim.Adam and AdamW.
	defaultBeta1      = 0.9
	defaultBeta2      = 0.999
	defaultEps        = 1e-8
	defaultAdamWDecay = 0.01
)

var (
	defaultLogEvery        = Interval{50, Steps}
	defaultCheckpointEvery = Interval{1, Epochs}
)

// fillDefaults sets what the file leaves out. It runs on a checked Job.
func (j *Job) fillDefaults() {
	orElse(&j.Site, defaultSite)
	orElse(&j.Slurm.Nodes, 1)
	orElse(&j.Slurm.TasksPerNode, Count(j.TasksPerNode()))
	orElse(&j.Slurm.CPUsPerTask, 1)
	if !j.Gives("slurm.signal_before_end") { // 0 is off
		j.Slurm.SignalBeforeEnd = j.signalBeforeEnd()
	}
	orElse(&j.Network.Interface, InterfaceAuto)
	orElse(&j.Network.Family, FamilyAuto)
	orElse(&j.Network.JoinTimeout, Duration(defaultJoinTimeout))
	orElse(&j.Network.CollectiveTimeout, Duration(defaultCollectiveTimeout))
	orElse(&j.Checkpoint.Every, defaultCheckpointEvery)
	orElse(&j.Checkpoint.Keep, defaultKeep)
	if j.Train != nil {
		j.Train.fillDefaults()
		j.fillOptimizer()
	}
	if j.Command != nil {
		orElse(&j.Command.Launcher, LauncherRank)
	}
}

// LimitTime gives the job a time limit that its file does not have.
func (j *Job) LimitTime(limit WallTime) {
	j.Slurm.Time = limit
	if !j.Gives("slurm.signal_before_end") {
		j.Slurm.SignalBeforeEnd = j.signalBeforeEnd()
	}
}

// signalBeforeEnd is how long before its end a job is told of it unless the file
// says: long enough to save, and at most a quarter of the time. A user's program
// is not told unasked, for a signal that it does not know would end it.
func (j *Job) signalBeforeEnd() Duration {
	if j.Command != nil {
		return 0
	}
	before := time.Duration(defaultSignalBeforeEnd)
	if limit := j.Slurm.Time.Duration(); limit > 0 {
		before = min(before, (limit / 4).Truncate(time.Second))
	}
	return Duration(before)
}

// fillOptimizer sets what Adam and AdamW have beside the rate; 0 is a value of each.
func (j *Job) fillOptimizer() {
	o := &j.Train.Optimizer
	if o.Kind != OptimizerAdam && o.Kind != OptimizerAdamW {
		return
	}
	orElse(&o.Eps, defaultEps)
	if !j.Gives("train.optimizer.beta1") {
		o.Beta1 = defaultBeta1
	}
	if !j.Gives("train.optimizer.beta2") {
		o.Beta2 = defaultBeta2
	}
	if o.Kind == OptimizerAdamW && !j.Gives("train.optimizer.weight_decay") {
		o.WeightDecay = defaultAdamWDecay
	}
}

func (t *Train) fillDefaults() {
	orElse(&t.Device, DeviceAuto)
	orElse(&t.Strategy, StrategyDDP)
	orElse(&t.Precision, PrecisionFP32)
	orElse(&t.LogEvery, defaultLogEvery)
	if t.Model.Kind == ModelMLP {
		orElse(&t.Model.Activation, ActivationReLU)
	}
	if t.Data.Kind == DataIDX {
		orElse(&t.Data.Task, TaskClassification)
	}
	if t.Data.Shuffle == nil {
		t.Data.Shuffle = new(true)
	}
}

// orElse gives *v a default where it has its zero value.
func orElse[T comparable](v *T, value T) {
	var zero T
	if *v == zero {
		*v = value
	}
}
