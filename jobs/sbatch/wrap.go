package sbatch

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
)

// An edit replaces bytes of the script.
type edit struct {
	start, end int
	text       string
}

// wrap returns the script with `ddpbatch launch` instead of the launcher of its program. The
// program, its arguments, and all other lines are unchanged. It returns nil if the launcher has
// options that ddpbatch launch cannot apply, or if it would wait for a different step.
func (r *reader) wrap(program *candidate, others []candidate) (script []byte) {
	args := r.args(program.call.Args)
	isStep := func(c candidate) bool { return c.strength == launchProgram }
	isConcurrent := program.isConcurrent() || slices.ContainsFunc(others, isStep)
	if isConcurrent && mayStartSteps(skipPrefix(args)) {
		return nil // ddpbatch launch requests all cores and GPUs of its nodes, and cancels the steps that its program leaves
	}
	launcher, hasLauncher := r.wrapLauncher(args, isConcurrent)
	if r.job.single && len(r.rankValues) > 0 {
		launcher.text += "env " // ddpbatch launch changes these variables
		for _, name := range slices.Sorted(maps.Keys(r.rankValues)) {
			hasLauncher = hasLauncher && r.rankValues[name].Line < r.line(program.stmt) // not in the command itself
			launcher.text += name + `="$` + name + `" `
		}
	}
	code, hasCode := r.joinArguments(args)
	if !hasLauncher || !hasCode || slices.ContainsFunc(r.notes, func(n Note) bool { return strings.HasPrefix(n.Reason, noInput) }) {
		return nil
	}
	end := 0
	for _, e := range append([]edit{launcher}, code...) {
		if e.start < end || e.start > e.end || e.end > len(r.src) {
			return nil
		}
		script = slices.Concat(script, r.src[end:e.start], []byte(e.text))
		end = e.end
	}
	return append(script, r.src[end:]...)
}

// mayStartSteps reports whether a command may start steps of the job, unlike a single process of Python.
func mayStartSteps(args []arg) bool {
	if len(args) == 0 || !args[0].known {
		return true
	}
	base := path.Base(args[0].text)
	return slices.Contains(mpirunNames, base) || slices.Contains(words("srun ibrun prun horovodrun bash sh"), base) || strings.HasSuffix(base, ".sh")
}

// joinArguments writes the shell code of bash -c on one line, because a job has no arguments of several
// lines. ok is false for other arguments of several lines, and for more than one.
func (r *reader) joinArguments(args []arg) (edits []edit, ok bool) {
	for i, a := range args {
		if !isMultiline(a) {
			continue
		}
		line, isCode := singleLine(a.word)
		if !isCode || len(edits) > 0 || !isShellCode(args, i) {
			return nil, false
		}
		values, _ := r.fields(line)
		if slices.ContainsFunc(values, func(v string) bool { return strings.ContainsAny(v, "\n\t") }) {
			return nil, false // a variable holds line breaks
		}
		edits = append(edits, edit{int(a.word.Pos().Offset()), int(a.word.End().Offset()), sourceText(line)})
	}
	return edits, true
}

// wrapLauncher replaces srun and its options by ddpbatch launch, or writes ddpbatch launch in front of
// a different program. isConcurrent reports whether other commands run at the same time.
func (r *reader) wrapLauncher(all []arg, isConcurrent bool) (e edit, ok bool) {
	args := skipPrefix(all)
	if len(args) == 0 || args[0].word == nil || args[0].known && args[0].text == "eval" {
		return edit{}, false
	}
	start := int(args[0].word.Pos().Offset())
	if !startsSrun(args) {
		first := all[slices.IndexFunc(all, func(a arg) bool { return a.word == args[0].word })]
		return edit{start, start, "ddpbatch launch " + r.singleFlags(args[0], isConcurrent) + " -- "}, first.text == args[0].text // the word holds no wrapper
	}
	options, inner, ok := parseSrun(args[1:])
	switch {
	case !ok || len(inner) == 0 || inner[0].word == nil || startsSeveral(inner):
		return edit{}, false
	case slices.ContainsFunc(args[:len(args)-len(inner)], func(a arg) bool { return a.word == inner[0].word }):
		return edit{}, false // one variable holds the options and the program
	case !r.hasDirectives() && len(options) > 0:
		return edit{}, false // srun requests the nodes, which ddpbatch launch does not do
	}
	if r.components > 0 {
		if options = withoutGroups(options, r.components+1); options == nil {
			return edit{}, false // ddpbatch launch starts ranks in all components
		}
	}
	hasImage := slices.ContainsFunc(options, func(o option) bool { return o.name == "container-image" })
	inside := "" // commands in the container
	options = slices.DeleteFunc(slices.Clone(options), func(o option) bool {
		isDir := hasImage && o.name == "container-workdir" && o.known && path.IsAbs(o.value)
		if isDir {
			inside = "bash -c " + quoteWord("cd "+quoteWord(o.value)+` && exec "$0" "$@"`) + " "
		}
		return isDir || r.repeatsGPUs(o)
	})
	flags, ok := launchFlags(options)
	return edit{start, int(inner[0].word.Pos().Offset()), "ddpbatch launch " + flags + "-- " + inside}, ok
}

// repeatsGPUs reports whether an option of srun requests the GPUs of the job, which is the default.
func (r *reader) repeatsGPUs(o option) bool {
	n, isKnown := r.knownString("SLURM_GPUS_ON_NODE")
	m := typedCount().FindStringSubmatch(o.value)
	return (o.name == "gres" || o.name == "gpus-per-node") && o.known && isKnown && m != nil && m[2] == n
}

