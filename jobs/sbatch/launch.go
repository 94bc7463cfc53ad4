package sbatch

import (
	"bytes"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"mvdan.cc/sh/v3/expand"
	"mvdan.cc/sh/v3/syntax"
)

// A command is the command line of the job's program, parsed from the left.
type command struct {
	r    *reader
	line int
	stmt *syntax.Stmt
	args []arg

	prefix      []arg // command that starts srun, such as timeout
	inSrun      bool
	inContainer bool
	isInline    bool // in the code of bash -c
	srun        srunSize
}

// srunSize holds the numbers in the options of srun or mpirun; 0 if not given.
type srunSize struct {
	nodes, tasks, tasksPerNode, cpus int
}

// convertLaunch converts the command that starts the program.
func (r *reader) convertLaunch(s *syntax.Stmt, call *syntax.CallExpr) {
	c := &command{r: r, line: r.line(s), stmt: s}
	for _, a := range call.Assigns {
		r.exported[a.Name.Value] = true
		r.prepareAssign(s, a, "")
	}
	c.args = r.expandLists(r.args(call.Args), 0)
	for _, redirect := range s.Redirs {
		switch redirect.Op {
		case syntax.RdrIn, syntax.Hdoc, syntax.DashHdoc, syntax.WordHdoc:
			if sourceText(redirect.Word) != "/dev/null" {
				r.change(r.line(redirect), sourceText(s), "the program has no standard input")
			}
		default:
			if writesFile(redirect) {
				r.note(r.line(redirect), sourceText(s), "redirections are dropped: the log is in the run directory")
			}
		}
	}
	c.unwrap()
}

func (c *command) note(what, why string)   { c.r.note(c.line, what, why) }
func (c *command) change(what, why string) { c.r.change(c.line, what, why) }

// unwrap removes the commands that start the program. The rest becomes argv.
func (c *command) unwrap() {
	for len(c.args) > 0 {
		first := c.args[0]
		base := path.Base(first.text)
		next := ""
		if len(c.args) > 1 {
			next = c.args[1].text
		}
		switch {
		case !first.known:
			c.convertProgram()
			return
		case (base == "exec" || base == "time" || base == "nohup" || base == "command" || base == "builtin") && !strings.HasPrefix(next, "-") && len(c.args) > 1:
			c.args = c.args[1:]
		case base == "env" && c.takeEnvironment():
		case base == "timeout" && c.takeTimeout():
		case base == "eval" && c.takeEvaluated():
		case base == "srun" && !c.inSrun:
			if !c.convertSrun() {
				return
			}
		case (base == "mpirun" || base == "mpiexec" || base == "mpiexec.hydra") && !c.inSrun:
			if !c.convertMpirun(base) {
				return
			}
		case (base == "apptainer" || base == "singularity" || base == "shifter") && c.convertContainer(base):
		case base == "torchrun" && first.text == "torchrun":
			c.args = c.args[1:]
			c.convertTorchrun()
			return
		case (base == "python" || base == "python3") && first.text == base && c.convertTorchModule():
			return
		case (base == "bash" || base == "sh") && c.convertInline():
			return
		default:
			c.convertProgram()
			return
		}
	}
	c.change(sourceText(c.stmt), "it starts no program: set command.argv")
}

// takeEvaluated replaces eval by the simple command that it runs. It reports whether the command is
// known.
func (c *command) takeEvaluated() bool {
	args := c.r.evaluated(c.args[1:])
	if args == nil {
		return false
	}
	c.args = args
	return true
}

// evaluated returns the words of the simple command that eval runs, or nil.
func (r *reader) evaluated(args []arg) []arg {
	parts := make([]string, len(args))
	for i, a := range args {
		if !a.known {
			return nil
		}
		parts[i] = a.text
	}
	file, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(strings.NewReader(strings.Join(parts, " ")), "")
	if err != nil || len(file.Stmts) != 1 || len(file.Stmts[0].Redirs) > 0 || file.Stmts[0].Background || file.Stmts[0].Negated {
		return nil
	}
	call, ok := file.Stmts[0].Cmd.(*syntax.CallExpr)
	if !ok || len(call.Assigns) > 0 || len(call.Args) == 0 {
		return nil
	}
	return r.args(call.Args)
}

// takeTimeout moves timeout in front of the program, if it limits the time of srun. It reports whether
// it does.
func (c *command) takeTimeout() bool {
	inner := skipWrapper("timeout", c.args[1:])
	if len(inner) == 0 || !inner[0].known || path.Base(inner[0].text) != "srun" {
		return false
	}
	c.prefix, c.args = slices.Clone(c.args[:len(c.args)-len(inner)]), inner
	return true
}

// startsSeveral reports whether a launcher starts several programs, which it separates with a
// colon.
func startsSeveral(args []arg) bool {
	return slices.ContainsFunc(args, func(a arg) bool { return a.known && a.text == ":" })
}

// takeEnvironment converts env A=1 program. It reports whether env has no other arguments.
func (c *command) takeEnvironment() bool {
	i := 1
	for i < len(c.args) && c.args[i].known && strings.Contains(c.args[i].text, "=") && !strings.HasPrefix(c.args[i].text, "-") {
		i++
	}
	if i >= len(c.args) || c.args[i].known && strings.HasPrefix(c.args[i].text, "-") || !c.args[i].known && !plainWord(c.args[i]) {
		return false
	}
	for _, a := range c.args[1:i] {
		name, value, _ := strings.Cut(a.text, "=")
		if !isPlainName(name) {
			return false
		}
		c.setRankVariable(name, value)
	}
	c.args = c.args[i:]
	return true
}

