package sbatch

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"mvdan.cc/sh/v3/syntax"

	"github.com/ddpbatch/ddpbatch/internal/lazyregexp"
)

// srunValued are the long options of srun that have a value, possibly as the next word
// (srun(1), Slurm 25.05, and the plugins pyxis and the container engine of CSCS).
var srunValued = words(`accel-bind account acctg-freq array batch bb bbf bcast-exclude begin cluster-constraint clusters comment compress-level container
	constraint container-id core-spec cores-per-socket cpu-freq cpus-per-gpu cpus-per-task cpu_bind chdir deadline delay-boot dependency distribution epilog error
	exclude export extra extra-node-info gid gpu-bind gpu-freq gpus gpus-per-node gpus-per-socket gpus-per-task gpu_bind gres gres-flags group
	het-group hint input job-name jobid licenses mail-type mail-user mcs-label mem mem-bind mem-per-cpu mem-per-gpu mem_bind mincpus mpi msg-timeout network nodefile
	nodelist nodes ntasks ntasks-per-core ntasks-per-gpu ntasks-per-node ntasks-per-socket open-mode output pack-group partition power prefer priority
	profile prolog qos relative reservation resv-ports-count segment send-libs-to signal slurmd-debug sockets-per-node
	spread-job-by stepmgr-name switches task-epilog task-prolog tasks-per-node thread-spec threads threads-per-core time time-min tmp tree-width tres-bind tres-per-task uid
	use-min-nodes-of wait wckey cpu-bind container-image container-mounts container-workdir container-name container-save container-env container-entrypoint-log environment cpus-per-socket
	sockets-per-board core-specialization cluster image volume module entrypoint`)

// srunFlags are the long options of srun without a value, or with a value only after "=".
var srunFlags = words(`allocate bcast contiguous disable-status exact exclusive external-launcher get-user-env hold immediate interactive kill-on-bad-exit label mpi-combine
	multi-prog no-allocate no-bell no-kill nice no-requeue overcommit overlap oversubscribe preserve-env propagate pty quiet quit-on-interrupt reboot requeue
	resv-ports send-libs share slurmd-debug-on spread-job stepmgr test-only treat-het unbuffered use-min-nodes verbose version wait-all-nodes whole x11 help usage
	container-writable container-readonly container-mount-home no-container-mount-home container-remap-root no-container-remap-root container-entrypoint no-container-entrypoint debugger-test`)

// srunShortValued and srunShortFlags are the one-letter options of srun.
const (
	srunShortValued = "ABcCdDeGiJLMmnNoprStTwWxqP"
	srunShortFlags  = "aEhHIkKlOQRsuvVXZ"
)

// srunShortNames maps one-letter options to long names.
var srunShortNames = map[string]string{"A": "account", "B": "extra-node-info", "c": "cpus-per-task", "C": "constraint", "d": "dependency", "D": "chdir", "e": "error", "G": "gpus", "i": "input",
	"J": "job-name", "L": "licenses", "M": "clusters", "m": "distribution", "n": "ntasks", "N": "nodes", "o": "output", "p": "partition", "r": "relative", "S": "core-spec", "t": "time", "T": "threads",
	"w": "nodelist", "W": "wait", "x": "exclude", "q": "qos", "E": "preserve-env", "H": "hold", "I": "immediate", "k": "no-kill", "K": "kill-on-bad-exit", "l": "label", "O": "overcommit",
	"Q": "quiet", "s": "oversubscribe", "u": "unbuffered", "v": "verbose", "X": "disable-status", "Z": "no-allocate", "a": "attach", "P": "dependency", "h": "help", "V": "version", "R": "no-rotate"}

// parseSrun splits the arguments of srun into options and the program. ok is false if an option
// is not known, because the program may then start at any word.
func parseSrun(args []arg) (options []option, program []arg, ok bool) {
	for len(args) > 0 {
		a := args[0]
		if !a.known {
			name, isOption := unknownOption(a)
			if !isOption {
				return options, args, plainWord(a)
			}
			options = append(options, option{name: name, source: []arg{a}})
			args = args[1:]
			continue
		}
		if !strings.HasPrefix(a.text, "-") || a.text == "-" {
			return options, args, true
		}
		args = args[1:]
		if a.text == "--" {
			return options, args, true
		}
		if long, isLong := strings.CutPrefix(a.text, "--"); isLong {
			name, value, has := strings.Cut(long, "=")
			o := option{name: completeOption(name), value: value, known: true, source: []arg{a}}
			if isFlag := has || slices.Contains(srunFlags, o.name); o.name == "" || !isFlag && len(args) == 0 {
				return options, args, false
			} else if !isFlag {
				args = o.takeValue(args)
			}
			options = append(options, o)
			continue
		}
		for letters := a.text[1:]; letters != ""; letters = letters[1:] {
			letter := letters[:1]
			o := option{name: srunShortNames[letter], known: true, source: []arg{a}}
			switch {
			case strings.Contains(srunShortValued, letter):
				if o.value = strings.TrimPrefix(letters[1:], "="); o.value == "" && len(args) == 0 {
					return options, nil, false
				} else if o.value == "" {
					args = o.takeValue(args)
				}
				letters = letter
			case letter == "K" && strings.Trim(letters[1:], "=01") == "":
				o.value, letters = strings.TrimPrefix(letters[1:], "="), letter
			case strings.Contains(srunShortFlags, letter):
			default:
				return options, args, false
			}
			options = append(options, o)
		}
	}
	return options, nil, true
}

