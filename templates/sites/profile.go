package sites

import (
	"slices"
	"strings"

	"github.com/ddpbatch/ddpbatch/jobs"
)

// Profile is what is known of a centre. Every key is optional but title, sources
// and read.
type Profile struct {
	Title      jobs.Text                  `toml:"title"`      // for people: "LUMI-G (CSC)"
	Sources    []Address                  `toml:"sources"`    // documents that it was written from
	Read       Date                       `toml:"read"`       // the day on which they were read
	Unverified []jobs.Text                `toml:"unverified"` // what no document of the centre confirmed
	Notes      []jobs.Text                `toml:"notes"`      // what a user should know
	Require    []Key                      `toml:"require"`    // keys of [slurm] that a job must give
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

	name    string // as a job file's site names it
	source  []byte
	doc     jobs.Document
	warning error // other users can change the file
}

// Defaults are values for keys of [slurm] that the job file leaves out.
type Defaults struct {
	Partition   jobs.Word     `toml:"partition"`
	Account     jobs.Word     `toml:"account"`
	QOS         jobs.Word     `toml:"qos"`
	Constraint  jobs.Text     `toml:"constraint"`
	Reservation jobs.Word     `toml:"reservation"`
	Time        jobs.WallTime `toml:"time"`
	Memory      jobs.Memory   `toml:"mem"`
	Exclusive   bool          `toml:"exclusive"`
	CPUsPerTask jobs.Count    `toml:"cpus_per_task"`
}

// Accounts are the rules for account names.
type Accounts struct {
	Suffix             jobs.Text               `toml:"suffix"`               // accounts for GPU jobs end so
	SuffixByConstraint map[jobs.Word]jobs.Text `toml:"suffix_by_constraint"` // and so where the constraint decides
}

// Resource is what may be asked for in a partition, with a QOS or a constraint.
// Zero values are no limit.
type Resource struct {
	Partition   jobs.Word     `toml:"partition"` // empty matches any, as for the next two
	QOS         jobs.Word     `toml:"qos"`
	Constraint  jobs.Text     `toml:"constraint"`
	Nodes       jobs.Count    `toml:"nodes"`         // most nodes of one job
	Time        jobs.WallTime `toml:"time"`          // longest time
	GPUsPerNode jobs.Count    `toml:"gpus_per_node"` // as Slurm counts them
	CPUsPerNode jobs.Count    `toml:"cpus_per_node"` // as Slurm counts them
	Memory      jobs.Memory   `toml:"mem"`           // of a node
	Exclusive   bool          `toml:"exclusive"`     // whole nodes only
	GPUs        jobs.Text     `toml:"gpus"`          // for people: "A100 40 GB"
}

// GPUs describes the GPUs of the nodes.
type GPUs struct {
	Vendor Vendor `toml:"vendor"` // empty if the profile does not say
}

// Request is how a script asks sbatch.
type Request struct {
	GPUs    GPURequest `toml:"gpus"`    // default "gres"
	Requeue *bool      `toml:"requeue"` // default true
	Options []Option   `toml:"options"` // further options of sbatch
}

// Step is how srun starts the ranks.
type Step struct {
	GPUs    StepGPUs  `toml:"gpus"`     // default "all"
	GPUBind jobs.Word `toml:"gpu_bind"` // srun --gpu-bind; empty leaves it to Slurm
	CPUBind jobs.Word `toml:"cpu_bind"` // srun --cpu-bind; empty leaves it to Slurm
	MPI     jobs.Word `toml:"mpi"`      // srun --mpi, for jobs with train.backend = "mpi"
	Options []Option  `toml:"options"`  // further options of srun
}

// Network is what is known of the centre's networks.
type Network struct {
	Prefer     []jobs.InterfaceName `toml:"prefer"`      // first letters of the fast interfaces' names
	Exclude    []jobs.InterfaceName `toml:"exclude"`     // interfaces never to use
	NameSuffix jobs.Word            `toml:"name_suffix"` // HOST with it is the node on the fast network
	Rate       jobs.Count           `toml:"rate"`        // Gbit/s of a node in one direction, of all its fast interfaces; for predictions
}

// Setup is what every job needs on a node before its own setup.
type Setup struct {
	Lines   []jobs.Text `toml:"lines"` // of shell
	Modules []jobs.Word `toml:"modules"`
}

// Container is how containers are run.
type Container struct {
	Runtime jobs.ContainerRuntime `toml:"runtime"`
	Options []Option              `toml:"options"` // of the runtime; for pyxis and edf, of srun
}

// Missing returns the keys of [slurm] that a job must give and the profile does not fill
// in.
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

// Login limits the ranks that `ddpbatch launch` starts on a login node.
type Login struct {
	MaxRanks *jobs.NonNegativeCount `toml:"max_ranks"` // most ranks of one launch; 0 forbids them; nil is no limit
	Hosts    []HostPattern          `toml:"hosts"`     // names of the login nodes; empty: hosts with Slurm's commands, outside of jobs
	Hint     jobs.Text              `toml:"hint"`      // what to do instead
}

// LoginLimit returns the most ranks that may start on a host without Slurm's srun.
// limited is false if the profile does not limit them, or if the host is not a login
// node: hasSlurm says that Slurm's commands are installed on it, inJob that this
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

// Name is the profile's name, or the path by which it was found.
func (p *Profile) Name() string { return p.name }

// Source is the profile's file.
func (p *Profile) Source() []byte { return p.source }

// Requeue says whether the script lets Slurm requeue the job.
func (p *Profile) Requeue() bool { return p.Request.Requeue == nil || *p.Request.Requeue }
