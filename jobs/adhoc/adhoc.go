// Package adhoc describes a command without a job file as a job.
//
// [Command.JobFile] returns the text of a job file for the command. The number of nodes, ranks, and
// cores comes from the flags of the command line, which take precedence, and from the variables of the
// surrounding Slurm allocation. The defaults are the same as in srun: the tasks of the Slurm job, or one
// per node. A variable that is missing or malformed counts as not set.
//
// The package does not start ranks, or check the job file: package jobs does.
package adhoc

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/slurm"
)

// A Command is a command without a job file, with the flags that describe its job. Zero values select
// the defaults. Numbers must not be negative.
type Command struct {
	Argv []string // not empty

	Name         string // name of the run; default: of the Slurm job, or of the program
	Site         string
	Nodes        int // default: all nodes of the allocation
	Tasks        int // ranks on all nodes
	TasksPerNode int
	CPUsPerTask  int // default: the value of the Slurm job, or all cores
	Launcher     string
	Image        string   // of the container
	Mounts       string   // directories to mount in the container, separated by commas
	StepOptions  []string // additional options of srun
}

// JobFile returns the text of the job file. Lookup returns the value of an environment variable. The
// allocation is nil outside of Slurm, where all ranks run on one machine.
func (c Command) JobFile(lookup func(name string) (string, bool), allocation *slurm.Allocation) ([]byte, error) {
	e := environment{lookup, allocation}
	var b strings.Builder
	key := func(name, value string) { fmt.Fprintf(&b, "%s = %s\n", name, value) }
	number := func(name string, n int) { key(name, strconv.Itoa(n)) }
	text := func(name, value string) {
		if value != "" {
			key(name, jobs.TOMLString(value))
		}
	}
	text("name", c.nameOfRun(e))
	text("site", c.Site)
	b.WriteString("[slurm]\n")
	var groups []jobs.Group
	if e.isHeterogeneous() {
		var err error
		if groups, err = c.groups(e); err != nil {
			return nil, err
		}
	} else {
		ranks, err := c.ranks(e)
		if err != nil {
			return nil, err
		}
		most := slices.Max(ranks)
		if slices.Min(ranks) == most {
			number("nodes", len(ranks))
			number("tasks_per_node", most)
		} else {
			key("ranks_per_node", strings.ReplaceAll(fmt.Sprint(ranks), " ", ", "))
		}
		if allocation != nil {
			number("cpus_per_task", c.cpus(e, ranks))
			if gpus := e.count(gpusVariable); gpus > 0 && gpus%most == 0 {
				number("gpus_per_node", gpus)
			}
		}
	}
	if len(c.StepOptions) > 0 {
		key("step_options", jobs.TOMLList(c.StepOptions))
	}
	for _, g := range groups {
		b.WriteString("[[slurm.group]]\n")
		number("nodes", g.Nodes)
		number("tasks_per_node", g.TasksPerNode)
		number("cpus_per_task", int(g.CPUsPerTask))
	}
	if c.Image != "" {
		b.WriteString("[setup.container]\n")
		text("image", c.Image)
		if c.Mounts != "" {
			key("mounts", jobs.TOMLList(strings.Split(c.Mounts, ",")))
		}
	}
	b.WriteString("[command]\n")
	key("argv", jobs.TOMLList(c.Argv))
	text("launcher", c.Launcher)
	return []byte(b.String()), nil
}

// nameOfRun returns the name of the run: Name, the name of the Slurm job, or the name of the program.
func (c Command) nameOfRun(e environment) string {
	if c.Name != "" {
		return c.Name
	}
	if name, _ := e.lookup("SLURM_JOB_NAME"); !slices.Contains([]string{"bash", "sh", "interactive", "wrap"}, name) && isName(name) {
		return name
	}
	name := c.Argv[0]
	if base := path.Base(name); strings.HasPrefix(base, "python") || base == "torchrun" || base == "accelerate" || base == "bash" {
		for _, a := range c.Argv[1:] {
			if strings.HasSuffix(a, ".py") || strings.HasSuffix(a, ".sh") {
				name = a
				break
			}
		}
	}
	name = path.Base(name)
	name = strings.TrimSuffix(name, path.Ext(name))
	if !isName(name) {
		return "job"
	}
	return name
}

func isName(s string) bool {
	var n jobs.Name
	return n.UnmarshalTOML(s) == nil
}
