package jobs

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/ddpbatch/ddpbatch/internal/lazyregexp"
)

// An Option is one long option of sbatch or srun: "--name" or "--name=value". The value may
// contain spaces and quotes.
type Option string

const optionForms = `allowed: one long option, "--name" or "--name=value"`

var optionName = lazyregexp.New(`^--[a-z][a-z0-9-]*$`)

// Parts returns the name of the option without its dashes, and its value.
func (o Option) Parts() (name, value string, hasValue bool) {
	name, value, hasValue = strings.Cut(strings.TrimPrefix(string(o), "--"), "=")
	return name, value, hasValue
}

// UnmarshalTOML accepts a TOML string.
func (o *Option) UnmarshalTOML(v any) error {
	s, err := stringValue(v)
	if err != nil {
		return valueErrorf(optionForms, "%s", err)
	}
	if err := checkControl(s); err != nil {
		return err
	}
	name, _, _ := strings.Cut(s, "=")
	switch {
	case strings.ContainsAny(name, " \t") && optionName().MatchString(strings.Fields(name)[0]):
		return valueErrorf(optionForms, "%q is more than one word: write %q", s, strings.Replace(s, " ", "=", 1))
	case !optionName().MatchString(name):
		return valueErrorf(optionForms, "%q is not a long option", s)
	}
	*o = Option(s)
	return nil
}

// A controlled maps the names of options that ddpbatch sets to their fixes: the key or the command to
// use instead.
type controlled map[string]string

const (
	fixOutput   = "the run directory contains the output: run `ddpbatch logs`"
	fixSubmit   = "this option is for the command sbatch: use `ddpbatch submit`"
	fixGPUs     = "set slurm.gpus_per_node"
	fixTasks    = "set slurm.nodes and slurm.tasks_per_node"
	fixStep     = "ddpbatch sets it for the step"
	fixPlugin   = "set setup.container"
	fixWorkdir  = "set command.workdir"
	fixRequeue  = "set slurm.requeue"
	fixSetupEnv = "set slurm.export, or set variables with setup.env"
)

// jobOptions are options of both sbatch and srun that have a key.
var jobOptions = controlled{
	"account": "set slurm.account", "begin": "set slurm.begin", "chdir": fixWorkdir, "comment": "set slurm.comment", "clusters": "run `ddpbatch submit` on a login node of that cluster",
	"constraint": "set slurm.constraint", "cpus-per-task": "set slurm.cpus_per_task", "cpus-per-gpu": "set slurm.cpus_per_task",
	"dependency": "set slurm.dependency", "error": fixOutput, "exclude": "set slurm.exclude", "exclusive": "set slurm.exclusive = true",
	"export": fixSetupEnv, "export-file": fixSetupEnv, "gpu-bind": "set slurm.gpu_bind", "gpus": fixGPUs, "gpus-per-node": fixGPUs, "gpus-per-socket": fixGPUs,
	"gpus-per-task": fixGPUs + " and slurm.tasks_per_node", "gres": "set slurm.gres", "help": fixSubmit, "hint": "set slurm.hint",
	"input": "the standard input of ranks is empty: read a file", "job-name": "set name", "licenses": "set slurm.licenses", "mail-type": "set slurm.mail.events",
	"mail-user": "set slurm.mail.user", "mem": "set slurm.mem", "mem-per-cpu": "set slurm.mem_per_cpu", "mem-per-gpu": "set slurm.mem_per_gpu",
	"nice": "set slurm.nice", "no-kill": "set restart.spare_nodes or restart.min_nodes", "nodelist": "set slurm.nodelist", "nodes": "set slurm.nodes",
	"ntasks": fixTasks, "ntasks-per-gpu": fixTasks, "ntasks-per-node": fixTasks, "tasks-per-node": fixTasks, "open-mode": "set slurm.open_mode", "output": fixOutput, "partition": "set slurm.partition",
	"qos": "set slurm.qos", "quiet": fixSubmit, "reservation": "set slurm.reservation", "segment": "set slurm.segment", "signal": "set slurm.signal_before_end",
	"switches": "set slurm.switches", "test-only": "run `ddpbatch submit --test-only`", "time": "set slurm.time",
	"tres-per-task": fixGPUs + ", slurm.tasks_per_node, and slurm.cpus_per_task", "usage": fixSubmit, "version": fixSubmit,
	"wckey": "set slurm.wckey",
}

