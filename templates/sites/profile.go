package sites

import (
	"slices"
	"strings"

	"github.com/ddpbatch/ddpbatch/jobs"
)

// A Profile describes a computing center. All keys except title, sources, and read are
// optional.
type Profile struct {
	Title      jobs.Text                  `toml:"title"`      // human-readable, such as "LUMI-G (CSC)"
	Sources    []Address                  `toml:"sources"`    // documents that the profile is based on
	Read       Date                       `toml:"read"`       // date when they were read
	Unverified []jobs.Text                `toml:"unverified"` // statements that no document of the center confirms
	Notes      []jobs.Text                `toml:"notes"`      // notes for users
	Require    []Key                      `toml:"require"`    // keys of [slurm] that a job must set
	Defaults   Defaults                   `toml:"defaults"`
	Accounts   Accounts                   `toml:"accounts"`
	Resources  []Resource                 `toml:"resource"`
	GPUs       GPUs                       `toml:"gpus"`
	Request    Request                    `toml:"request"`
	Step       Step                       `toml:"step"`
	Network    Network                    `toml:"network"`
	Setup      Setup                      `toml:"setup"`
	Env        map[jobs.EnvName]jobs.Text `toml:"env"` // variables for the ranks, unless the job or the user sets them
	Container  Container                  `toml:"container"`
	Login      Login                      `toml:"login"`

	name    string // site in the job file
	source  []byte
	doc     jobs.Document
	warning error // set if other users can change the file
}

// Defaults are values for keys of [slurm] that the job file does not set.
type Defaults struct {
	Partition   jobs.Word     `toml:"partition"`
	Account     jobs.Word     `toml:"account"`
	QOS         jobs.Word     `toml:"qos"`
	Constraint  jobs.Text     `toml:"constraint"`
	Reservation jobs.Word     `toml:"reservation"`
	Time        jobs.WallTime `toml:"time"`
	Memory      jobs.Memory   `toml:"mem"`
	Exclusive   bool          `toml:"exclusive"`
	CPUsPerTask int           `toml:"cpus_per_task" range:"1.."`
}

// Accounts are the rules for account names.
type Accounts struct {
	Suffix             jobs.Text               `toml:"suffix"`               // suffix of accounts for GPU jobs
	SuffixByConstraint map[jobs.Word]jobs.Text `toml:"suffix_by_constraint"` // suffix for specific constraints
}

// A Resource contains the limits of a partition, a QOS, or a constraint. Zero means no limit.
type Resource struct {
	Partition   jobs.Word     `toml:"partition"` // empty matches all; also applies to the next two keys
	QOS         jobs.Word     `toml:"qos"`
	Constraint  jobs.Text     `toml:"constraint"`
	Nodes       int           `toml:"nodes" range:"1.."`         // maximum per job
	Time        jobs.WallTime `toml:"time"`                      // maximum time limit
	GPUsPerNode int           `toml:"gpus_per_node" range:"1.."` // as Slurm counts them
	CPUsPerNode int           `toml:"cpus_per_node" range:"1.."` // as Slurm counts them
	Memory      jobs.Memory   `toml:"mem"`                       // per node
	Exclusive   bool          `toml:"exclusive"`                 // whole nodes only
	GPUs        jobs.Text     `toml:"gpus"`                      // human-readable, such as "A100 40 GB"
}

// GPUs describes the GPUs of the nodes.
type GPUs struct {
	Vendor Vendor `toml:"vendor"` // empty if unknown
}

// A Request describes how a batch script requests resources from sbatch.
type Request struct {
	GPUs    GPURequest `toml:"gpus"`    // default "gres"
	Requeue *bool      `toml:"requeue"` // default true
	Options []Option   `toml:"options"` // additional options of sbatch
}

// A Step describes how srun starts the ranks.
type Step struct {
	GPUs    StepGPUs  `toml:"gpus"`     // default "all"
	GPUBind jobs.Word `toml:"gpu_bind"` // srun --gpu-bind; empty for Slurm's default
	CPUBind jobs.Word `toml:"cpu_bind"` // srun --cpu-bind; empty for Slurm's default
	MPI     jobs.Word `toml:"mpi"`      // srun --mpi, for jobs with train.backend = "mpi"
	Options []Option  `toml:"options"`  // additional options of srun
}

// A Network describes the center's networks.
type Network struct {
	Prefer     []jobs.InterfaceName `toml:"prefer"`           // name prefixes of the fast interfaces
	Exclude    []jobs.InterfaceName `toml:"exclude"`          // interfaces that must not be used
	NameSuffix jobs.Word            `toml:"name_suffix"`      // suffix of the host name on the fast network
	Rate       int                  `toml:"rate" range:"1.."` // Gbit/s per node and direction, sum of all fast interfaces; for predictions
}

// A Setup prepares a node for every job, before the job's own setup.
type Setup struct {
	Lines   []jobs.Text `toml:"lines"` // shell commands
	Modules []jobs.Word `toml:"modules"`
}

// A Container describes how to run containers.
type Container struct {
	Runtime jobs.ContainerRuntime `toml:"runtime" enum:"apptainer,singularity,shifter,pyxis,edf,charliecloud,none"`
	Options []Option              `toml:"options"` // options of the runtime; for pyxis and edf, options of srun
}

// Missing returns the keys of [slurm] that a job must set because the profile has no default.
func (p *Profile) Missing() (keys []string) {
	d := p.Defaults
	filled := map[Key]bool{"partition": d.Partition != "", "account": d.Account != "", "qos": d.QOS != "", "constraint": d.Constraint != "",
		"reservation": d.Reservation != "", "time": d.Time != "", "mem": d.Memory != ""}
	for _, key := range p.Require {
		if !filled[key] {
			keys = append(keys, string(key))
		}
	}
	return keys
}

// A Login limits the ranks that `ddpbatch launch` starts on a login node.
type Login struct {
	MaxRanks *int          `toml:"max_ranks" range:"0.."` // maximum per launch; 0 allows none; nil means no limit
	Hosts    []HostPattern `toml:"hosts"`                 // names of the login nodes; empty: hosts with Slurm's commands, outside of jobs
	Hint     jobs.Text     `toml:"hint"`                  // alternative for the user
}

// LoginLimit returns the maximum number of ranks that may start on a host without srun.
// limited is false if the profile has no limit, or if the host is not a login node. hasSlurm
// reports whether Slurm's commands are installed on the host. inJob reports whether this
// process belongs to a job.
func (p *Profile) LoginLimit(host string, hasSlurm, inJob bool) (ranks int, limited bool) {
	if p.Login.MaxRanks == nil {
		return 0, false
	}
	limited = hasSlurm && !inJob
	if len(p.Login.Hosts) > 0 {
		short, _, _ := strings.Cut(host, ".")
		limited = slices.ContainsFunc(p.Login.Hosts, func(h HostPattern) bool { return h.matches(host) || h.matches(short) })
	}
	return int(*p.Login.MaxRanks), limited
}

// Name returns the site that the job file contains: a name or a path.
func (p *Profile) Name() string { return p.name }

// Source returns the content of the profile's file.
func (p *Profile) Source() []byte { return p.source }

// Requeue reports whether the batch script lets Slurm requeue the job.
func (p *Profile) Requeue() bool { return p.Request.Requeue == nil || *p.Request.Requeue }