// completeOption returns the full name of a long option, which may be abbreviated, or an empty
// string.
func completeOption(name string) string {
	if slices.Contains(srunValued, name) || slices.Contains(srunFlags, name) {
		return name
	}
	found := ""
	for _, list := range [][]string{srunValued, srunFlags} {
		for _, n := range list {
			if strings.HasPrefix(n, name) && len(name) > 2 {
				if found != "" && found != n {
					return ""
				}
				found = n
			}
		}
	}
	return found
}

// unknownOption returns the name of an option such as --nodes=$N.
func unknownOption(a arg) (name string, ok bool) {
	text := sourceText(a.word)
	long, isLong := strings.CutPrefix(text, "--")
	name, _, has := strings.Cut(long, "=")
	if isLong && has && !strings.ContainsAny(name, "$`\"'") {
		name = completeOption(name)
		return name, name != ""
	}
	if len(text) > 2 && text[0] == '-' && strings.Contains(srunShortValued, text[1:2]) {
		return srunShortNames[text[1:2]], true
	}
	return "", false
}

// plainWord reports whether an unknown word is certainly a single word that does not start with
// "-", so that it is the program.
func plainWord(a arg) bool {
	text := strings.TrimPrefix(sourceText(a.word), `"`)
	return a.startsProgram || startsDirectory(a.word) || isSearch().MatchString(strings.TrimSuffix(text, `"`)) || strings.HasPrefix(text, "/") || strings.HasPrefix(text, "./") || strings.HasPrefix(text, "~") || strings.HasSuffix(strings.Trim(text, `"`), ".sh") || strings.HasSuffix(strings.Trim(text, `"`), ".py") || strings.HasSuffix(strings.Trim(text, `"`), "/python")
}

// isSearch matches a search for a program in PATH.
var isSearch = lazyregexp.New(`^\$\((?:which|command -v|type -p) [\w.-]+\)$`)

// startsDirectory reports whether a word is a path below a directory in a variable, as in $ENV/bin/python. An option
// does not have a variable at its start.
func startsDirectory(w *syntax.Word) bool {
	parts := w.Parts
	if q, ok := parts[0].(*syntax.DblQuoted); ok {
		parts = append(slices.Clone(q.Parts), parts[1:]...)
	}
	if len(parts) < 2 {
		return false
	}
	p, isVariable := parts[0].(*syntax.ParamExp)
	path, isLiteral := parts[1].(*syntax.Lit)
	return isVariable && p.Param != nil && isPlainName(p.Param.Value) && p.Exp == nil && p.Index == nil && isLiteral && strings.HasPrefix(path.Value, "/") && !hasNode(w, isListExpansion)
}

// isListExpansion reports whether a part of a word may expand to several words also in quotes.
func isListExpansion(n syntax.Node) bool {
	p, ok := n.(*syntax.ParamExp)
	return ok && (p.Index != nil || p.Param != nil && p.Param.Value == "@")
}

// requestOptions are options of srun that request nodes, if the script has no directives.
var requestOptions = words("partition account qos time gres gpus gpus-per-node mem mem-per-cpu constraint job-name nodes ntasks ntasks-per-node cpus-per-task exclusive reservation")

// ignoredSrunOptions are options of srun that the launcher sets or makes unnecessary.
var ignoredSrunOptions = words(`label unbuffered kill-on-bad-exit output error overlap exact exclusive wait quiet verbose job-name open-mode mpi-combine oversubscribe
	interactive immediate no-kill disable-status quit-on-interrupt propagate no-requeue requeue mem mem-per-cpu mem-per-gpu time partition account qos constraint
	slurmd-debug comment wckey reservation image licenses no-bell preserve-env`)

// notExpressible is the reason of a note about an option that neither a key nor slurm.step_options can contain.
const notExpressible = "a job file cannot express this option of srun"