// singleFlags returns the flags of ddpbatch launch for a program without srun. Such a program gets no
// variables of ranks if it may start processes that read them. torchrun sets them itself. Programs that run at the
// same time must not be steps, because each step would wait for the one before.
func (r *reader) singleFlags(program arg, isConcurrent bool) string {
	j := r.job
	isMPI := slices.Contains(mpirunNames, path.Base(program.text))
	if isConcurrent || !j.torchrun && (isMPI || j.once || max(1, j.nodes) > 1 || j.nodeGPUs() > 1) {
		return "--set command.run=once"
	}
	return "-n 1"
}

// skipPrefix returns the command line without commands such as exec, env A=1, and timeout, which then
// apply to ddpbatch launch.
func skipPrefix(args []arg) []arg {
	for len(args) > 1 && args[0].known {
		base := path.Base(args[0].text)
		name, _, isAssignment := strings.Cut(args[0].text, "=")
		isWrapper := slices.Contains(plainWrappers, base) && !strings.HasPrefix(args[1].text, "-")
		isEnv := base == "env" && args[1].known && strings.Contains(args[1].text, "=")
		if !isWrapper && !isEnv && !(isAssignment && isPlainName(name)) {
			break
		}
		args = args[1:]
	}
	if len(args) > 0 && args[0].known && wrappers[path.Base(args[0].text)] {
		if inner := skipWrapper(path.Base(args[0].text), args[1:]); startsSrun(inner) {
			return inner
		}
	}
	return args
}

// startsSrun reports whether a command line is a call of srun.
func startsSrun(args []arg) bool {
	return len(args) > 0 && args[0].known && path.Base(args[0].text) == "srun"
}

// withoutGroups returns the options of srun without --het-group, or nil if the step does not run in all
// components of the job, or if other options describe its size.
func withoutGroups(options []option, components int) []option {
	var all []string
	for i := range components {
		all = append(all, strconv.Itoa(i))
	}
	rest, found := []option{}, false
	for _, o := range options {
		switch o.name {
		case "het-group", "pack-group":
			if !o.known || o.value != strings.Join(all, ",") && o.value != fmt.Sprintf("0-%d", components-1) {
				return nil
			}
			found = true
		case "nodes", "ntasks", "ntasks-per-node", "tasks-per-node", "cpus-per-task", "distribution":
			return nil
		default:
			rest = append(rest, o)
		}
	}
	if !found {
		return nil
	}
	return rest
}

// isMultiline reports whether an argument has characters that command.argv rejects.
func isMultiline(a arg) bool {
	return strings.ContainsAny(a.text, "\n\t") || a.word != nil && strings.ContainsAny(sourceText(a.word), "\n\t")
}

// droppedFlags are options of srun that ddpbatch launch sets or does not need.
var droppedFlags = words(`label unbuffered kill-on-bad-exit output error wait quiet verbose no-kill open-mode disable-status quit-on-interrupt job-name
	no-requeue requeue jobid`)

// launchOptions maps options of srun to flags of ddpbatch launch with the same values.
var launchOptions = map[string]string{"nodes": "--nodes=", "ntasks": "--ntasks=", "ntasks-per-node": "--tasks-per-node=", "tasks-per-node": "--tasks-per-node=",
	"cpus-per-task": "--cpus-per-task=", "distribution": "--srun-option=--distribution=", "container-image": "--container-image=", "container-mounts": "--container-mounts=",
	"hint": "--set slurm.hint=", "mpi": "--set slurm.mpi=", "cpu-bind": "--set slurm.cpu_bind=", "cpu_bind": "--set slurm.cpu_bind=", "gpu-bind": "--set slurm.gpu_bind=", "gpu_bind": "--set slurm.gpu_bind="}

// rejectedOptions are options of srun that ddpbatch launch cannot apply. With some of them, the step would
// have other ranks or resources.
var rejectedOptions = words(`multi-prog pty het-group pack-group no-allocate container-workdir environment
	ntasks-per-gpu gpus gpus-per-node gpus-per-socket gpus-per-task tres-per-task cpus-per-gpu gres mem mem-per-cpu mem-per-gpu exact overlap exclusive`)

// launchFlags returns the flags of ddpbatch launch that replace options of srun.
func launchFlags(options []option) (flags string, ok bool) {
	for _, o := range options {
		value, flag := o.shellValue(), "--"+o.name
		isDefault := o.name == "export" && o.known && o.value == "ALL" || o.name == "input" && o.known && (o.value == "none" || o.value == "/dev/null")
		isHostfile := o.name == "distribution" && strings.HasPrefix(o.value, "arbitrary") // it places the ranks
		isOtherJob := o.name == "jobid" && o.known
		isAlive := o.name == "kill-on-bad-exit" && (!o.known || o.value == "0") // the other ranks continue
		switch {
		case value == "" || isHostfile || isOtherJob || isAlive || slices.Contains(rejectedOptions, o.name):
			return "", false
		case isDefault || slices.Contains(droppedFlags, o.name):
		case o.name == "export" || o.name == "input":
			return "", false
		case launchOptions[o.name] != "":
			flags += launchOptions[o.name] + value + " "
		case !newJob().addStepOption(flag) && !newJob().addStepOption(flag+"=1"):
			if !slices.Contains(ignoredSrunOptions, o.name) { // the step has the resources of the job
				return "", false
			}
		case o.known && o.value == "":
			flags += "--srun-option=" + flag + " "
		default:
			flags += "--srun-option=" + flag + "=" + value + " "
		}
	}
	return flags, true
}

// shellValue returns the value of an option as bash code.
func (o option) shellValue() string {
	if o.known {
		return quoteWord(o.value)
	}
	code := sourceText(o.valueWord())
	if !strings.HasPrefix(code, "-") {
		return code
	}
	if _, value, has := strings.Cut(code, "="); has { // --nodes=$N
		return value
	}
	return code[2:] // -N$N
}
