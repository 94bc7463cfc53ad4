package sbatch

import (
	"bytes"
	"path"
	"slices"
	"strconv"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// launcherCommands are commands that start programs, including wrappers such as numactl.
var launcherCommands = map[string]bool{"srun": true, "mpirun": true, "mpiexec": true, "torchrun": true, "accelerate": true, "deepspeed": true,
	"apptainer": true, "singularity": true, "exec": true, "time": true, "numactl": true, "nohup": true}

// startsProgram reports whether a command starts the job's program, directly or through a wrapper.
func (r *reader) startsProgram(base string, known bool) bool {
	return known && (launcherCommands[base] || strings.HasPrefix(base, "python") || base == "bash" || base == "sh")
}

// convertLaunch converts the command that starts the program. It adds a note for a second one.
func (r *reader) convertLaunch(s *syntax.Stmt, list []*syntax.Word) {
	if len(r.job.argv) > 0 {
		r.note(r.line(s), sourceText(s), "a job has one command: create a second job file with slurm.dependency")
		return
	}
	for _, redirect := range s.Redirs {
		r.note(r.line(redirect), sourceText(s), "redirections are dropped: the log is in the run directory")
		break
	}
	if s.Background {
		r.note(r.line(s), sourceText(s), "it does not run in the background")
	}
	c := &command{r: r, line: r.line(s), words: list}
	c.unwrap()
}

// A command is a command line that is parsed from the left.
type command struct {
	r     *reader
	line  int
	words []*syntax.Word
}

// peek returns the next word, and whether its value is known.
func (c *command) peek() (string, bool) {
	if len(c.words) == 0 {
		return "", false
	}
	return c.r.word(c.words[0])
}

// takeOptions consumes options up to the first other word and calls take for each. A value is part
// of the option ("--name=value"), or it is the next word if valued returns true. Unknown
// values are empty.
func (c *command) takeOptions(valued func(name string) bool, take func(name, value string)) {
	for len(c.words) > 0 {
		word, known := c.peek()
		if !known {
			if lit, ok := c.words[0].Parts[0].(*syntax.Lit); ok && strings.HasPrefix(lit.Value, "-") && strings.Contains(lit.Value, "=") {
				name, _, _ := strings.Cut(strings.TrimLeft(lit.Value, "-"), "=")
				c.words = c.words[1:]
				take(name, "")
				continue
			}
			return
		}
		if !strings.HasPrefix(word, "-") || word == "-" {
			return
		}
		c.words = c.words[1:]
		if word == "--" {
			return
		}
		name, value, has := strings.Cut(strings.TrimLeft(word, "-"), "=")
		if !has && !strings.HasPrefix(word, "--") && len(name) > 1 && valued(name[:1]) && !valued(name) {
			name, value, has = name[:1], name[1:], true // such as -n4
		}
		if !has && valued(name) && len(c.words) > 0 {
			value, _ = c.peek()
			c.words = c.words[1:]
		}
		take(name, value)
	}
}

// unwrap removes the commands that start the program. The rest becomes argv.
func (c *command) unwrap() {
	for len(c.words) > 0 {
		word, known := c.peek()
		base := path.Base(word)
		switch {
		case !known:
			c.convertProgram()
			return
		case base == "exec" || base == "time" || base == "nohup":
			c.words = c.words[1:]
		case base == "numactl":
			c.words = c.words[1:]
			c.takeOptions(func(string) bool { return false }, func(name, value string) { c.note("--"+name+" "+value, "use slurm.cpu_bind") })
		case base == "srun":
			c.words = c.words[1:]
			c.convertSrun()
		case base == "mpirun" || base == "mpiexec":
			c.words = c.words[1:]
			c.convertMpirun(base)
		case base == "apptainer" || base == "singularity":
			if !c.convertContainer(base) {
				return
			}
		case base == "torchrun":
			c.words = c.words[1:]
			c.convertTorchrun()
			return
		case strings.HasPrefix(base, "python") && c.convertTorchModule():
			return
		case base == "accelerate" || base == "deepspeed":
			c.note(base, "srun starts one process per rank instead, with torchrun's variables; its options remain in argv")
			c.convertProgram()
			return
		case (base == "bash" || base == "sh") && c.convertInline():
			return
		default:
			c.convertProgram()
			return
		}
	}
}

func (c *command) note(what, why string) { c.r.note(c.line, what, why) }

// srunValues are options of srun that have a value.
var srunValues = []string{"ntasks", "nodes", "ntasks-per-node", "cpus-per-task", "gpus-per-task", "gpus-per-node", "gpus", "gres", "cpu-bind", "gpu-bind", "mpi",
	"container-image", "container-mounts", "container-workdir", "container-name", "export", "output", "error", "label", "distribution", "m", "mem", "mem-per-cpu", "time",
	"partition", "account", "job-name", "nodelist", "chdir", "kill-on-bad-exit", "K", "wait", "W", "jobid", "overlap", "input", "ntasks-per-socket", "hint", "threads-per-core"}

func (c *command) convertSrun() {
	j := c.r.job
	noValue := map[string]bool{"label": true, "l": true, "kill-on-bad-exit": true, "K": true, "overlap": true, "exact": true, "u": true, "unbuffered": true, "exclusive": true}
	c.takeOptions(func(name string) bool {
		return (shortOptions[name] != "" || slices.Contains(srunValues, name)) && !noValue[name]
	}, func(name, value string) {
		if long := shortOptions[name]; long != "" {
			name = long
		}
		switch name {
		case "ntasks", "nodes", "ntasks-per-node", "cpus-per-task":
			field := map[string]*int{"ntasks": &j.allTasks, "nodes": &j.nodes, "ntasks-per-node": &j.tasks, "cpus-per-task": &j.cpus}[name]
			if n, err := strconv.Atoi(value); err == nil && n > 0 && n <= 1<<20 {
				*field = n
				if name == "ntasks" {
					j.tasks = 0
				}
				j.divideTotals()
			} else {
				c.note("srun --"+name, "the number is known only to a shell")
			}
		case "container-image":
			j.image, j.runtime = value, "pyxis"
		case "container-mounts":
			j.mounts = append(j.mounts, strings.Split(value, ",")...)
		case "gpus-per-task", "gpus-per-node", "gpus", "gres", "cpu-bind", "gpu-bind", "mpi":
			c.r.convertOption(c.line, name, value)
			j.divideTotals()
		case "label", "l", "unbuffered", "u", "kill-on-bad-exit", "K", "export", "output", "error", "overlap", "exact", "exclusive", "wait", "W":
			// the launcher sets these or makes them unnecessary
		default:
			c.note(strings.TrimSpace("srun --"+name+" "+value), "the launcher sets its own srun options; add others to [step] options of a site profile")
		}
	})
}

func (c *command) convertMpirun(name string) {
	j := c.r.job
	valued := func(n string) bool {
		return slices.Contains([]string{"n", "np", "c", "N", "npernode", "ppn", "map-by", "bind-to", "x", "hostfile", "machinefile", "f", "H", "host", "rank-by", "genv", "env", "ntasks"}, n)
	}
	c.takeOptions(valued, func(option, value string) {
		switch option {
		case "n", "np", "c":
			if n, err := strconv.Atoi(value); err == nil && n > 0 && n <= 1<<20 && j.tasks == 0 {
				j.allTasks = n
				j.divideTotals()
			}
		case "npernode", "ppn", "N":
			if n, err := strconv.Atoi(value); err == nil && n > 0 && n <= 1<<20 {
				j.tasks = n
			}
		case "genv", "mca":
			if len(c.words) > 0 {
				v, _ := c.peek()
				value += " " + v
				c.words = c.words[1:]
			}
			c.note(name+" -"+option+" "+value, "srun starts the ranks; set variables in [setup.env]")
		case "hostfile", "machinefile", "f", "H", "host", "allow-run-as-root", "oversubscribe":
		default:
			c.note(strings.TrimSpace(name+" -"+option+" "+value), "srun starts the ranks; set variables in [setup.env]")
		}
	})
	c.note(name, "srun starts the ranks, one for each process")
}

// convertContainer converts apptainer exec [options] image. It reports whether to continue with
// the command in the container.
func (c *command) convertContainer(runtime string) bool {
	j := c.r.job
	c.words = c.words[1:]
	if verb, _ := c.peek(); verb != "exec" && verb != "run" {
		c.note(runtime, "only exec is converted")
		c.convertProgram()
		return false
	}
	c.words = c.words[1:]
	c.takeOptions(func(n string) bool {
		return slices.Contains([]string{"B", "bind", "env", "pwd", "H", "home", "W", "workdir", "overlay", "docker-username", "docker-password"}, n)
	}, func(name, value string) {
		switch name {
		case "B", "bind":
			j.mounts = append(j.mounts, strings.Split(value, ",")...)
		default:
			c.containerOption(name, value)
		}
	})
	image, known := c.peek()
	if !known {
		c.note(runtime, "the image is known only to a shell: set setup.container.image")
		image = "IMAGE"
	}
	j.image, j.runtime = image, runtime
	if len(c.words) > 0 {
		c.words = c.words[1:]
	}
	return true
}

// convertTorchModule converts python -m torch.distributed.run and its predecessor. It reports
// whether the command is one of them.
func (c *command) convertTorchModule() bool {
	for i, w := range c.words[1:] {
		word, known := c.r.word(w)
		if !known || !strings.HasPrefix(word, "-") {
			return false
		}
		if word != "-m" || i+2 >= len(c.words) {
			continue
		}
		switch module, _ := c.r.word(c.words[i+2]); module {
		case "torch.distributed.launch":
			c.note("torch.distributed.launch", "replaced by torchrun, which sets LOCAL_RANK instead of --local_rank")
		case "torch.distributed.run", "torch.distributed.elastic":
		default:
			return false
		}
		c.words = c.words[i+3:]
		c.convertTorchrun()
		return true
	}
	return false
}

// convertTorchrun converts the arguments of torchrun. It drops the options that ddpbatch sets.
func (c *command) convertTorchrun() {
	c.hideArguments()
	j := c.r.job
	j.torchrun = true
	var before []string
	processes := max(1, j.tasks) // number of torchruns under srun; each had the cores of its workers
	defer func() { j.cpus = max(min(j.cpus, 1), j.cpus*processes/max(1, j.tasks)) }()
	c.takeOptions(func(n string) bool {
		return !slices.Contains([]string{"standalone", "no_python", "no-python", "m", "module", "use_env", "use-env", "run_path"}, n)
	}, func(name, value string) {
		switch strings.ReplaceAll(name, "-", "_") {
		case "nproc_per_node":
			switch n, err := strconv.Atoi(value); {
			case err == nil && n > 0 && n <= 1<<20:
				j.tasks = n
			case j.gpus > 0:
				j.tasks = j.gpus
			default:
				c.note("--nproc_per_node "+value, "the number is known only to a shell: set slurm.tasks_per_node")
			}
		case "nnodes":
			if n, err := strconv.Atoi(value); err == nil && n > 0 && n <= 1<<20 && j.nodes == 0 {
				j.nodes = n
			}
		case "node_rank", "master_addr", "master_port", "rdzv_id", "rdzv_backend", "rdzv_endpoint", "rdzv_conf", "standalone", "use_env":
		case "max_restarts":
			c.note("--max_restarts "+value, "use restart.max_without_progress, which restarts from the last checkpoint")
		case "m", "module":
			before = append(before, "-m")
		case "no_python":
			before = append(before, "--no_python")
		default:
			before = append(before, "--"+name)
			if value != "" {
				before = append(before, value)
			}
		}
	})
	if j.tasks == 0 {
		j.tasks = max(1, j.gpus)
	}
	args := make([]string, 0, len(c.words))
	for _, w := range c.words {
		v, known := c.r.word(w)
		if !known || !isValidText(v) {
			v = shorten(sourceText(w))
			c.note(v, c.r.unknownArgumentReason(w))
		}
		args = append(args, v)
	}
	j.argv = append(before, args...)
}

// convertInline converts the script in bash -c '...'. It reports whether it starts a program.
func (c *command) convertInline() bool {
	if len(c.words) < 3 {
		return false
	}
	option, _ := c.r.word(c.words[1])
	script, known := c.r.word(c.words[2])
	if !strings.HasPrefix(option, "-") || !strings.HasSuffix(option, "c") {
		return false
	}
	if !known { // "...\$X..." in double quotes, for the shell on the node
		script = strings.Trim(sourceText(c.words[2]), `"`)
		script = strings.NewReplacer(`\$`, "$", `\"`, `"`).Replace(script)
	}
	file, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(bytes.NewReader([]byte(script)), "")
	if err != nil || c.r.depth > 3 {
		return false
	}
	inner := c.r
	was, argv := inner.offset, len(inner.job.argv)
	inner.offset, inner.depth = c.line-1, inner.depth+1
	inner.statements(file.Stmts)
	inner.offset, inner.depth = was, inner.depth-1
	return len(inner.job.argv) > argv
}

// convertProgram uses the remaining words as argv. If only a shell can evaluate one of them, a
// shell on the node runs the line.
func (c *command) convertProgram() {
	c.hideArguments()
	var argv []string
	shell := false
	for _, w := range c.words {
		v, known := c.r.word(w)
		shell = shell || !known || !isValidText(v)
		argv = append(argv, v)
	}
	if !shell {
		c.r.job.argv = argv
		return
	}
	parts := make([]string, len(c.words))
	for i, w := range c.words {
		parts[i] = sourceText(w)
		if v, known := c.r.word(w); known && v != "" && strings.Trim(v, plainChars) == "" {
			parts[i] = v
		}
	}
	line := strings.Join(strings.Fields(strings.Join(parts, " ")), " ")
	if !isValidText(line) || line == "" {
		c.note("the command", "it contains a control character: set command.argv")
		line = "false"
	}
	c.r.job.argv = []string{"bash", "-c", "exec " + line}
	c.note(line, "parts of it are known only to a shell on the node: bash runs the line")
	for _, name := range c.r.lostVariables(c.words) {
		if c.r.hidden[name] {
			c.r.addSecretName(c.line, name)
			continue
		}
		c.note("$"+name, "the script sets it, but the line does not see it: write its value in command.argv")
	}
}

const plainChars = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./:,@%"

// finish completes the job file.
func (r *reader) finish() {
	j := r.job
	j.divideTotals()
	if j.allTasks > 0 {
		r.note(0, "--ntasks="+strconv.Itoa(j.allTasks), "not divisible by the number of nodes: slurm.tasks_per_node is equal on all nodes")
	}
	if j.allGPUs > 0 {
		r.note(0, "--gpus="+strconv.Itoa(j.allGPUs), "not divisible by the number of nodes: slurm.gpus_per_node is equal on all nodes")
	}
	r.setMemory()
	r.dropInvalid()
	r.dropRejectedKeys()
}