// convertSrun converts the options of srun. It returns false if the program cannot be
// determined.
func (c *command) convertSrun() bool {
	options, program, ok := parseSrun(c.args[1:])
	if !c.takeProgram("srun", program, ok && len(program) > 0) {
		return false
	}
	if !c.r.hasDirectives() { // srun requests the nodes itself
		for _, o := range options {
			if slices.Contains(requestOptions, o.name) {
				c.convertShared(o, ": set the key of [slurm]")
			}
		}
		c.r.job.divideTotals()
	}
	hasImage := slices.ContainsFunc(options, func(o option) bool { return o.name == "container-image" })
	for _, o := range options {
		c.convertStepOption(o, hasImage)
	}
	c.multiplyGPUTasks()
	if hasImage && c.containerDir == "" {
		c.note("srun --container-image", "without --container-workdir, srun starts in the working directory of the image; ranks start in command.workdir")
	}
	if c.containerDir != "" { // also with --chdir
		c.r.job.shellDir = c.containerDir
	}
	return true
}

// convertStepOption converts an option of srun. hasImage reports whether srun has --container-image.
func (c *command) convertStepOption(o option, hasImage bool) {
	j, text := c.r.job, strings.TrimSpace("srun --"+o.name+" "+o.value)
	switch o.name {
	case "nodes":
		c.setStepCount(o, &c.srun.nodes)
	case "ntasks":
		c.setStepCount(o, &c.srun.tasks)
	case "ntasks-per-node", "tasks-per-node":
		c.setStepCount(o, &c.srun.tasksPerNode)
	case "cpus-per-task":
		c.setStepCount(o, &c.srun.cpus)
	case "ntasks-per-gpu":
		c.setStepCount(o, &c.srun.gpuTasks)
	case "cpus-per-gpu":
		c.setStepCount(o, &c.srun.gpuCPUs)
	case "tres-per-task":
		c.convertStepResources(o, hasImage)
	case "hint":
		c.convertStepHint(o)
	case "gpus", "gpus-per-node", "gpus-per-task", "gres":
		c.convertStepGPUs(o)
	case "exact", "exclusive": // the step gets no more cores than its tasks request
		c.srun.exact = true
	case "distribution":
		j.distribution = ""
		c.convertShared(o, "")
	case "cpu-bind", "cpu_bind", "gpu-bind", "gpu_bind", "mpi":
		c.convertShared(o, "")
	case "container-image", "environment":
		c.convertImage(o)
	case "container-mounts":
		c.convertMounts(o)
	case "container-workdir", "container-name", "container-save", "container-env", "container-mount-home", "no-container-mount-home", "container-writable", "container-readonly",
		"container-remap-root", "no-container-remap-root", "container-entrypoint", "no-container-entrypoint", "module":
		c.convertImageOption(o, text, hasImage)
	case "chdir":
		c.convertStepDirectory(o)
	case "export":
		c.convertStepExport(o)
	case "input":
		if o.value != "none" && o.value != "/dev/null" {
			c.change(text, noInput)
		}
	case "kill-on-bad-exit":
		if !o.known || o.value == "0" {
			c.change(text, "if a rank fails, ddpbatch stops the others")
		}
	case "jobid":
		if o.known {
			c.change(text, "the program runs in a different job")
		}
	case "nodelist", "exclude", "relative", "multi-prog", "het-group", "pack-group", "pty", "no-allocate", "array", "nodefile":
		c.change(text, notExpressible)
	default:
		if !slices.Contains(ignoredSrunOptions, o.name) && (!o.known || !j.addStepOption(o.String())) {
			c.change(text, notExpressible)
		}
	}
}

// convertShared converts an option of srun that sbatch also has. fix is the end of the note about an
// unknown value.
func (c *command) convertShared(o option, fix string) {
	if !o.known {
		c.change("srun --"+o.name, "the value is known only to a shell"+fix)
		return
	}
	o.name = strings.ReplaceAll(o.name, "_", "-")
	c.r.convertOption(directive{o, c.line})
}

// setStepCount sets a number of the step. An option such as --nodes=$SLURM_NNODES repeats the default of srun.
func (c *command) setStepCount(o option, field *int) {
	if n, ok := parseCount(o.value); ok {
		*field = n
	} else if !isDefaultCount(o) {
		c.change("srun --"+o.name, "the number is known only to a shell")
	}
}

