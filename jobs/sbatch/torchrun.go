package sbatch

import (
	"slices"
	"strconv"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// isOnOneNode reports whether the job has one node, on which the script starts the command without srun.
// The job can then start it as the script does.
func (c *command) isOnOneNode() bool { return !c.inSrun && max(1, c.r.job.nodes) == 1 }

// hasUnknownCount reports whether only a shell knows the number of workers in the arguments of torchrun.
func (c *command) hasUnknownCount(args []arg) bool {
	options, _ := parseTorchrun(args)
	return slices.ContainsFunc(options, func(o option) bool {
		return o.name == "nproc_per_node" && !o.known && !(c.r.job.nodeGPUs() > 0 && isGPUCount(o.valueWord()))
	})
}

// convertTorchModule converts python -m torch.distributed.run and its predecessor. It reports
// whether the command is one of them.
func (c *command) convertTorchModule() bool {
	args := c.args[1:]
	if len(args) > 0 && args[0].text == "-u" {
		args = args[1:]
	}
	if len(args) < 2 || args[0].text != "-m" {
		return false
	}
	switch args[1].text {
	case "torch.distributed.launch":
		passesRank := !slices.ContainsFunc(c.args, func(a arg) bool { return a.text == "--use_env" || a.text == "--use-env" })
		if passesRank && c.isOnOneNode() {
			return false
		}
		if passesRank {
			c.change("torch.distributed.launch", "replaced by torchrun, which sets LOCAL_RANK instead of passing --local_rank")
		}
	case "torch.distributed.run", "torch.distributed.elastic":
	default:
		return false
	}
	if c.isOnOneNode() && c.hasUnknownCount(args[2:]) {
		return false
	}
	c.args = args[2:]
	c.convertTorchrun()
	return true
}

// torchrunFlags are options of torchrun without a value.
var torchrunFlags = words("standalone no_python m module use_env run_path")

// ignoredTorchrunOptions are options of the rendezvous, which ddpbatch sets.
var ignoredTorchrunOptions = words("node_rank master_addr master_port rdzv_id rdzv_backend rdzv_endpoint rdzv_conf standalone use_env local_addr")

// torchrunLogOptions are options of torchrun about the output of its workers.
var torchrunLogOptions = words("redirects r tee t log_dir logs_specs local_ranks_filter")

// torchrunAgentOptions are options of torchrun about its own processes.
var torchrunAgentOptions = words("role monitor_interval start_method virtual_local_rank signals_to_handle")

// parseTorchrun splits the arguments of torchrun into options and the script with its arguments. The names
// of the options have underscores.
func parseTorchrun(args []arg) (options []option, script []arg) {
	for len(args) > 0 && strings.HasPrefix(args[0].source(), "-") {
		a := args[0]
		args = args[1:]
		name, value, has := strings.Cut(strings.TrimLeft(a.source(), "-"), "=")
		o := option{name: strings.ReplaceAll(name, "-", "_"), value: value, known: a.known, source: []arg{a}}
		if !has && !slices.Contains(torchrunFlags, o.name) {
			args = o.takeValue(args)
		}
		options = append(options, o)
	}
	return options, args
}

// convertTorchrun converts the arguments of torchrun. It drops the options that ddpbatch sets.
func (c *command) convertTorchrun() {
	j := c.r.job
	j.torchrun = true
	if len(c.prefix) > 0 {
		c.change(sourceText(c.stmt), "the job starts torchrun without "+c.prefix[0].text)
	}
	options, script := parseTorchrun(c.args)
	c.args = script
	c.omitArguments(true)
	var kept []arg // options that the job file has
	nnodes := ""
	for _, o := range options {
		if o.name == "nnodes" && o.known {
			nnodes = o.value
		}
		kept = append(kept, c.convertTorchrunOption(o)...)
	}
	j.torchTasks = max(1, j.torchTasks)
	c.layout()
	nodes := strconv.Itoa(max(1, j.nodes))
	hasNodes := slices.ContainsFunc(options, func(o option) bool { return o.name == "nnodes" })
	switch {
	case c.inSrun && j.outNodes > 1 && !hasNodes: // also with the endpoint of a rendezvous, which then accepts one node
		c.change("torchrun", "without --nnodes, a process group has one node; the job has one group of all nodes")
	case nnodes == "" || nnodes == nodes:
	case strings.Contains(nnodes, ":"):
		c.change("--nnodes "+nnodes, "the number of nodes is slurm.nodes")
	default:
		c.change("--nnodes "+nnodes, "torchrun uses all nodes of the job: slurm.nodes is "+nodes)
	}
	c.useArrayTask()
	c.hideArguments()
	if c.needsShell(kept) {
		c.useWorkerShell(kept)
		return
	}
	var argv []string
	for _, a := range slices.Concat(kept, c.args) {
		v := a.source()
		if !a.known || !isValidText(v) {
			v = shorten(v)
			c.change(v, c.r.unknownArgumentReason(a))
		}
		argv = append(argv, v)
	}
	j.argv = argv
	if j.shellDir != "" { // torchrun starts without a shell
		c.change("cd "+j.shellDir, unknownDirectory)
		j.shellDir = ""
	}
}

// convertTorchrunOption converts an option of torchrun. It returns the words that the job file has instead.
func (c *command) convertTorchrunOption(o option) (kept []arg) {
	j := c.r.job
	switch o.name {
	case "nproc_per_node":
		n, isCount := parseCount(o.value)
		switch {
		case o.known && isCount:
			j.torchTasks = n
		case j.nodeGPUs() > 0 && (o.known && (o.value == "gpu" || o.value == "auto") || !o.known && isGPUCount(o.valueWord())):
			j.torchTasks = j.nodeGPUs()
		default:
			c.change("--nproc_per_node "+o.value, "the number is known only to a shell: set slurm.tasks_per_node")
		}
	case "nnodes":
		isNodes := func(name string) bool { return strings.Contains(name, "NODES") }
		if !o.known && !slices.ContainsFunc(usedVariables(o.valueWord()), isNodes) {
			c.change("--nnodes", "the number is known only to a shell: slurm.nodes applies")
		}
	case "max_restarts":
		if o.value != "0" {
			c.note("--max_restarts "+o.value, "use restart.max_without_progress, which restarts from the last checkpoint")
		}
	case "m", "module":
		return []arg{{text: "-m", known: true}}
	case "no_python":
		return []arg{{text: "--no_python", known: true}}
	default:
		switch {
		case slices.Contains(ignoredTorchrunOptions, o.name):
		case slices.Contains(torchrunLogOptions, o.name):
			c.note("--"+o.name, "the log is in the run directory")
		case slices.Contains(torchrunAgentOptions, o.name):
			c.note("--"+o.name, "the job starts torchrun without it")
		default:
			return o.source
		}
	}
	return nil
}

// needsShell reports whether only a shell can evaluate the arguments or the directory of the script that
// torchrun starts. before are options of torchrun.
func (c *command) needsShell(before []arg) bool {
	isUnknown := func(a arg) bool { return !a.known }
	isShellCode := func(a arg) bool { return a.known && !isValidText(a.text) }
	return !c.isInline && len(c.args) > 0 && (c.args[0].known || plainWord(c.args[0])) && (c.r.job.shellDir != "" || slices.ContainsFunc(c.args, isUnknown)) && !slices.ContainsFunc(c.args, isShellCode) && !slices.ContainsFunc(before, isUnknown)
}

// useWorkerShell makes each worker of torchrun a shell that completes the command line and starts the
// script, as torchrun does.
func (c *command) useWorkerShell(before []arg) {
	line := "exec python3 -u "
	var argv []string
	for _, a := range before {
		switch a.text {
		case "-m":
			line += "-m "
		case "--no_python":
			line = "exec "
		default:
			argv = append(argv, a.text)
		}
	}
	c.r.job.argv = append(argv, "--no_python", "bash", "-c", c.shellLine(line))
}

// isGPUCount reports whether an unknown word is the number of GPUs of a node.
func isGPUCount(w *syntax.Word) bool {
	return slices.ContainsFunc(usedVariables(w), func(n string) bool { return n == "SLURM_GPUS_ON_NODE" || n == "SLURM_GPUS_PER_NODE" })
}