// setRankVariable sets a variable for the ranks only.
func (c *command) setRankVariable(name, value string) {
	if isSecret(name, value) {
		c.r.hideVariable(name, value)
		c.r.addSecretName(c.line, name)
		return
	}
	c.r.exported[name] = true
	c.r.setVariable(c.stmt, name, value, "export "+name+"="+quoteWord(value))
}

// ignoredSrunOptions are options of srun that the launcher sets or makes unnecessary.
var ignoredSrunOptions = words(`label unbuffered kill-on-bad-exit output error overlap exact exclusive wait quiet verbose job-name open-mode mpi-combine oversubscribe
	interactive immediate no-kill disable-status quit-on-interrupt propagate no-requeue requeue mem mem-per-cpu mem-per-gpu time partition account qos constraint jobid
	ntasks-per-gpu gpus gpus-per-node gpus-per-task gres cpus-per-gpu slurmd-debug comment wckey reservation environment image licenses no-bell preserve-env hint threads-per-core`)

// convertSrun converts the options of srun. It returns false if the program cannot be
// determined.
func (c *command) convertSrun() bool {
	j := c.r.job
	options, program, ok := parseSrun(c.args[1:])
	if !ok || len(program) == 0 {
		c.change(sourceText(c.stmt), "cannot tell the options of srun from the program: set command.argv")
		c.r.layout(c)
		return false
	}
	c.inSrun = true
	c.args = program
	if startsSeveral(program) {
		c.change(sourceText(c.stmt), "it starts several programs: a job file has one program")
	}
	if !c.r.hasDirectives() { // srun requests the nodes itself
		for _, o := range options {
			switch {
			case !slices.Contains(words("partition account qos time gres gpus gpus-per-node mem mem-per-cpu constraint job-name nodes ntasks ntasks-per-node cpus-per-task exclusive reservation"), o.name):
			case o.known:
				c.r.convertOption(c.line, o.name, o.value)
			default:
				c.change("srun --"+o.name, "the value is known only to a shell: set the key of [slurm]")
			}
		}
		j.divideTotals()
	}
	count := func(o option, into *int) {
		if n, err := strconv.Atoi(o.value); o.known && err == nil && n > 0 && n <= 1<<20 {
			*into = n
			return
		}
		if v, isSlurm := slurmCount(o); isSlurm && v != "" {
			return // the value that srun uses anyway
		}
		c.change("srun --"+o.name, "the number is known only to a shell")
	}
	for _, o := range options {
		text := strings.TrimSpace("srun --" + o.name + " " + o.value)
		switch o.name {
		case "nodes":
			count(o, &c.srun.nodes)
		case "ntasks":
			count(o, &c.srun.tasks)
		case "ntasks-per-node", "tasks-per-node":
			count(o, &c.srun.tasksPerNode)
		case "cpus-per-task":
			count(o, &c.srun.cpus)
		case "distribution":
			if j.distribution = o.value; !o.known {
				c.change("srun --distribution", "the value is known only to a shell")
				j.distribution = ""
			}
		case "container-image", "environment":
			j.image, j.runtime = o.value, map[string]string{"container-image": "pyxis", "environment": "edf"}[o.name]
			c.inContainer = true
			if !o.known || o.value == "" || !isValidText(o.value) {
				c.change("srun --"+o.name, "the image is known only to a shell: set setup.container.image")
				j.image = "IMAGE"
			}
		case "container-mounts":
			if !o.known {
				c.change("srun --container-mounts", "the directories are known only to a shell: set setup.container.mounts")
				continue
			}
			for _, m := range strings.Split(o.value, ",") {
				c.addMount(m, "--container-mounts="+m)
			}
		case "container-workdir", "container-name", "container-save", "container-env", "container-mount-home", "no-container-mount-home", "container-writable", "container-readonly",
			"container-remap-root", "no-container-remap-root", "container-entrypoint", "no-container-entrypoint", "module":
			if !slices.ContainsFunc(options, func(o option) bool { return o.name == "container-image" }) {
				c.note(text, "it needs --container-image")
			} else if o.known && !strings.ContainsAny(o.value, " \t") {
				c.containerOption(o.name, o.value)
			} else {
				c.change(text, "the value is known only to a shell: set setup.container.options")
			}
			if o.name == "container-workdir" {
				c.change(text, "ranks start in command.workdir: set it to the directory in the container")
			}
		case "chdir":
			if !o.known {
				c.change("srun --chdir", "the directory is known only to a shell: set command.workdir")
				continue
			}
			j.shellDir = ""
			if filepath.IsAbs(o.value) {
				j.workdir = o.value
			} else {
				j.workdir = filepath.Join(j.workdir, o.value)
			}
		case "export":
			c.convertExport(o)
		case "input":
			if o.value != "none" && o.value != "/dev/null" {
				c.change(text, "the program has no standard input")
			}
		case "cpu-bind", "cpu_bind", "gpu-bind", "gpu_bind", "mpi":
			if o.known {
				c.r.convertOption(c.line, strings.ReplaceAll(o.name, "_", "-"), o.value)
			} else {
				c.change("srun --"+o.name, "the value is known only to a shell")
			}
		case "nodelist", "exclude", "relative", "multi-prog", "het-group", "pack-group", "pty", "no-allocate", "array", "nodefile":
			c.change(text, "a job file cannot express this option of srun")
		case "gpus", "gpus-per-node", "gpus-per-task", "gres":
			c.convertStepGPUs(o)
		case "kill-on-bad-exit":
		default:
			if slices.Contains(ignoredSrunOptions, o.name) {
				continue
			}
			value := o.name
			if o.value != "" {
				value += "=" + o.value
			}
			if !o.known || !j.addStepOption("--"+value) {
				c.change(text, "a job file cannot express this option of srun")
			}
		}
	}
	return true
}