// isDefaultCount reports whether the value of an option is a variable that srun reads anyway.
func isDefaultCount(o option) bool {
	if o.known {
		return false
	}
	names := usedVariables(o.valueWord())
	return len(names) == 1 && slices.Contains(words("SLURM_NNODES SLURM_JOB_NUM_NODES SLURM_NTASKS SLURM_NPROCS SLURM_NTASKS_PER_NODE SLURM_CPUS_PER_TASK"), names[0])
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
	case j.nodeGPUs() == 0 && !o.known:
		c.change("srun --"+o.name, "the number is known only to a shell: set slurm.gpus_per_node")
	case j.nodeGPUs() == 0:
		c.r.convertOption(directive{o, c.line})
		if o.name == "gpus-per-task" {
			c.srun.taskGPUs = n
		}
	case n == 0:
		c.note("srun --"+o.name, "ranks share all GPUs of their node")
	case o.name == "gpus-per-task":
		j.taskGPUs = n
	case o.name == "gpus" && n < j.nodeGPUs()*max(1, j.nodes), o.name != "gpus" && n < j.nodeGPUs():
		c.change("srun --"+o.name+"="+o.value, "the program uses only some of the GPUs of the job")
	}
}

// multiplyGPUTasks sets the number of tasks that srun --ntasks-per-gpu starts without --ntasks.
func (c *command) multiplyGPUTasks() {
	j := c.r.job
	if c.srun.gpuTasks == 0 || c.srun.tasks > 0 {
		return
	}
	option := "srun --ntasks-per-gpu=" + strconv.Itoa(c.srun.gpuTasks)
	nodes := max(1, j.nodes)
	gpus := cmp.Or(j.allGPUs, j.nodeGPUs()*nodes)
	tasks := gpus * c.srun.gpuTasks
	given := cmp.Or(j.allTasks, j.tasks*nodes)
	switch {
	case gpus == 0:
		c.change(option, "the script requests no GPUs: set slurm.gpus_per_node and slurm.tasks_per_node")
	case given > 0 && given != tasks:
		c.change(option, fmt.Sprintf("it contradicts the directives, which request %d tasks: set slurm.tasks_per_node", given))
	default:
		c.srun.tasks = tasks
	}
}

// convertStepResources converts srun --tres-per-task.
func (c *command) convertStepResources(o option, hasImage bool) {
	options, ok := taskResources(o)
	if !ok || !o.known {
		c.change("srun "+o.String(), resourcesFix)
		return
	}
	for _, part := range options {
		c.convertStepOption(part, hasImage)
	}
}

// convertStepHint converts srun --hint. The job file has one hint, for the job and the step.
func (c *command) convertStepHint(o option) {
	if given := c.r.job.raw["hint"]; given == "" || !o.known {
		c.convertShared(o, ": set slurm.hint")
	} else if given != quote(o.value) {
		c.note("srun --hint="+o.value, "slurm.hint has the value of the directive")
	}
}

// setGPUCores sets the number of cores of each rank that srun --cpus-per-gpu requests. gpus and ranks are the
// numbers per node.
func (c *command) setGPUCores(gpus, ranks int) {
	switch cores := gpus * c.srun.gpuCPUs; {
	case c.srun.gpuCPUs == 0 || c.srun.cpus > 0:
	case gpus == 0 || cores%ranks != 0:
		c.change("srun --cpus-per-gpu="+strconv.Itoa(c.srun.gpuCPUs), "the number of GPUs of each rank is unknown: set slurm.cpus_per_task")
	default:
		c.srun.cpus = cores / ranks
	}
}

// convertStepDirectory converts srun --chdir.
func (c *command) convertStepDirectory(o option) {
	j := c.r.job
	switch {
	case !o.known:
		c.change("srun --chdir", unknownDirectory)
		return
	case filepath.IsAbs(o.value):
		j.workdir, j.shellDir = o.value, ""
	case j.shellDir != "":
		j.shellDir += "/" + quoteWord(o.value)
	default:
		j.workdir = filepath.Join(j.workdir, o.value)
	}
}

// plainExports matches a value of srun --export such as ALL,A=$B, which a shell evaluates like assignments.
var plainExports = lazyregexp.New(`^(?:ALL|[A-Za-z_]\w*=[\w./:${}+@%-]*)(?:,(?:ALL|[A-Za-z_]\w*=[\w./:${}+@%-]*))*$`)

// convertStepExport converts srun --export.
func (c *command) convertStepExport(o option) {
	text := o.value
	if !o.known {
		text = o.shellValue()
	}
	parts := strings.Split(text, ",")
	for i, part := range parts {
		name, value, assigned := strings.Cut(part, "=")
		switch {
		case !o.known && (!plainExports().MatchString(text) || isManaged(name) || isSecretName(name)):
			c.change("srun --export", "the value is known only to a shell: set variables in [setup.env]")
			return
		case !o.known && assigned: // the setup evaluates it once
			c.r.exported[name] = true
			c.r.addStep(step{kind: stepRun, line: c.line, text: "export " + part, uses: usedVariables(o.valueWord())})
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
