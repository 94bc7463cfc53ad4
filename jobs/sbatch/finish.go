package sbatch

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"mvdan.cc/sh/v3/syntax"

	"github.com/ddpbatch/ddpbatch/internal/lazyregexp"
	"github.com/ddpbatch/ddpbatch/jobs"
)

// finish completes the job file.
func (r *reader) finish(program *candidate) {
	j := r.job
	if j.outNodes == 0 {
		(&command{r: r, inSrun: true}).layout()
	}
	if j.directiveImage != "" && j.image == "" && !j.addOption("--image="+j.directiveImage) {
		r.change(0, "--image="+j.directiveImage, "set setup.container.image")
	}
	r.noteRankValues()
	r.exportNetwork()
	r.replaceHint()
	r.writeSetup(program)
	if m := arrayPosition().Find(j.toml()); m != nil && j.array != "" {
		r.change(0, string(m), "ranks do not see the array's own positions: write the value")
	}
	r.dropInvalid()
	r.dropRejectedKeys()
}

// replaceHint replaces --hint=nomultithread, which excludes an explicit binding of ranks to cores, by
// the option with the same effect on the allocation.
func (r *reader) replaceHint() {
	j := r.job
	if j.raw["hint"] != quote("nomultithread") || j.slurm["cpu_bind"] == "" || !j.addOption("--threads-per-core=1") {
		return
	}
	delete(j.raw, "hint")
	r.note(0, "--hint=nomultithread", "slurm.options has --threads-per-core=1 instead, because slurm.cpu_bind excludes a hint")
}

// arrayPosition matches variables of a job array that a sweep does not set.
var arrayPosition = lazyregexp.New(`SLURM_ARRAY_TASK_(?:MIN|MAX|STEP)`)

// writeSetup writes the commands before the program to [setup]. It uses separate keys if their
// fixed order (lines, modules, conda or venv, env) is the order of the script.
func (r *reader) writeSetup(program *candidate) {
	j := r.job
	steps := r.keptSteps()
	r.noteArray(steps, program)
	last := len(steps)
	for last > 0 && steps[last-1].kind == stepEnv {
		last--
	}
	body := steps[:last]
	var values []step // without an expansion in the job file
	for i, s := range steps {
		if s.kind == stepEnv && (i >= last || !strings.Contains(s.text, "$")) {
			values = append(values, s)
		}
	}
	r.noteDefaults(values, program)
	for _, s := range steps[last:] {
		j.env[s.name] = s.value
	}
	ordered := isOrdered(body)
	needsSteps := !ordered || slices.ContainsFunc(body, func(s step) bool {
		_, ok := oneLine(s.text)
		return !ok
	})
	if needsSteps && r.writeSteps(body) {
		return
	}
	// setup.lines run with set -e.
	mayFail := slices.ContainsFunc(body, func(s step) bool { return s.mayEnd })
	errexit := true
	setErrexit := func(on bool) {
		if on != errexit {
			j.lines = append(j.lines, map[bool]string{true: "set -e", false: "set +e"}[on])
		}
		errexit = on
	}
	for _, s := range body {
		switch {
		case ordered && s.kind == stepModule:
			j.modules = append(j.modules, s.value)
		case ordered && s.kind == stepConda:
			j.conda = s.value
		case ordered && s.kind == stepVenv:
			j.venv = s.value
		default:
			setErrexit(s.errexit || !mayFail)
			text, ok := oneLine(s.text)
			if !ok {
				r.change(s.line, s.text, "setup.lines cannot contain it: keep it in a script")
				continue
			}
			j.lines = append(j.lines, text)
		}
	}
	setErrexit(true)
}

// noteArray adds a note if the job reads the index of a job array, but the script has no --array.
func (r *reader) noteArray(steps []step, program *candidate) {
	const name = "SLURM_ARRAY_TASK_ID"
	if r.job.array != "" || program == nil || !r.hasDirectives() {
		return
	}
	reads := slices.Contains(usedVariables(program.stmt), name)
	for _, s := range steps {
		reads = reads || slices.Contains(s.uses, name)
	}
	if reads {
		r.note(0, "$"+name, "the script has no --array: set sweep.array if the command line of sbatch did")
	}
}

// isOrdered reports whether steps have the order in which a job runs the keys of [setup]: lines, modules,
// and one of conda and venv.
func isOrdered(steps []step) bool {
	last := 0
	for _, s := range steps {
		n := map[stepKind]int{stepModule: 1, stepConda: 2, stepVenv: 2}[s.kind]
		if n < last || n == 2 && last == 2 {
			return false
		}
		last = n
	}
	return true
}

// oneLine returns shell code on one line. ok is false for here-documents and control
// characters.
func oneLine(text string) (line string, ok bool) {
	if isValidText(text) {
		return text, true
	}
	file, err := parseBash(text)
	if err != nil || hasNode(file, isDocument) {
		return "", false
	}
	line = sourceText(file)
	return line, isValidText(line) && line != ""
}