// hasDirectives reports whether the script has #SBATCH lines.
func (r *reader) hasDirectives() bool { return bytes.Contains(r.src, []byte("#SBATCH")) }

// slurmCount returns the Slurm variable in an option such as --nodes=$SLURM_NNODES, if srun
// uses its value by default.
func slurmCount(o option) (name string, ok bool) {
	if o.known || o.source.word == nil {
		return "", false
	}
	for _, name := range usedVariables(o.source.word) {
		switch name {
		case "SLURM_NNODES", "SLURM_JOB_NUM_NODES", "SLURM_NTASKS", "SLURM_NPROCS", "SLURM_NTASKS_PER_NODE", "SLURM_CPUS_PER_TASK":
			return name, len(usedVariables(o.source.word)) == 1
		}
	}
	return "", false
}

// convertStepGPUs compares the GPUs of a step with the GPUs of the job.
func (c *command) convertStepGPUs(o option) {
	j := c.r.job
	n := 0
	if m := typedCount().FindStringSubmatch(o.value); m != nil && o.known {
		n, _ = strconv.Atoi(m[2])
	}
	switch {
	case n == 0 && o.known && (o.value == "none" || o.value == "gpu:0" || o.value == "0"):
		c.change("srun --"+o.name+"="+o.value, "the program has no GPUs, but the job's ranks have all of them")
	case j.nodeGPUs() == 0:
		if o.known {
			c.r.convertOption(c.line, o.name, o.value)
		}
	case n == 0:
		c.note("srun --"+o.name, "ranks share all GPUs of their node")
	case o.name == "gpus-per-task":
		j.taskGPUs = n
	case o.name == "gpus" && n < j.nodeGPUs()*max(1, j.nodes), o.name != "gpus" && n < j.nodeGPUs():
		c.change("srun --"+o.name+"="+o.value, "the program uses only some of the GPUs of the job")
	}
}

// convertExport converts srun --export.
func (c *command) convertExport(o option) {
	if !o.known {
		c.change("srun --export", "the value is known only to a shell: set variables in [setup.env]")
		return
	}
	parts := strings.Split(o.value, ",")
	for i, part := range parts {
		name, value, assigned := strings.Cut(part, "=")
		switch {
		case assigned && isPlainName(name):
			c.setRankVariable(name, value)
		case strings.EqualFold(part, "ALL"), part == "" && i > 0:
		default:
			c.change("srun --export="+o.value, "ranks inherit the environment of the job")
			return
		}
	}
	if !slices.ContainsFunc(parts, func(s string) bool { return strings.EqualFold(s, "ALL") }) {
		c.change("srun --export="+o.value, "ranks inherit the environment of the job")
	}
}

// convertMpirun converts the options of mpirun. It returns false if the program cannot be
// determined.
func (c *command) convertMpirun(name string) bool {
	args := c.args[1:]
	valued := words("n np c N npernode ppn perhost map-by bind-to hostfile machinefile f H host rank-by env ntasks wdir cpus-per-proc cpus-per-rank report-bindings-to tag-output-to prefix timeout npersocket hosts iface launcher bootstrap")
	for len(args) > 0 {
		a := args[0]
		if !a.known {
			if strings.HasPrefix(strings.TrimPrefix(sourceText(a.word), `"`), "$") || strings.HasPrefix(sourceText(a.word), "-") {
				c.change(sourceText(c.stmt), "cannot tell the options of "+name+" from the program: set command.argv")
				c.r.layout(c)
				return false
			}
			break
		}
		if !strings.HasPrefix(a.text, "-") {
			break
		}
		args = args[1:]
		option, value, has := strings.Cut(strings.TrimLeft(a.text, "-"), "=")
		known := true
		take := func() {
			if !has && len(args) > 0 {
				value, known, args = args[0].text, args[0].known, args[1:]
			}
		}
		switch option {
		case "x", "genv", "mca", "gmca", "env", "pmca", "prtemca":
			take()
			name, v, assigned := strings.Cut(value, "=")
			if option == "mca" || option == "gmca" || option == "genv" || option == "env" || option == "pmca" || option == "prtemca" {
				if len(args) > 0 && !(option == "env" && assigned) {
					if option == "genv" || option == "env" {
						name, v, assigned = value, args[0].text, args[0].known
					} else {
						c.note("mpirun --mca "+value+" "+args[0].text, "srun starts the ranks: set OMPI_MCA_ variables in [setup.env] if the program needs them")
						assigned = false
						name = ""
					}
					args = args[1:]
				}
			}
			if assigned && isPlainName(name) {
				c.setRankVariable(name, v)
			}
			continue
		}
		if slices.Contains(valued, option) {
			take()
		}
		n, err := strconv.Atoi(value)
		isCount := known && err == nil && n > 0 && n <= 1<<20
		switch option {
		case "n", "np", "c", "ntasks":
			if isCount {
				c.srun.tasks = n
			} else {
				c.change(name+" -"+option, "the number is known only to a shell")
			}
		case "npernode", "ppn", "N", "perhost":
			if isCount {
				c.srun.tasksPerNode = n
			} else {
				c.change(name+" -"+option, "the number is known only to a shell")
			}
		case "map-by":
			if fields := strings.Split(value, ":"); fields[0] == "ppr" && len(fields) > 2 && fields[2] == "node" {
				c.srun.tasksPerNode, _ = strconv.Atoi(fields[1])
			} else if fields[0] != "node" && fields[0] != "slot" {
				c.note(name+" --map-by "+value, "srun starts the ranks: use slurm.cpu_bind")
			} else if fields[0] == "node" {
				c.change(name+" --map-by node", "ranks are placed in blocks")
			}
		case "H", "host", "hostfile", "machinefile", "f", "hosts":
			c.note(name+" --"+option, "the ranks run on all nodes of the job")
		case "wdir":
			c.r.job.workdir = value
		case "bind-to", "report-bindings", "allow-run-as-root", "oversubscribe", "tag-output", "display-map", "launcher", "bootstrap", "iface", "prefix", "rank-by", "v", "q", "quiet", "verbose":
		case "":
		default:
			c.change(strings.TrimSpace(name+" -"+option+" "+value), "srun starts the ranks; it has no such option")
		}
	}
	if startsSeveral(args) {
		c.change(sourceText(c.stmt), "it starts several programs: a job file has one program")
	}
	c.inSrun, c.args = true, args
	if c.r.job.slurm["mpi"] == "" {
		c.r.job.setIfValid("mpi", "pmix")
	}
	c.note(name, "srun starts the ranks, with slurm.mpi")
	return len(args) > 0
}

