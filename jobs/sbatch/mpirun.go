package sbatch

import (
	"slices"
	"strconv"
	"strings"
)

// mpirunNames are the launchers of Open MPI and MPICH.
var mpirunNames = words("mpirun mpiexec mpiexec.hydra")

// mpirunValued are the options of mpirun and mpiexec that have a value, possibly as the next word (Open MPI
// and MPICH).
var mpirunValued = words(`n np c N npernode ppn perhost map-by bind-to hostfile machinefile f H host hosts rank-by ntasks wdir cpus-per-proc cpus-per-rank
	report-bindings-to tag-output-to prefix timeout npersocket iface launcher bootstrap x env genv mca gmca pmca prtemca`)

// mpirunPairs are the options that have a name and a value as the next two words.
var mpirunPairs = words("env genv mca gmca pmca prtemca")

// ignoredMpirunOptions are options that srun does not need.
var ignoredMpirunOptions = words("bind-to report-bindings allow-run-as-root oversubscribe tag-output display-map launcher bootstrap iface prefix rank-by v q quiet verbose")

// parseMpirun splits the arguments of mpirun into options and the program. A blank separates the name and
// the value of a pair. ok is false if an unknown word may be an option.
func parseMpirun(args []arg) (options []option, program []arg, ok bool) {
	for len(args) > 0 {
		a := args[0]
		if !a.known {
			text := sourceText(a.word)
			return options, args, !strings.HasPrefix(strings.TrimPrefix(text, `"`), "$") && !strings.HasPrefix(text, "-")
		}
		if !strings.HasPrefix(a.text, "-") {
			break
		}
		args = args[1:]
		name, value, has := strings.Cut(strings.TrimLeft(a.text, "-"), "=")
		o := option{name: name, value: value, known: true, source: []arg{a}}
		if !has && slices.Contains(mpirunValued, name) {
			args = o.takeValue(args)
		}
		if isPair := slices.Contains(mpirunPairs, name) && !(name == "env" && strings.Contains(o.value, "=")); isPair && len(args) > 0 {
			o.value, o.known, args = o.value+" "+args[0].text, o.known && args[0].known, args[1:]
		}
		options = append(options, o)
	}
	return options, args, true
}

// convertMpirun converts the options of mpirun. It returns false if the program cannot be
// determined.
func (c *command) convertMpirun(name string) bool {
	options, program, ok := parseMpirun(c.args[1:])
	for _, o := range options {
		c.convertMpirunOption(name, o)
	}
	isProgram := c.takeProgram(name, program, ok)
	if !ok {
		return false
	}
	if c.r.job.slurm["mpi"] == "" {
		c.r.job.setIfValid("mpi", "pmix")
	}
	c.note(name, "srun starts the ranks, with slurm.mpi")
	return isProgram
}

// convertMpirunOption converts an option of mpirun. name is the name of the command.
func (c *command) convertMpirunOption(name string, o option) {
	switch o.name {
	case "x", "env", "genv":
		variable, value, isPair := strings.Cut(o.value, "=")
		if !isPlainName(variable) { // -genv A 1
			variable, value, isPair = strings.Cut(o.value, " ")
		}
		if isPair && o.known && isPlainName(variable) {
			c.setRankVariable(variable, value)
		}
	case "mca", "gmca", "pmca", "prtemca":
		c.note("mpirun --mca "+o.value, "srun starts the ranks: set OMPI_MCA_ variables in [setup.env] if the program needs them")
	case "n", "np", "c", "ntasks", "npernode", "ppn", "N", "perhost":
		field := &c.srun.tasks
		if slices.Contains(words("npernode ppn N perhost"), o.name) {
			field = &c.srun.tasksPerNode
		}
		if n, ok := parseCount(o.value); ok {
			*field = n
		} else {
			c.change(name+" -"+o.name, "the number is known only to a shell")
		}
	case "map-by":
		switch fields := strings.Split(o.value, ":"); {
		case o.known && fields[0] == "ppr" && len(fields) > 2 && fields[2] == "node":
			c.srun.tasksPerNode, _ = strconv.Atoi(fields[1])
		case !o.known, fields[0] == "ppr":
			c.change(strings.TrimSpace(name+" --map-by "+o.value), "the number of ranks may differ: set slurm.tasks_per_node")
		case fields[0] == "node":
			c.change(name+" --map-by node", "ranks are placed in blocks")
		case fields[0] != "slot":
			c.note(name+" --map-by "+o.value, "srun starts the ranks: use slurm.cpu_bind")
		}
	case "H", "host", "hostfile", "machinefile", "f", "hosts":
		c.note(name+" --"+o.name, "the ranks run on all nodes of the job")
	case "wdir":
		c.r.job.workdir = o.value
	case "":
	default:
		if !slices.Contains(ignoredMpirunOptions, o.name) {
			c.change(strings.TrimSpace(name+" -"+o.name+" "+o.value), "srun starts the ranks; it has no such option")
		}
	}
}