// writeSteps writes setup.steps and reports whether the job file accepts them.
func (r *reader) writeSteps(steps []step) bool {
	var list []string
	add := func(key, value string) { list = append(list, "{ "+key+" = "+value+" }") }
	for i := 0; i < len(steps); i++ {
		s := steps[i]
		switch s.kind {
		case stepModule:
			names := []string{s.value}
			for i+1 < len(steps) && steps[i+1].kind == stepModule {
				i++
				names = append(names, steps[i].value)
			}
			add("modules", quoteAll(names))
		case stepConda:
			add("conda", quote(s.value))
		case stepVenv:
			add("venv", quote(s.value))
		default:
			value := strings.NewReplacer("\n", `\n`, "\t", `\t`, "\r", "").Replace(quote(s.text)) // a TOML string on one line
			if s.mayEnd {
				value += ", may_fail = true" // the script continues after a failure
			}
			add("run", value)
		}
	}
	if !isAccepted("[setup]\nsteps = [\n" + strings.Join(list, ",\n") + "\n]\n") {
		return false
	}
	r.job.steps = list
	return true
}

// sizeChange returns the value of a variable of Slurm in the script and in the job. They differ if
// torchrun starts the ranks, or if srun starts fewer tasks than the job has. Both are empty if unknown.
func (r *reader) sizeChange(name string) (was, now string) {
	j := r.job
	n := 0
	switch name {
	case "SLURM_NTASKS", "SLURM_NPROCS":
		n = j.outNodes * j.outTasks
	case "SLURM_NTASKS_PER_NODE":
		n = j.outTasks
	case "SLURM_CPUS_PER_TASK":
		if n = int(j.outCPUs); n == 0 && r.isUnset(name) {
			n = 1
		}
		n = max(0, n) // not set with all cores
	}
	was, known := r.knownString(name)
	switch {
	case n > 0 && r.isUnset(name):
		return "empty", strconv.Itoa(n)
	case name == "SLURM_TASKS_PER_NODE" && j.outTasks > 0 && j.outTasks != j.allocatedTasks():
		return strconv.Itoa(j.allocatedTasks()), strconv.Itoa(j.outTasks)
	case name == "SLURM_GPUS_PER_NODE" && j.gpusPerNodeGiven: // the job may request GPUs with --gres
		return cmp.Or(was, strconv.Itoa(j.gpus)), "not always set"
	case n == 0 || !known:
		return "", ""
	}
	return was, strconv.Itoa(n)
}

// keepJobName makes the name of the script the name of the job, as sbatch does without --job-name, because the
// script reads it.
func (r *reader) keepJobName(line int) {
	own := r.file
	if r.job.nameGiven {
		own = r.job.name
	}
	var name jobs.Name
	if name.UnmarshalTOML(own) != nil {
		r.change(line, "$SLURM_JOB_NAME", fmt.Sprintf("it is %s in the script, but %s in the job: write the value", own, r.job.name))
		return
	}
	r.job.name = own
}

// keepTasks gives each srun in the code of a step the number of tasks that it has in the script. The job has more
// tasks if torchrun starts the ranks.
func (r *reader) keepTasks(s *step) {
	j, nodes := r.job, max(1, r.job.nodes)
	total := cmp.Or(j.allTasks, j.allocatedTasks()*nodes)
	if !r.hasDirectives() || j.outTasks == 0 || total == j.outNodes*j.outTasks {
		return
	}
	file, err := parseBash(s.text)
	if err != nil {
		return
	}
	noteTasks := func(c *syntax.CallExpr) {
		r.change(s.line, sourceText(c), fmt.Sprintf("the job has %d tasks, not %d: give the number of tasks", j.outNodes*j.outTasks, total))
	}
	var edits []edit
	syntax.Walk(file, func(n syntax.Node) bool {
		c, ok := n.(*syntax.CallExpr)
		if !ok || len(c.Args) == 0 {
			return true
		}
		switch base := path.Base(c.Args[0].Lit()); {
		case slices.Contains(mpirunNames, base):
			options, _, _ := parseMpirun(r.args(c.Args[1:]))
			if !slices.ContainsFunc(options, func(o option) bool { return slices.Contains(words("n np c npernode ppn N perhost"), o.name) }) {
				noteTasks(c)
			}
			return true
		case base != "srun":
			return true
		}
		perNode, someNodes := 0, 0 // in the options of srun
		options, _, ok := parseSrun(r.args(c.Args[1:]))
		for _, o := range options {
			switch count, isKnown := parseCount(o.value); {
			case o.name == "ntasks":
				return true
			case !slices.Contains(words("nodes ntasks-per-node tasks-per-node"), o.name), isDefaultCount(o):
			case !isKnown:
				ok = false
			case o.name == "nodes":
				someNodes = count
			default:
				perNode = count
			}
		}
		tasks, flags := total, ""
		switch {
		case perNode > 0:
			tasks = perNode * cmp.Or(someNodes, nodes)
		case someNodes > 0 && someNodes != nodes: // as in countRanks
			tasks = someNodes
		case total%nodes == 0:
			flags = fmt.Sprintf(" --ntasks-per-node=%d", total/nodes)
		}
		if !ok || tasks > j.outNodes*j.outTasks {
			noteTasks(c)
			return true
		}
		end := int(c.Args[0].End().Offset())
		edits = append(edits, edit{end, end, fmt.Sprintf(" --ntasks=%d", tasks) + flags})
		return true
	})
	for _, e := range slices.Backward(edits) {
		s.text = s.text[:e.start] + e.text + s.text[e.end:]
	}
}