// sbatchControlled are options of sbatch only.
var sbatchControlled = controlled{
	"array": "use [sweep]", "no-requeue": fixRequeue, "parsable": fixSubmit, "requeue": fixRequeue, "wait": "run `ddpbatch submit --wait`", "wrap": "use [command]",
}

// stepControlled are options of srun only.
var stepControlled = controlled{
	"container-image": fixPlugin, "container-mounts": fixPlugin, "container-name": fixPlugin, "container-workdir": fixPlugin, "cpu-bind": "set slurm.cpu_bind",
	"environment": fixPlugin, "exact": fixStep, "het-group": fixStep, "jobid": fixStep, "kill-on-bad-exit": fixStep, "label": fixOutput,
	"mpi": "set slurm.mpi", "multi-prog": "use [command]", "no-allocate": fixStep, "overlap": fixStep, "pty": "the standard input of ranks is empty",
	"relative": fixStep, "wait": fixStep, "whole": fixStep,
}

// longerNames are options whose name is also the start of a controlled one.
var longerNames = map[string]bool{"container": true}

// fix returns the key to use instead of an option, or an empty string if the option may be
// used. Slurm accepts the unambiguous start of a name, so fix rejects the start of a
// controlled name.
func (c controlled) fix(o Option, more controlled) string {
	name, value, hasValue := o.Parts()
	if name == "exclusive" && hasValue && value != "" {
		return "" // --exclusive=user is not slurm.exclusive
	}
	for _, table := range []controlled{c, more} {
		if fix := table[name]; fix != "" {
			return fix
		}
	}
	if longerNames[name] {
		return ""
	}
	for _, table := range []controlled{c, more} {
		for _, full := range slices.Sorted(maps.Keys(table)) {
			if strings.HasPrefix(full, name) {
				return table[full]
			}
		}
	}
	return ""
}

// checkOptions rejects options that ddpbatch sets, with the key to use instead.
func (d *decoder) checkOptions(s *Slurm) {
	for _, list := range []struct {
		key     string
		options []Option
		more    controlled
	}{{"slurm.options", s.Options, sbatchControlled}, {"slurm.step_options", s.StepOptions, stepControlled}} {
		if !d.isValid(list.key) {
			continue
		}
		for i, o := range list.options {
			if fix := jobOptions.fix(o, list.more); fix != "" {
				name, _, _ := o.Parts()
				d.reportElementAllowed(list.key, i, fmt.Sprintf("--%s is not allowed: ddpbatch sets it", name), fix)
			}
		}
	}
}

// omittedKeys maps names in slurm.omit to the keys that set the option.
var omittedKeys = map[Directive]string{
	"account": "slurm.account", "constraint": "slurm.constraint", "cpus-per-task": "slurm.cpus_per_task", "exclusive": "slurm.exclusive", "export": "slurm.export",
	"mem": "slurm.mem", "no-kill": "", "ntasks-per-node": "slurm.tasks_per_node", "open-mode": "slurm.open_mode", "partition": "slurm.partition",
	"qos": "slurm.qos", "requeue": "slurm.requeue", "reservation": "slurm.reservation", "time": "slurm.time",
}

// checkOmit rejects the name of an option that the file also sets. The numbers of tasks and
// cores are exceptions: the step needs them.
func (d *decoder) checkOmit(s *Slurm) {
	for i, name := range s.Omit {
		key := omittedKeys[name]
		if key != "" && d.isValid("slurm.omit") && d.given[key] && name != "cpus-per-task" && name != "ntasks-per-node" {
			d.reportElementAllowed("slurm.omit", i, fmt.Sprintf("the file sets %s", key), "remove one of them")
		}
	}
}

// typedPattern is the form of a number with a type: "a100:4", "3g.20gb:2".
const typedPattern = `^[A-Za-z0-9][A-Za-z0-9._-]*:[1-9][0-9]*$`

var typedForm = lazyregexp.New(typedPattern)

const typedForms = `allowed: a number, or a type and a number, such as "a100:4"`

// splitTyped splits "a100:4" into the type and the number.
func splitTyped(text string) (prefix string, n int64, err error) {
	text = strings.TrimPrefix(text, "gpu:") // as in --gres
	if !typedForm().MatchString(text) {
		return "", 0, valueErrorf(typedForms, "%q is not a type and a number", text)
	}
	prefix, digits, _ := strings.Cut(text, ":")
	n, err = strconv.ParseInt(digits, 10, 64)
	if err != nil {
		return "", 0, valueErrorf(typedForms, "%q is too large", digits)
	}
	return prefix, n, nil
}
