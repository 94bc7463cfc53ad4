package sbatch

import (
	"bytes"
	"cmp"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/ddpbatch/ddpbatch/internal/lazyregexp"
	"github.com/ddpbatch/ddpbatch/jobs"
)

// divideTotals sets the number of nodes, if no directive sets it, from the total and the number per
// node of tasks or GPUs.
func (j *job) divideTotals() {
	if j.nodes == 0 {
		switch {
		case j.allTasks > 0 && j.tasks > 0:
			j.nodes = (j.allTasks + j.tasks - 1) / j.tasks
		case j.allGPUs > 0 && j.gpus > 0:
			j.nodes = (j.allGPUs + j.gpus - 1) / j.gpus
		case j.allTasks <= 1 && (j.allGPUs <= 1 || j.tasks == 0):
			j.nodes = 1
		}
	}
}

// allocatedTasks returns the number of tasks per node of the allocation.
func (j *job) allocatedTasks() int {
	nodes := max(1, j.nodes)
	switch {
	case j.allTasks > 0:
		return max(1, (j.allTasks+nodes-1)/nodes)
	case j.tasks > 0:
		return j.tasks
	case j.gpuTasks > 0 && j.perNodeGPUs() > 0:
		return j.gpuTasks * j.perNodeGPUs()
	}
	return 1
}

// perNodeGPUs returns the number of GPUs per node, without --gpus-per-task. It returns 0 if unknown.
func (j *job) perNodeGPUs() int {
	nodes := max(1, j.nodes)
	switch {
	case j.gpus > 0:
		return j.gpus
	case j.allGPUs > 0:
		return (j.allGPUs + nodes - 1) / nodes // a job file requests equal nodes
	}
	return 0
}

// nodeGPUs returns the number of GPUs per node, or 0 without GPUs.
func (j *job) nodeGPUs() int {
	if n := j.perNodeGPUs(); n > 0 {
		return n
	}
	return j.taskGPUs * j.allocatedTasks()
}

// maxSpread is the number of tasks up to which a script without a number of nodes is assumed to
// run on one node.
const maxSpread = 64

// nodeCores returns the number of cores per node of the allocation.
func (j *job) nodeCores() int {
	if j.gpuCPUs > 0 && j.nodeGPUs() > 0 && j.cpus == 0 {
		return j.gpuCPUs * j.nodeGPUs()
	}
	return j.allocatedTasks() * max(1, j.cpus)
}

// layout determines nodes, ranks per node, cores, and GPUs from the directives and from the
// options of srun.
func (c *command) layout() {
	r, j := c.r, c.r.job
	nodes, gpus, cores := max(1, j.nodes), j.nodeGPUs(), j.nodeCores()
	isPython := len(c.args) > 0 && strings.HasPrefix(path.Base(c.args[0].text), "python")
	// The script starts the program once, and the program uses all nodes, GPUs, or tasks itself, for example with mpirun.
	// A shell script may call srun, which would wait for the step that the script runs in.
	j.once = !c.inSrun && !j.torchrun && j.image == "" && len(c.args) > 0 && (nodes > 1 || gpus > 1 || j.allocatedTasks() > 1 && !isPython || isShellScript(c.args))
	j.single = !c.inSrun && !j.torchrun && (&finder{r: r, functions: map[string]bool{}}).classify(c.args, 0) != launchProgram
	if tasks := j.allocatedTasks(); j.single && !j.once && tasks > 1 && len(c.args) > 0 && !isPython {
		c.change(fmt.Sprintf("%d tasks per node", tasks), "the program may start them in its container, but the job has one task on each node")
	}
	if !c.inSrun && r.stepSignal.name != "" {
		r.note(r.stepSignal.line, r.stepSignal.String(), "without srun, the program gets the signal only in the job: handle it, or remove slurm.signal_before_end")
	}
	total := c.countRanks(nodes)
	nodes = c.countNodes(nodes, total)
	if j.gpus == 0 && j.allGPUs%nodes != 0 {
		c.note("--gpus="+strconv.Itoa(j.allGPUs), fmt.Sprintf("the job requests %d GPUs on each of %d nodes", gpus, nodes))
	}
	if tasks := total / nodes; j.once && isPython && gpus > 0 && tasks%gpus != 0 && gpus%tasks != 0 {
		c.note(fmt.Sprintf("%d tasks per node", tasks), fmt.Sprintf("they cannot share %d GPUs evenly; the job has one task with all cores on each node", gpus))
		total = nodes
	}
	ranks := c.divideRanks(total, nodes)
	perNode := slices.Max(ranks)
	c.setGPUCores(cmp.Or(c.srun.taskGPUs*perNode, gpus), perNode)
	cpus, isShared := c.rankCores(cores, perNode)
	if j.torchrun {
		if perNode > 1 {
			c.change(fmt.Sprintf("%d torchruns per node", perNode), "the job starts one torchrun on each node")
		}
		all := cpus * perNode
		perNode = max(1, j.torchTasks)
		if all > 0 {
			cpus = max(1, all/perNode)
		}
		if all%perNode != 0 {
			c.note(fmt.Sprintf("%d cores per node", all), fmt.Sprintf("the job requests %d for each of the %d ranks", cpus, perNode))
		}
	}
	if c.srun.taskGPUs > 0 { // only srun requests GPUs
		gpus = c.srun.taskGPUs * slices.Max(ranks)
	}
	if c.inSrun && !j.torchrun && j.slurm["gpu_bind"] == "" {
		switch gpuTasks := cmp.Or(c.srun.gpuTasks, j.gpuTasks); {
		case j.taskGPUs > 0:
			j.setIfValid("gpu_bind", "per_task:"+strconv.Itoa(j.taskGPUs)) // which --gpus-per-task implies
		case gpuTasks > 0 && gpus > 0:
			j.setIfValid("gpu_bind", "single:"+strconv.Itoa(gpuTasks)) // which --ntasks-per-gpu implies
		}
	}
	if gpus > 0 && perNode > gpus && perNode%gpus == 0 {
		j.raw["share_gpus"] = "true"
	}
	j.outNodes, j.outTasks, j.outCPUs, j.outGPUs = nodes, perNode, jobs.Cores(cpus), gpus
	if isShared {
		j.outCPUs = jobs.AllCores
	}
	if slices.Min(ranks) < slices.Max(ranks) {
		j.outTasks = 0
		j.raw["ranks_per_node"] = strings.ReplaceAll(fmt.Sprint(ranks), " ", ", ")
	}
	if j.gpuCPUs > 0 && gpus == 0 {
		c.note("--cpus-per-gpu="+strconv.Itoa(j.gpuCPUs), "the script requests no GPUs: set slurm.gpus_per_node if the command line of sbatch did")
	}
	r.setMemory(cores)
	if j.single && !j.once && gpus > 1 && isPython {
		c.note(strconv.Itoa(gpus)+" GPUs", "the job sets RANK=0, LOCAL_RANK=0, and WORLD_SIZE=1; a program that reads them uses one GPU: start it with torchrun")
	}
}