// addMount adds a mount to the job file. option is the same mount as an option of the runtime.
func (c *command) addMount(m, option string) {
	j := c.r.job
	outside, inside, both := strings.Cut(m, ":")
	target, _, _ := strings.Cut(inside, ":")
	if !filepath.IsAbs(outside) && c.r.options.Dir != "" {
		if pwd, known := c.r.knownString("PWD"); known {
			outside = filepath.Join(pwd, outside)
			m = outside
			if both {
				m += ":" + inside
			}
		}
	}
	if filepath.IsAbs(outside) && (!both || strings.HasPrefix(target, "/")) && isValidText(m) && strings.Count(m, ":") < 3 {
		j.mounts = append(j.mounts, m)
		return
	}
	c.change(option, "setup.container.mounts has absolute paths only: set it")
}

// convertContainer converts apptainer exec [options] image. It returns false if the job file
// cannot express the command, which then starts the container itself.
func (c *command) convertContainer(runtime string) bool {
	j := c.r.job
	options, image, program, ok := parseContainer(runtime, c.args[1:])
	if runtime == "shifter" && image.word == nil && j.directiveImage != "" {
		image = arg{text: strings.TrimPrefix(j.directiveImage, "docker:"), known: true}
	}
	if !ok || len(program) == 0 || !image.known || image.text == "" || !isValidText(image.text) || j.image != "" {
		return false
	}
	verb := firstWord(c.args[1:])
	if runtime != "shifter" && verb != "exec" {
		return false // run executes the image's run script
	}
	isRelative := !filepath.IsAbs(image.text) && !strings.Contains(image.text, "://") && runtime != "shifter"
	if isRelative && (j.shellDir != "" || !filepath.IsLocal(filepath.Join(j.workdir, image.text)) && !filepath.IsAbs(j.workdir)) {
		return false
	}
	var mounts, list []string
	for _, o := range options {
		if !o.known || hasSecret("--"+o.name+"="+o.value) && o.name != "env" {
			return false
		}
		switch o.name {
		case "B", "bind":
			for _, m := range strings.Split(o.value, ",") {
				outside, inside, both := strings.Cut(m, ":")
				target, flags, _ := strings.Cut(inside, ":")
				if !filepath.IsAbs(outside) || both && !filepath.IsAbs(target) || flags != "" && flags != "ro" && flags != "rw" || !isValidText(m) {
					return false
				}
				mounts = append(mounts, m)
			}
		case "V", "volume":
			return false
		case "image", "i":
		case "pwd", "cwd", "env-file", "W", "workdir", "H", "home", "contain", "C", "containall", "c", "cleanenv", "e", "no-mount":
			return false // they change the directory or the environment that the ranks see
		case "env":
			if !hasSecret("--env=" + o.value) {
				return false
			}
			variable, secret, _ := strings.Cut(o.value, "=")
			c.r.hideVariable(variable, secret)
			c.r.addSecretName(c.line, variable)
		default:
			text := strings.Repeat("-", min(2, len(o.name))) + o.name
			if o.value != "" {
				text += "=" + o.value
			}
			if strings.ContainsAny(text, " \t") || !isValidText(text) {
				return false
			}
			list = append(list, text)
		}
	}
	if isRelative {
		image.text = filepath.Join(j.workdir, image.text)
	}
	j.image, j.runtime = image.text, runtime
	j.mounts = append(j.mounts, mounts...)
	j.containerOptions = append(j.containerOptions, list...)
	c.inContainer = true
	c.args = program
	return true
}

