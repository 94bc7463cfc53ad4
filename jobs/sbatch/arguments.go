package sbatch

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// rankVariables differ between the ranks of a job, or between the batch script and its ranks.
var rankVariables = words("SLURM_PROCID SLURM_LOCALID SLURM_NODEID SLURM_GTIDS SLURM_STEP_ID SLURM_STEPID SLURM_TASK_PID RANDOM SRANDOM SECONDS BASHPID HOSTNAME EPOCHSECONDS EPOCHREALTIME LINENO SLURMD_NODENAME SLURM_TASKS_PER_NODE PPID BASH_SOURCE FUNCNAME SHLVL")

// jobVariables are variables of Slurm that are equal in the batch script and in all ranks.
var jobVariables = words(`SLURM_JOB_ID SLURM_JOBID SLURM_JOB_NODELIST SLURM_NODELIST SLURM_JOB_NAME SLURM_SUBMIT_DIR SLURM_ARRAY_JOB_ID SLURM_ARRAY_TASK_ID SLURM_JOB_PARTITION SLURM_CLUSTER_NAME SLURM_JOB_USER SLURM_TMPDIR SLURM_JOB_ACCOUNT SLURM_JOB_QOS
	SLURM_RESTART_COUNT SLURM_JOB_NUM_NODES SLURM_NNODES SLURM_JOB_UID SLURM_SUBMIT_HOST SLURM_JOB_END_TIME SLURM_JOB_START_TIME SLURM_CPUS_ON_NODE SLURM_GPUS_ON_NODE`)

// convertProgram uses the remaining words as argv. If only a shell can evaluate one of them, a
// shell on the node runs the line.
func (c *command) convertProgram() {
	r := c.r
	c.omitArguments(false)
	c.layout()
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

// noArguments is the reason of a note about all arguments of the script, which are no words without arguments.
const noArguments = "it is empty in the job file: give the arguments of the script to init with --arg"

// omitArguments omits "$@" and "${@:2}" behind the name of the program: without arguments of the script, they
// are no words. isScript reports whether the first word is the script of torchrun.
func (c *command) omitArguments(isScript bool) {
	if n, _ := c.r.knownString("#"); n != "0" {
		return
	}
	isNamed := false
	c.args = slices.DeleteFunc(slices.Clone(c.args), func(a arg) bool {
		isNamed = isNamed || a.known && (isScript || a.text == "-m" || strings.ContainsAny(a.text, "./") && !strings.HasPrefix(path.Base(a.text), "python"))
		if !isNamed || a.known || !isAllArguments(a.word) {
			return false
		}
		c.note(sourceText(a.word), noArguments)
		return true
	})
}

// isAllArguments reports whether a word consists of all arguments of the script, or of all from a number on.
func isAllArguments(w *syntax.Word) bool {
	if w == nil || len(w.Parts) != 1 {
		return false
	}
	part := w.Parts[0]
	q, isQuoted := part.(*syntax.DblQuoted)
	if isQuoted && len(q.Parts) == 1 {
		part = q.Parts[0]
	}
	p, ok := part.(*syntax.ParamExp)
	switch {
	case !ok || p.Param == nil || p.Excl || p.Length || p.Width || p.Repl != nil || p.Exp != nil:
		return false
	case p.Slice != nil && !isPositive(p.Slice.Offset):
		return false
	}
	return p.Param.Value == "@" || p.Param.Value == "*" && !isQuoted
}

// readsAllArguments reports whether a word contains all arguments of the script, so that it may be several words.
func readsAllArguments(w *syntax.Word) bool {
	return hasNode(w, func(n syntax.Node) bool {
		p, ok := n.(*syntax.ParamExp)
		return ok && p.Param != nil && (p.Param.Value == "@" || p.Param.Value == "*")
	})
}

// isPositive reports whether an arithmetic expression is a positive number.
func isPositive(x syntax.ArithmExpr) bool {
	w, ok := x.(*syntax.Word)
	if !ok {
		return false
	}
	_, ok = parseCount(w.Lit())
	return ok
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
	case r.expansionCommand != "":
		c.change(r.expansionCommand, "the shell of each rank, which completes the command line, does not have this option")
	case r.scriptVars["IFS"]:
		c.change("IFS", "the shell of each rank, which completes the command line, splits words at spaces")
	}
	for _, name := range containerVariables {
		if c.inContainer && slices.Contains(names, name) {
			c.change("$"+name, "the script evaluates it outside of the container, and the job inside")
		}
	}
	line := start + strings.Join(parts, " ")
	if r.job.shellDir != "" {
		line = "cd " + r.job.shellDir + " && " + line
		r.job.shellDir = ""
	}
	if r.shellOptions["nounset"] && slices.ContainsFunc(slices.Concat(names, r.needed), r.mayBeUnset) {
		line = "set -u && " + line
	}
	if !isValidText(line) {
		c.change(sourceText(c.stmt), "it contains a control character: set command.argv")
		line = "false"
	}
	r.checkRankVariables(c.line, names)
	return line
}