// isShellScript reports whether a command starts a file with shell code.
func isShellScript(args []arg) bool {
	if slices.Contains(words("bash sh"), path.Base(args[0].text)) {
		file := slices.IndexFunc(args[1:], func(a arg) bool { return !strings.HasPrefix(a.source(), "-") })
		isCode := func(a arg) bool { return strings.HasSuffix(a.text, "c") && !strings.HasPrefix(a.text, "--") } // -c, -lc
		return file >= 0 && !slices.ContainsFunc(args[1:1+file], isCode)
	}
	return strings.HasSuffix(strings.Trim(args[0].source(), `"`), ".sh")
}

// countRanks returns the number of ranks in the job. With torchrun, it counts the torchruns.
func (c *command) countRanks(nodes int) int {
	j := c.r.job
	switch {
	case j.once:
		return nodes * j.allocatedTasks()
	case !c.inSrun && nodes > 1 && j.torchrun:
		c.change("torchrun", "the script starts it on the first node only; the job starts one on every node")
	case !c.inSrun && nodes > 1:
		c.change(strconv.Itoa(nodes)+" nodes", "the script starts the program once, on the first node; the job starts it on every node")
	case !c.inSrun:
	case c.srun.tasks > 0:
		return c.srun.tasks
	case c.srun.tasksPerNode > 0:
		return c.srun.tasksPerNode * max(nodes, c.srun.nodes)
	case c.srun.nodes > 0 && c.srun.nodes != nodes:
		return c.srun.nodes
	case j.allTasks > 0:
		return j.allTasks
	case j.tasks > 0:
		return j.tasks * nodes
	case j.gpuTasks > 0:
		return j.allocatedTasks() * nodes
	case j.taskGPUs > 0 && j.allGPUs > 0:
		return j.allGPUs / j.taskGPUs
	}
	return nodes
}

// countNodes returns the number of nodes of the job. nodes is the number that the directives request, or
// 1 if they leave it to Slurm.
func (c *command) countNodes(nodes, ranks int) int {
	j := c.r.job
	switch isSpread := j.nodes == 0; {
	case c.srun.nodes > 0 && c.srun.nodes != nodes && isSpread:
		return c.srun.nodes
	case c.srun.nodes > 0 && c.srun.nodes != nodes:
		c.change(fmt.Sprintf("srun --nodes=%d", c.srun.nodes), fmt.Sprintf("the program runs on some of the %d nodes of the job only", nodes))
	case isSpread && c.inSrun && ranks > maxSpread:
		c.change("--ntasks="+strconv.Itoa(ranks), "Slurm chooses the number of nodes: set slurm.nodes and slurm.tasks_per_node")
	case isSpread && c.inSrun && ranks > 1:
		c.note("--ntasks="+strconv.Itoa(ranks), "the script leaves the number of nodes to Slurm; the job requests one")
	case isSpread && !c.inSrun && j.allTasks > maxSpread:
		c.change("--ntasks="+strconv.Itoa(j.allTasks), "Slurm chooses the number of nodes; the job requests one")
	}
	return nodes
}