// convertTorchModule converts python -m torch.distributed.run and its predecessor. It reports
// whether the command is one of them.
func (c *command) convertTorchModule() bool {
	if len(c.args) < 3 || c.args[1].text != "-m" && c.args[1].text != "-u" {
		return false
	}
	i := 1
	if c.args[i].text == "-u" {
		i++
	}
	if i+1 >= len(c.args) || c.args[i].text != "-m" {
		return false
	}
	switch c.args[i+1].text {
	case "torch.distributed.launch":
		if !slices.ContainsFunc(c.args, func(a arg) bool { return a.text == "--use_env" || a.text == "--use-env" }) {
			c.change("torch.distributed.launch", "replaced by torchrun, which sets LOCAL_RANK instead of passing --local_rank")
		}
	case "torch.distributed.run", "torch.distributed.elastic":
	default:
		return false
	}
	c.args = c.args[i+2:]
	c.convertTorchrun()
	return true
}

// torchrunFlags are options of torchrun without a value.
var torchrunFlags = words("standalone no_python m module use_env run_path")

// convertTorchrun converts the arguments of torchrun. It drops the options that ddpbatch sets.
func (c *command) convertTorchrun() {
	j := c.r.job
	j.torchrun = true
	if len(c.prefix) > 0 {
		c.change(sourceText(c.stmt), "the job starts torchrun without "+c.prefix[0].text)
	}
	var before []arg
	nnodes := ""
	for len(c.args) > 0 {
		a := c.args[0]
		text := a.text
		if !a.known {
			text = sourceText(a.word)
		}
		if !strings.HasPrefix(text, "-") {
			break
		}
		c.args = c.args[1:]
		name, value, has := strings.Cut(strings.TrimLeft(text, "-"), "=")
		name = strings.ReplaceAll(name, "-", "_")
		source := a
		known := a.known
		if !has && !slices.Contains(torchrunFlags, name) && len(c.args) > 0 {
			source = c.args[0]
			value, known = source.text, source.known
			c.args = c.args[1:]
		}
		switch name {
		case "nproc_per_node":
			n, err := strconv.Atoi(value)
			switch {
			case known && err == nil && n > 0 && n <= 1<<20:
				j.torchTasks = n
			case j.nodeGPUs() > 0 && (known && (value == "gpu" || value == "auto") || !known && isGPUCount(source)):
				j.torchTasks = j.nodeGPUs()
			default:
				c.change("--nproc_per_node "+value, "the number is known only to a shell: set slurm.tasks_per_node")
			}
		case "nnodes":
			if nnodes = value; !known {
				nnodes = ""
				if names := usedVariables(source.word); !slices.ContainsFunc(names, func(n string) bool { return strings.Contains(n, "NODES") }) {
					c.change("--nnodes", "the number is known only to a shell: slurm.nodes applies")
				}
			}
		case "node_rank", "master_addr", "master_port", "rdzv_id", "rdzv_backend", "rdzv_endpoint", "rdzv_conf", "standalone", "use_env", "local_addr":
		case "max_restarts":
			if value != "0" {
				c.note("--max_restarts "+value, "use restart.max_without_progress, which restarts from the last checkpoint")
			}
		case "redirects", "r", "tee", "t", "log_dir", "logs_specs", "local_ranks_filter", "role", "monitor_interval", "start_method", "virtual_local_rank", "signals_to_handle":
			c.note("--"+name, "the log is in the run directory")
		case "m", "module":
			before = append(before, arg{text: "-m", known: true})
		case "no_python":
			before = append(before, arg{text: "--no_python", known: true})
		default:
			before = append(before, arg{text: "--" + name, known: true})
			if value != "" || !known {
				before = append(before, source)
			}
		}
	}
	if j.torchTasks == 0 {
		j.torchTasks = 1
	}
	c.r.layout(c)
	switch {
	case nnodes == "" || nnodes == strconv.Itoa(max(1, j.nodes)):
	case strings.Contains(nnodes, ":"):
		c.change("--nnodes "+nnodes, "the number of nodes is slurm.nodes")
	default:
		c.change("--nnodes "+nnodes, "torchrun uses all nodes of the job: slurm.nodes is "+strconv.Itoa(max(1, j.nodes)))
	}
	c.useArrayTask()
	c.hideArguments()
	if c.needsShell(before) {
		c.useWorkerShell(before)
		return
	}
	var argv []string
	for _, a := range slices.Concat(before, c.args) {
		v := a.text
		if !a.known || !isValidText(v) {
			if !a.known {
				v = shorten(sourceText(a.word))
			} else {
				v = shorten(v)
			}
			c.change(v, c.r.unknownArgumentReason(a))
		}
		argv = append(argv, v)
	}
	j.argv = argv
	c.useShellDir()
}

