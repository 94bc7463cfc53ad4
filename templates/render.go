package templates

import (
	"bytes"
	"cmp"
	_ "embed" // the template
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"text/template"
	"time"

	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/templates/sites"
)

//go:embed job.sbatch.tmpl
var source string

// maxSignalSeconds is the largest value of sbatch --signal, in seconds before the time limit.
const maxSignalSeconds = 65535

// An Input contains everything that Render needs.
type Input struct {
	Job    *jobs.Job // as returned by [jobs.Load]
	Binary string    // absolute path of ddpbatch on the nodes
	RunDir string    // absolute path of the run directory on the nodes

	// Site is the profile of the job's site. It must already be applied to the job.
	Site *sites.Profile
	// Array lists the trials of a sweep to run, in the format of sbatch --array ("0-7%4");
	// empty for a single job.
	Array string

	// Digest is the digest of the submitted job, see rundir.JobDigest. A sweep has Digests
	// instead, one for each trial. The launcher rejects a job with a different digest. Both may
	// be empty.
	Digest  string
	Digests []ElementDigest
}

// An ElementDigest is the digest of one trial's job.
type ElementDigest struct {
	Index  int
	Digest string
}

// An elementTask is the value of SLURM_ARRAY_TASK_ID in the setup of one trial.
type elementTask struct{ Index, Task int }

// script is the data for the template.
type script struct {
	Name                    string
	Nodes, TasksPerNode     int
	CPUsPerTask             int      // 0 for no option
	Resources               []string // options that request GPUs and other generic resources
	Directives              []string // options without their own field
	Memory, Time            string
	Partition, Account, QOS string
	Reservation, Constraint string
	Exclusive               bool
	Options                 []string // options of the site
	Array                   string
	NoKill, Requeue         bool
	OpenMode, Export        string
	Output                  string // file name pattern for sbatch --output
	SignalSeconds           int    // warning before the time limit; 0 disables it
	Lines, Modules          []string
	Conda                   string
	Steps                   string // bash code of setup.steps
	Components              string // names and nodes, for a comment
	UsesModules             bool
	Task                    *int // value of SLURM_ARRAY_TASK_ID in the setup; nil for Slurm's
	Tasks                   []elementTask
	Binary, RunDir          string
	Digest                  string
	Digests                 []ElementDigest

	// Groups are the groups of nodes after the first, as components of a heterogeneous job. Only
	// their options are in the script.
	Groups []script
}

// Render returns the batch script of a job for its site. The same input always gives the same
// bytes.
func Render(in Input) ([]byte, error) {
	var data script
	for i, part := range in.Job.SplitGroups() {
		of := in
		of.Job = part
		s, err := newScript(of)
		if err != nil {
			return nil, fmt.Errorf("write batch script: %w", err)
		}
		if i == 0 {
			data = s
		} else {
			data.Groups = append(data.Groups, s)
		}
	}
	if data.Groups != nil && in.Array != "" {
		return nil, fmt.Errorf("write batch script: Slurm has no arrays of heterogeneous jobs")
	}
	t, err := template.New("job").Funcs(template.FuncMap{
		"sbatch":       quoteDirective,
		"sbatchOption": quoteOption,
		"shell":        quoteShell,
	}).Parse(source)
	if err != nil {
		return nil, fmt.Errorf("render batch script: %w", err)
	}
	var out bytes.Buffer
	if err := t.Execute(&out, data); err != nil {
		return nil, fmt.Errorf("render batch script: %w", err)
	}
	return omitDirectives(out.Bytes(), in.Job.Slurm.Omit), nil
}

// describeComponents returns the components for a comment. Their names contain no characters that
// could end it.
func describeComponents(all []jobs.Component) string {
	var parts []string
	for _, c := range all {
		where := fmt.Sprintf("node %d", c.Node)
		if c.EveryNode {
			where = "every node"
		}
		parts = append(parts, fmt.Sprintf("%s (%s)", c.Name, where))
	}
	return strings.Join(parts, ", ")
}