// rankCores returns the number of cores of each rank, or 0 for the default. cores is the number of cores
// per node. isShared reports whether the ranks share all cores of their node: srun without
// --cpus-per-task gets them in a job with --exclusive, and so does a program that the script starts
// without srun.
func (c *command) rankCores(cores, perNode int) (cpus int, isShared bool) {
	j := c.r.job
	cpus = cmp.Or(c.srun.cpus, j.cpus)
	if j.gpuCPUs > 0 && cpus == 0 {
		cpus = max(1, cores/perNode)
	}
	if c.inSrun && cpus == 0 && bytes.Contains(c.r.src, []byte("SRUN_CPUS_PER_TASK")) {
		value, _ := c.r.knownString("SRUN_CPUS_PER_TASK")
		if n, ok := parseCount(value); ok {
			return n, false
		}
	}
	switch {
	case j.exclusive && cpus == 0 && c.srun.exact:
		return 1, false
	case j.exclusive && cpus == 0:
		return 0, true
	case !c.inSrun && cores > 1:
		return max(1, cores/perNode), false
	case cpus == 0 && c.r.options.Site == "":
		c.r.note(0, "slurm.cpus_per_task", "the script leaves the cores to the center's default; the job requests 1 core per rank")
	}
	return cpus, false
}

// readsTasks matches commands and variables that depend on the number of tasks of the job.
var readsTasks = lazyregexp.New(`(?m)^[^#\n]*(?:\bsrun\b|\bSLURM_(?:NTASKS|NPROCS|TASKS_PER_NODE)\b)`)

// divideRanks returns the number of ranks on each node. Like srun, it gives the first nodes one more
// if the ranks do not divide evenly. It converts the option --distribution, which places them.
func (c *command) divideRanks(total, nodes int) []int {
	j := c.r.job
	kind, _, _ := strings.Cut(strings.ToLower(j.distribution), ":")
	kind, _, _ = strings.Cut(kind, ",")
	option := "--distribution=" + j.distribution
	size, isPlane := strings.CutPrefix(kind, "plane=")
	plane, _ := strconv.Atoi(size)
	even := total%nodes == 0
	switch {
	case j.distribution == "" || !c.inSrun || j.torchrun || nodes == 1:
	case kind == "arbitrary":
		c.change(option, "a hostfile places the ranks: set slurm.ranks_per_node")
	case isPlane && plane > 0 && plane < total && plane*nodes >= total && total > plane*(nodes-1):
		ranks := slices.Repeat([]int{plane}, nodes)
		ranks[nodes-1] = total - plane*(nodes-1)
		return ranks
	case !even && kind != "block" && kind != "*" && kind != "nopack" && kind != "pack":
		c.change(option, "slurm.ranks_per_node places adjacent ranks on one node")
	case even && j.distribution != "block" && !j.addStepOption(option):
		c.change(option, notExpressible)
	}
	each := max(1, total/nodes)
	ranks := slices.Repeat([]int{each}, nodes)
	switch {
	case even:
	case total < nodes || j.torchrun || !c.inSrun:
		c.change(fmt.Sprintf("%d ranks on %d nodes", total, nodes), "the job has a rank on each node, and the same number of ranks on all nodes")
	default:
		for i := range total % nodes {
			ranks[i]++
		}
		text := fmt.Sprintf("%d ranks on %d nodes", total, nodes)
		if len(readsTasks().FindAllIndex(c.r.src, 2)) > 1 {
			c.change(text, fmt.Sprintf("other commands than the program see %d tasks, because each node gets the resources for %d", ranks[0]*nodes, ranks[0]))
		} else {
			c.note(text, "Slurm divides the ranks among the nodes; the job sets slurm.ranks_per_node")
		}
	}
	return ranks
}

// setMemory converts --mem-per-cpu and --mem-per-gpu. cores is the number of cores per node.
func (r *reader) setMemory(cores int) {
	j := r.job
	scale := func(option, size string, n int) {
		if size == "" || j.slurm["mem"] != "" {
			return
		}
		memory := slurmMemory(size)
		key := strings.ReplaceAll(strings.TrimLeft(option, "-"), "-", "_")
		if j.exclusive && j.setRaw(key, quote(memory)) { // the job has all cores and GPUs of its nodes
			return
		}
		number := memory
		unit := ""
		if memory != "" {
			unit = memory[len(memory)-1:]
			number = memory[:len(memory)-1]
		}
		amount, err := strconv.Atoi(number)
		if err != nil || amount <= 0 || amount > 1<<20 || n > 1<<20 || !j.setIfValid("mem", fmt.Sprintf("%d%s", amount*n, unit)) {
			r.note(0, option+"="+size, "set slurm.mem, the memory per node")
		}
	}
	scale("--mem-per-cpu", j.memPerCPU, max(1, cores))
	scale("--mem-per-gpu", j.memPerGPU, max(1, j.nodeGPUs()))
}