// needsShell reports whether only a shell can evaluate the arguments of the script that torchrun
// starts. before are options of torchrun.
func (c *command) needsShell(before []arg) bool {
	isUnknown := func(a arg) bool { return !a.known }
	isShellCode := func(a arg) bool { return a.known && !isValidText(a.text) }
	return !c.isInline && len(c.args) > 0 && (c.args[0].known || plainWord(c.args[0])) && slices.ContainsFunc(c.args, isUnknown) && !slices.ContainsFunc(c.args, isShellCode) && !slices.ContainsFunc(before, isUnknown)
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
func isGPUCount(a arg) bool {
	return a.word != nil && slices.ContainsFunc(usedVariables(a.word), func(n string) bool { return n == "SLURM_GPUS_ON_NODE" || n == "SLURM_GPUS_PER_NODE" })
}

// useShellDir drops a directory that only a shell knows, and adds a note, because torchrun starts
// without a shell.
func (c *command) useShellDir() {
	if c.r.job.shellDir != "" {
		c.change("cd "+c.r.job.shellDir, "the directory is known only to a shell: set command.workdir")
		c.r.job.shellDir = ""
	}
}

// convertInline converts bash -c '...'. It returns false if the shell code is not known.
func (c *command) convertInline() bool {
	if len(c.args) < 3 || !c.args[1].known || !strings.HasPrefix(c.args[1].text, "-") || !strings.HasSuffix(c.args[1].text, "c") || strings.HasPrefix(c.args[1].text, "--") {
		return false
	}
	script := c.args[2]
	if !script.known {
		return false // convertProgram calls joinLines
	}
	file, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(bytes.NewReader([]byte(script.text)), "")
	if err != nil {
		return false
	}
	c.hideInline(file)
	script = c.args[2]
	if len(c.args) == 3 && !c.inContainer && len(file.Stmts) == 1 && len(file.Stmts[0].Redirs) == 0 && !file.Stmts[0].Background {
		if call, ok := file.Stmts[0].Cmd.(*syntax.CallExpr); ok && len(call.Assigns) == 0 && len(call.Args) > 0 {
			if first := call.Args[0].Lit(); first == "torchrun" || first == "exec" && len(call.Args) > 1 && call.Args[1].Lit() == "torchrun" {
				return c.convertInlineTorchrun(call)
			}
		}
	}
	line := strings.TrimSpace(script.text)
	if !isValidText(line) {
		line = sourceText(file)
	}
	if !isValidText(line) || line == "" || strings.Contains(line, "<<") {
		c.change(sourceText(c.stmt), "the shell code contains a here-document or a control character: keep it in a script")
		line = "false"
	}
	c.args[2] = arg{text: line, known: true}
	c.convertProgram()
	return true
}

// joinLines writes the code of bash -c on one line, for example behind a container runtime.
func (c *command) joinLines() {
	for i := 2; i < len(c.args); i++ {
		a := c.args[i]
		if c.args[i-1].text != "-c" || !slices.Contains(words("bash sh"), path.Base(c.args[i-2].text)) {
			continue
		}
		if !a.known {
			if w, ok := singleLine(a.word); ok {
				c.args[i] = arg{word: w}
			}
			continue
		}
		if text, ok := oneLine(strings.TrimSpace(a.text)); ok {
			c.args[i] = arg{text: text, known: true}
		}
	}
}

// singleLine returns a word of shell code in double quotes on one line. ok is false for code in which
// line breaks are significant, and for code in which quotes or backslashes have a meaning for both
// shells.
func singleLine(w *syntax.Word) (line *syntax.Word, ok bool) {
	if w == nil || len(w.Parts) != 1 {
		return nil, false
	}
	q, isQuoted := w.Parts[0].(*syntax.DblQuoted)
	if !isQuoted || q.Dollar {
		return nil, false
	}
	code := strings.ReplaceAll(strings.Trim(sourceText(q), `"`), "\\\n", "")
	if strings.ContainsAny(code, "\"`\\") || strings.Contains(code, "<<") {
		return nil, false
	}
	parse := func(text string) *syntax.File {
		file, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(strings.NewReader(text), "")
		if err != nil {
			return &syntax.File{}
		}
		return file
	}
	parsed := parse(code)
	text := sourceText(parsed)
	if !isValidText(text) || text == "" || strings.Contains(text, `"`) {
		return nil, false
	}
	if len(parsed.Stmts) > 1 && slices.ContainsFunc(parsed.Stmts, isExpansion) {
		return nil, false // an empty value would leave a semicolon without a command
	}
	file := parse(`x "` + text + `"`)
	if len(file.Stmts) != 1 {
		return nil, false
	}
	call, isCall := file.Stmts[0].Cmd.(*syntax.CallExpr)
	if !isCall || len(call.Args) != 2 {
		return nil, false
	}
	return call.Args[1], true
}

// isExpansion reports whether a statement consists of expansions only, so that it may be empty.
func isExpansion(s *syntax.Stmt) bool {
	c, ok := s.Cmd.(*syntax.CallExpr)
	return ok && len(c.Assigns) == 0 && !slices.ContainsFunc(c.Args, func(w *syntax.Word) bool {
		return slices.ContainsFunc(w.Parts, func(p syntax.WordPart) bool { _, literal := p.(*syntax.Lit); return literal })
	})
}

// convertInlineTorchrun converts bash -c 'torchrun ...', which srun starts on each node.
func (c *command) convertInlineTorchrun(call *syntax.CallExpr) bool {
	vars := c.r.vars
	c.r.vars = map[string]expand.Variable{}
	for name, v := range vars {
		if c.r.exported[name] || name == "SLURM_NNODES" || name == "SLURM_JOB_NUM_NODES" || name == "HOME" || name == "USER" {
			c.r.vars[name] = v
		}
	}
	c.args, c.isInline = c.r.args(call.Args), true
	for len(c.args) > 0 && c.args[0].text != "torchrun" {
		c.args = c.args[1:]
	}
	if len(c.args) > 0 {
		c.args = c.args[1:]
	}
	c.convertTorchrun()
	c.r.vars = vars
	return true
}

// hideInline hides secrets in the code of bash -c. Their exports become names in setup.secrets.
func (c *command) hideInline(file *syntax.File) {
	if !c.r.isSuspicious(sourceText(file)) {
		return
	}
	var kept []*syntax.Stmt
	for _, s := range file.Stmts {
		d, ok := s.Cmd.(*syntax.DeclClause)
		if !ok || d.Variant.Value != "export" {
			kept = append(kept, s)
			continue
		}
		var rest []*syntax.Assign
		for _, a := range d.Args {
			if a.Name != nil && a.Value != nil && isSecret(a.Name.Value, strings.Trim(sourceText(a.Value), `"'`)) {
				c.r.hideVariable(a.Name.Value, strings.Trim(sourceText(a.Value), `"'`))
				c.r.addSecretName(c.line, a.Name.Value)
				continue
			}
			rest = append(rest, a)
		}
		if d.Args = rest; len(rest) > 0 {
			kept = append(kept, s)
		}
	}
	file.Stmts = kept
	text := sourceText(file)
	if c.r.isSuspicious(text) || text == "" {
		c.change("bash -c", "the code may contain a secret, which a job file must not contain: keep it in a script that only you can read")
		text = "false"
	}
	c.args[2] = arg{text: text, known: true}
}

// rankVariables differ between the ranks of a job, or between the batch script and its ranks.
var rankVariables = words("SLURM_PROCID SLURM_LOCALID SLURM_NODEID SLURM_GTIDS SLURM_STEP_ID SLURM_STEPID SLURM_TASK_PID RANDOM SRANDOM SECONDS BASHPID HOSTNAME EPOCHSECONDS EPOCHREALTIME LINENO SLURMD_NODENAME SLURM_TASKS_PER_NODE PPID BASH_SOURCE FUNCNAME SHLVL")

// jobVariables are variables of Slurm that are equal in the batch script and in all ranks.
var jobVariables = words(`SLURM_JOB_ID SLURM_JOBID SLURM_JOB_NODELIST SLURM_NODELIST SLURM_JOB_NAME SLURM_SUBMIT_DIR SLURM_ARRAY_JOB_ID SLURM_ARRAY_TASK_ID SLURM_JOB_PARTITION SLURM_CLUSTER_NAME SLURM_JOB_USER SLURM_TMPDIR SLURM_JOB_ACCOUNT SLURM_JOB_QOS
	SLURM_RESTART_COUNT SLURM_JOB_NUM_NODES SLURM_NNODES SLURM_JOB_UID SLURM_SUBMIT_HOST SLURM_JOB_END_TIME SLURM_JOB_START_TIME SLURM_CPUS_ON_NODE SLURM_GPUS_ON_NODE`)

// convertProgram uses the remaining words as argv. If only a shell can evaluate one of them, a
// shell on the node runs the line.
func (c *command) convertProgram() {
	r := c.r
	r.layout(c)
	c.args = slices.Concat(c.prefix, c.args)
	c.useArrayTask()
	c.hideArguments()
	c.joinLines()
	var argv []string
	shell := r.job.shellDir != ""
	for _, a := range c.args {
		shell = shell || !a.known || !isValidText(a.text)
		argv = append(argv, a.text)
	}
	if !shell {
		r.job.argv = argv
		return
	}
	r.job.argv = []string{"bash", "-c", c.shellLine("exec ")}
}

// shellLine returns shell code that starts the program with the remaining words. start is its
// beginning.
func (c *command) shellLine(start string) string {
	r := c.r
	c.evaluateOnce()
	start = c.restoreArrays() + start
	parts := make([]string, len(c.args))
	var names []string
	for i, a := range c.args {
		parts[i] = a.shellText()
		if !a.known {
			names = append(names, usedVariables(a.word)...)
		}
	}
	switch {
	case r.expansion != "":
		c.change(r.expansion, "the shell of each rank, which completes the command line, does not have this option")
	case r.scriptVars["IFS"]:
		c.change("IFS", "the shell of each rank, which completes the command line, splits words at spaces")
	}
	line := start + strings.Join(parts, " ")
	if r.job.shellDir != "" {
		line = "cd " + r.job.shellDir + " && " + line
		r.job.shellDir = ""
	}
	if !isValidText(line) {
		c.change(sourceText(c.stmt), "it contains a control character: set command.argv")
		line = "false"
	}
	r.checkRankVariables(c.line, names)
	return line
}

// evaluatedReason is the reason of a note about an argument that the setup evaluates. The name of the
// variable follows.
const evaluatedReason = "the setup evaluates it once, as $"

// evaluateOnce moves arguments that have different values in the script and in its ranks, such as
// $(date), to variables of the setup, which runs once.
func (c *command) evaluateOnce() {
	r := c.r
	if r.job.once {
		return // the program runs where the script did
	}
	count := 0
	for i, a := range c.args {
		if a.known || a.word == nil || r.usesHiddenVariable(a.word) || r.isSuspicious(sourceText(a.word)) {
			continue
		}
		names := usedVariables(a.word)
		differs := func(name string) bool {
			isElement := strings.HasSuffix(name, "[]")
			return name == "$(" || name == "$0" || isElement || slices.Contains(rankVariables, name) || isSlurmVariable(name) && !slices.Contains(jobVariables, name)
		}
		if !slices.ContainsFunc(names, differs) || slices.ContainsFunc(names, func(name string) bool {
			return slices.Contains(words("@ ? ! $! $$"), name) || name == "$0" && !r.hasDirectives()
		}) {
			continue
		}
		next := count + 1
		for r.scriptVars[fmt.Sprintf("ARG%d", next)] {
			next++
		}
		name := fmt.Sprintf("ARG%d", next)
		use, ok := variableWord(a.word, name)
		if !ok {
			continue
		}
		count = next
		text := "export " + name + "=" + sourceText(a.word)
		r.addStep(step{kind: stepRun, line: c.line, text: text, uses: names})
		r.exported[name] = true
		r.note(c.line, sourceText(a.word), evaluatedReason+name)
		c.args[i] = arg{word: use}
	}
}

// variableWord returns a word that expands to the same arguments as w if the variable name has the
// value of w. ok is false if no such word exists.
func variableWord(w *syntax.Word, name string) (use *syntax.Word, ok bool) {
	quoted, splits := false, false
	for _, p := range w.Parts {
		switch p := p.(type) {
		case *syntax.Lit:
			if strings.ContainsAny(p.Value, "*?[]{}~\\") {
				return nil, false
			}
		case *syntax.DblQuoted, *syntax.SglQuoted:
			quoted = true
		case *syntax.ParamExp, *syntax.CmdSubst, *syntax.ArithmExp:
			splits = true
		default:
			return nil, false
		}
	}
	if quoted && splits || isList(w) {
		return nil, false
	}
	param := &syntax.ParamExp{Short: true, Param: &syntax.Lit{Value: name}}
	if splits {
		return &syntax.Word{Parts: []syntax.WordPart{param}}, true
	}
	return &syntax.Word{Parts: []syntax.WordPart{&syntax.DblQuoted{Parts: []syntax.WordPart{param}}}}, true
}

// restoreArrays returns shell code that sets the arrays that the arguments expand to their values in
// the setup. The environment has no arrays, so the setup exports their declarations.
func (c *command) restoreArrays() (code string) {
	r := c.r
	for _, a := range c.args {
		if a.known || a.word == nil || !isList(a.word) || r.usesHiddenVariable(a.word) {
			continue
		}
		for _, name := range usedVariables(a.word) {
			name, isArray := strings.CutSuffix(name, "[]")
			declaration := name + "_ARRAY"
			if !isArray || r.arrays[name] || r.scriptVars[declaration] || !r.scriptVars[name] {
				continue
			}
			r.arrays[name], r.exported[declaration] = true, true
			r.addStep(step{kind: stepRun, line: c.line, text: "export " + declaration + "=$(declare -p " + name + ")", uses: []string{name}})
			r.note(c.line, sourceText(a.word), "the setup exports the array as $"+declaration)
			code += `eval "$` + declaration + `" && `
		}
	}
	return code
}

// isList reports whether a word expands to all elements of an array, such as "${ARGS[@]}".
func isList(w *syntax.Word) bool {
	found := false
	syntax.Walk(w, func(n syntax.Node) bool {
		if p, ok := n.(*syntax.ParamExp); ok && p.Index != nil {
			index, isWord := p.Index.(*syntax.Word)
			found = found || isWord && (index.Lit() == "@" || index.Lit() == "*")
		}
		return !found
	})
	return found
}

// useArrayTask replaces $SLURM_ARRAY_TASK_ID with the placeholder {array_task}, which needs no
// shell.
func (c *command) useArrayTask() {
	const name = "SLURM_ARRAY_TASK_ID"
	if c.r.job.array == "" {
		return
	}
	for i, a := range c.args {
		if a.known || !slices.Equal(usedVariables(a.word), []string{name}) {
			continue
		}
		plain := true
		syntax.Walk(a.word, func(n syntax.Node) bool {
			switch n := n.(type) {
			case *syntax.ArithmExp:
				plain = false
			case *syntax.ParamExp:
				plain = plain && n.Exp == nil && n.Slice == nil && n.Repl == nil && !n.Length && n.Index == nil
			}
			return plain
		})
		if !plain {
			continue
		}
		c.r.setString(name, "{array_task}")
		if list, known := c.r.fields(a.word); known && len(list) == 1 {
			c.args[i] = arg{text: list[0], known: true, word: a.word}
		}
		delete(c.r.vars, name)
	}
}

// checkRankVariables adds a note for each variable that has a different value in the ranks. It records
// the other variables of the script, which the setup must export.
func (r *reader) checkRankVariables(line int, names []string) {
	for _, name := range names {
		plain := strings.TrimSuffix(name, "[]")
		switch {
		case r.arrays[plain]:
		case r.job.once && (name == "$(" || isSlurmVariable(name)):
			// The program runs where the script did, with the same variables.
		case plain == name && slices.Contains(names, name+"[]"):
		case name == "!":
			r.change(line, "${!...}", "ranks do not have the variable that it names")
		case name == "$(":
			r.change(line, "$(...)", "the script evaluates it once, but each rank of the job would evaluate it")
		case name == "@" || name == "$0":
			r.change(line, "$1, $@", "a job has no command-line arguments")
		case name == "?" || name == "$!" || name == "$$":
			r.change(line, "$?, $!, $$", "ranks do not have the parameters of the script's shell")
		case plain != name:
			r.change(line, "${"+plain+"[...]}", "ranks do not inherit arrays")
		case slices.Contains(rankVariables, name):
			r.change(line, "$"+name, "the script evaluates it once, but it differs between ranks")
		case isSlurmVariable(name) && !slices.Contains(jobVariables, name):
			r.change(line, "$"+name, "its value in the ranks of the job may differ from its value in the script")
		case r.hidden[name]:
			r.addSecretName(line, name)
		case isSlurmVariable(name), isManaged(name), name == "PWD":
		default:
			r.addNeeded([]string{name})
		}
	}
}