// argumentStep returns the step that sets the arguments of the script for later steps.
func (r *reader) argumentStep() []step {
	code := "set --"
	for _, a := range r.options.Args {
		code += " " + quoteWord(a)
	}
	if r.isSuspicious(code) {
		r.change(0, "the arguments", "they may contain a secret, which a job file must not contain")
		return nil
	}
	return []step{{kind: stepRun, text: code}}
}

// usesArguments reports whether the code of a step reads arguments of the script.
func (s step) usesArguments() bool {
	return s.kind != stepEnv && slices.ContainsFunc(s.uses, isArgument)
}

// exportedReason is the reason of a note about a variable that the script does not export.
const exportedReason = "the job exports the value, so that the shell of each rank can insert it"

// keptSteps returns the steps that the program or a later step needs. It adds steps that export
// the variables that the program's command reads.
func (r *reader) keptSteps() (kept []step) {
	needed := map[string]bool{}
	for _, name := range r.needed {
		needed[name] = true
	}
	runsLater := false
	for _, s := range slices.Backward(r.steps) {
		if r.hasSecretValue(s.text) || r.hasSecretValue(s.value) {
			if s.kind == stepEnv {
				r.moveToSecrets(s.line, s.name, "")
			} else if s.kind != stepAssign {
				r.change(s.line, s.text, "it may contain a secret, which a job file must not contain")
			}
			continue
		}
		readsFiles := slices.Contains(s.uses, "$(") || slices.Contains(s.uses, "PWD")
		switch s.kind {
		case stepAssign:
			if !needed[s.name] && !r.foreign && !s.isInherited || r.hidden[s.name] {
				continue
			}
			r.noteParameters(s)
			runsLater = runsLater || readsFiles || strings.ContainsAny(s.text, "*?[")
		case stepEnv:
			if r.hidden[s.name] || !r.exported[s.name] {
				continue
			}
		case stepCd:
			if !runsLater {
				continue
			}
		case stepHook:
			if !slices.ContainsFunc(kept, func(s step) bool {
				return s.kind == stepRun && (strings.Contains(s.text, "conda") || strings.Contains(s.text, "mamba") || strings.Contains(s.text, "activate"))
			}) {
				continue
			}
		case stepRun:
			if s.option != "" {
				kept = append(kept, s)
				continue
			}
			if s.shifts && !slices.ContainsFunc(kept, step.usesArguments) {
				continue
			}
			runsLater = runsLater || readsFiles || !strings.HasPrefix(s.text, "module ") && !strings.HasPrefix(s.text, "export ") && !strings.HasPrefix(s.text, "ulimit ") && !strings.HasPrefix(s.text, "unset ")
		}
		if slices.Contains(s.uses, "SLURM_JOB_NAME") {
			r.keepJobName(s.line)
		}
		if s.kind != stepEnv {
			r.keepTasks(&s)
		}
		for _, name := range s.uses {
			needed[name] = true
			if was, now := r.sizeChange(name); s.kind == stepEnv && (was != now || isArgument(name)) {
				s.text = "export " + s.name + "=" + quoteWord(s.value)
			} else if s.isKnown && was != now {
				s.text = s.name + "=" + quoteWord(s.value)
			} else if was != now {
				r.change(s.line, "$"+name, fmt.Sprintf("it is %s in the script, but %s in the job: write the value", was, now))
			}
		}
		kept = append(kept, s)
	}
	options := map[string]bool{}
	for _, s := range kept {
		for _, option := range s.needs {
			options[option] = true
		}
	}
	kept = slices.DeleteFunc(kept, func(s step) bool { return s.option != "" && !options[s.option] })
	slices.Reverse(kept)
	if r.givenArgs && slices.ContainsFunc(kept, step.usesArguments) {
		kept = slices.Concat(r.argumentStep(), kept)
	}
	var exports []string
	for _, name := range r.needed {
		if !r.exported[name] && (r.scriptVars[name] || r.foreign) && isPlainName(name) && !r.hidden[name] {
			kept = append(kept, step{kind: stepRun, text: "export " + name})
			exports = append(exports, name)
		}
	}
	r.noteVariables(exports, exportedReason)
	return kept
}