// shellParameters are names in the result of usedVariables whose values only the script's shell has.
var shellParameters = words("@ ? ! $! $$")

// differsInRanks reports whether a name in the result of usedVariables has a different value in the ranks.
func differsInRanks(name string) bool {
	return name == "$(" || name == "$0" || strings.HasSuffix(name, "[]") || slices.Contains(rankVariables, name) || isSlurmVariable(name) && !slices.Contains(jobVariables, name)
}

// containerVariables have a different value in a container: runtimes and images set them.
var containerVariables = words("PATH LD_LIBRARY_PATH")

// evaluatedReason is the reason of a note about an argument that the setup evaluates. The name of the
// variable follows.
const evaluatedReason = "the setup evaluates it once, as $"

// evaluateOnce moves arguments that have different values in the script and in its ranks, such as
// $(date) or $1, and arguments of several lines to variables of the setup, which runs once.
func (c *command) evaluateOnce() {
	r := c.r
	differs := func(name string) bool {
		if r.givenArgs && isArgument(name) || c.inContainer && slices.Contains(containerVariables, name) {
			return true
		}
		return !r.job.once && differsInRanks(name) // else, the program runs where the script did
	}
	count := 0
	for i, a := range c.args {
		if a.known || a.word == nil || r.usesHiddenVariable(a.word) || r.isSuspicious(sourceText(a.word)) {
			continue
		}
		names := usedVariables(a.word)
		if isLine := !strings.Contains(sourceText(a.word), "\n"); isLine && !slices.ContainsFunc(names, differs) || slices.ContainsFunc(names, func(name string) bool {
			return slices.Contains(shellParameters, name) && !(name == "@" && r.givenArgs && !readsAllArguments(a.word)) || name == "$0" && !r.hasDirectives()
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
	return hasNode(w, func(n syntax.Node) bool {
		p, ok := n.(*syntax.ParamExp)
		if !ok || p.Index == nil {
			return false
		}
		index, isWord := p.Index.(*syntax.Word)
		return isWord && (index.Lit() == "@" || index.Lit() == "*")
	})
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
		isChanged := func(n syntax.Node) bool { // as in ${NAME%x}
			p, ok := n.(*syntax.ParamExp)
			_, isArithmetic := n.(*syntax.ArithmExp)
			return isArithmetic || ok && (p.Exp != nil || p.Slice != nil || p.Repl != nil || p.Length || p.Index != nil)
		}
		if hasNode(a.word, isChanged) {
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
		if name == "SLURM_JOB_NAME" {
			r.keepJobName(line)
		}
		switch {
		case r.arrays[plain]:
		case r.job.once && (name == "$(" || isSlurmVariable(name) || slices.Contains(words("RANDOM SRANDOM HOSTNAME EPOCHSECONDS"), name)):
			// The program runs once, where the script did, with the same variables.
		case plain == name && slices.Contains(names, name+"[]"):
		case name == "!":
			r.change(line, "${!...}", "ranks do not have the variable that it names")
		case name == "$(":
			r.change(line, "$(...)", "the script evaluates it once, but each rank of the job would evaluate it")
		case readsArguments(name) && r.lacksArguments():
			r.note(0, "$"+name, defaultReason)
		case name == "@" || name == "$0" || readsArguments(name):
			r.change(line, "$1, $@", r.argumentsReason())
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