// newScript converts the input to Slurm's terms. It validates the input again, so the template needs
// no checks.
func newScript(in Input) (script, error) {
	slurm := in.Job.Slurm
	switch {
	case slurm.Nodes < 1:
		return script{}, fmt.Errorf("slurm.nodes: %d is less than 1", slurm.Nodes)
	case slurm.CPUsPerTask < 1 && slurm.CPUsPerTask != jobs.AllCores:
		return script{}, fmt.Errorf("slurm.cpus_per_task: %d is less than 1", slurm.CPUsPerTask)
	}
	s := script{
		Name:         string(in.Job.Name),
		Nodes:        in.Job.AllocatedNodes(),
		NoKill:       in.Job.Restart.SurvivesNodeLoss(),
		TasksPerNode: in.Job.TasksPerNode(),
		CPUsPerTask:  int(max(0, slurm.CPUsPerTask)),
		Resources:    resourceOptions(in),
		Directives:   directives(&slurm),
		Memory:       string(slurm.Memory),
		Time:         string(slurm.Time),
		Partition:    string(slurm.Partition),
		Account:      string(slurm.Account),
		QOS:          string(slurm.QOS),
		Reservation:  string(slurm.Reservation),
		Constraint:   string(slurm.Constraint),
		Exclusive:    slurm.Exclusive,
		Array:        in.Array,
		Requeue:      in.Site.Requeue(),
		OpenMode:     cmp.Or(string(slurm.OpenMode), string(jobs.OpenModeAppend)),
		Export:       strings.ToUpper(cmp.Or(string(slurm.Export), string(jobs.ExportAll))),
		Options:      jobs.Strings(in.Site.Request.Options),
		Lines:        jobs.Strings(slices.Concat(in.Site.Setup.Lines, in.Job.Setup.Lines)),
		Modules:      jobs.Strings(slices.Concat(in.Site.Setup.Modules, in.Job.Setup.Modules)),
		Conda:        string(in.Job.Setup.Conda),
		Binary:       in.Binary,
		RunDir:       in.RunDir,
		Digest:       in.Digest,
		Digests:      in.Digests,
	}
	if slurm.Requeue != nil {
		s.Requeue = *slurm.Requeue
	}
	if s.Task = in.Job.Setup.ArrayTask; in.Job.Sweep != nil {
		s.Task = nil
		for _, trial := range in.Job.Sweep.Trials {
			if task := trial.Job.Setup.ArrayTask; task != nil {
				s.Tasks = append(s.Tasks, elementTask{trial.Index, *task})
			}
		}
	}
	s.Components = describeComponents(in.Job.Components)
	s.Steps = strings.TrimSuffix(in.Job.Setup.SetupScript(jobs.WhereOutside), "\n")
	s.UsesModules = len(s.Modules) > 0 || slices.ContainsFunc(in.Job.Setup.Steps, func(step jobs.SetupStep) bool { return step.UsesModules() && !step.IsInside() })
	if c := in.Job.Command; c != nil && c.Launcher == jobs.LauncherTorchrun {
		// Run one torchrun per node. It needs the cores of all its workers.
		s.CPUsPerTask *= s.TasksPerNode
		s.TasksPerNode = 1
	}
	if slurm.Time != "" && !slices.Contains(slurm.Omit, "time") {
		// Round up: a signal that is up to one second early is harmless.
		s.SignalSeconds = int((time.Duration(slurm.SignalBeforeEnd) + time.Second - 1) / time.Second)
	}
	if err := s.check(); err != nil {
		return script{}, err
	}
	dir, err := quoteOutput(s.RunDir)
	if err != nil {
		return script{}, fmt.Errorf("run directory: %w", err)
	}
	s.Output = dir + "/slurm-%j.out"
	if in.Array != "" {
		// Each trial has a separate run directory.
		s.Output = dir + "/elements/%a/slurm-%A_%a.out"
	}
	return s, nil
}

// check returns an error that names the first value that a script cannot contain.
func (s script) check() error {
	type text struct{ name, value string }
	texts := []text{
		{"name", s.Name}, {"slurm.mem", s.Memory}, {"slurm.time", s.Time}, {"slurm.partition", s.Partition},
		{"slurm.account", s.Account}, {"slurm.qos", s.QOS}, {"slurm.reservation", s.Reservation},
		{"slurm.constraint", s.Constraint}, {"setup.conda", s.Conda}, {"path of ddpbatch", s.Binary}, {"run directory", s.RunDir},
	}
	for _, line := range s.Lines {
		texts = append(texts, text{"shell lines", line})
	}
	for _, o := range s.Options {
		texts = append(texts, text{"site options", o})
	}
	for _, o := range slices.Concat(s.Resources, s.Directives) {
		name, _, _ := strings.Cut(o, "=")
		texts = append(texts, text{"option " + name, o})
	}
	for line := range strings.SplitSeq(s.Steps, "\n") {
		texts = append(texts, text{"steps", strings.ReplaceAll(line, "\t", " ")})
	}
	for _, module := range s.Modules {
		texts = append(texts, text{"setup.modules", module})
	}
	for _, t := range texts {
		if err := checkControl(t.value); err != nil {
			return fmt.Errorf("%s: %w", t.name, err)
		}
		// module and conda would read it as an option.
		if strings.HasPrefix(t.name, "setup.") && strings.HasPrefix(t.value, "-") {
			return fmt.Errorf("%s: %q starts with a dash", t.name, t.value)
		}
	}
	switch {
	case strings.Trim(s.Array, "0123456789,-%") != "":
		return fmt.Errorf("%q is not a list of array tasks", s.Array)
	case !filepath.IsAbs(s.Binary):
		return fmt.Errorf("path of ddpbatch: %q is not absolute", s.Binary)
	case !filepath.IsAbs(s.RunDir):
		return fmt.Errorf("run directory: %q is not absolute", s.RunDir)
	case s.SignalSeconds < 0 || s.SignalSeconds > maxSignalSeconds:
		return fmt.Errorf("slurm.signal_before_end: %d s exceeds Slurm's maximum of %d s", s.SignalSeconds, maxSignalSeconds)
	}
	return nil
}
