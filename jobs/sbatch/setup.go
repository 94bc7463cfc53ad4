package sbatch

import (
	"cmp"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"

	"github.com/ddpbatch/ddpbatch/internal/lazyregexp"
	"github.com/ddpbatch/ddpbatch/jobs"
)

type stepKind int

const (
	stepRun    stepKind = iota // shell code
	stepAssign                 // NAME=value, without export
	stepEnv                    // export NAME=value, with a known value
	stepModule                 // module load
	stepConda                  // conda activate
	stepVenv                   // source DIR/bin/activate
	stepHook                   // makes conda available; setup.conda does the same
	stepCd                     // cd
)

// A step is a command before the program, in the order of the script.
type step struct {
	kind        stepKind
	line        int
	text        string // shell code
	value       string // module, environment, or value of a variable
	name        string // variable
	uses        []string
	mayEnd      bool     // whether the script continues after a failure, which would end a script with set -e
	errexit     bool     // whether set -e applies
	noArgs      bool     // whether the script certainly has no arguments at this step
	shifts      bool     // whether it is a shift of known arguments
	option      string   // option of the shell that it sets, if a step needs the option
	needs       []string // options that can end the script at this step
	isKnown     bool     // whether value is the value of the variable
	isInherited bool     // whether the environment may have exported the variable before
}

// managedVariables are variables that ddpbatch determines or sets for each rank, with the reason for a
// note.
var managedVariables = map[string]string{
	"MASTER_ADDR": "ddpbatch sets it for each rank", "MASTER_PORT": "ddpbatch sets it for each rank, to a free port",
	"NCCL_SOCKET_IFNAME": networkReason, "GLOO_SOCKET_IFNAME": networkReason,
}

// networkReason is the reason of a note about a variable that selects the network.
const networkReason = "ddpbatch selects the network; set it in [setup.env] to override"

// rankNames are variables that ddpbatch sets for each rank. It removes them for a program that runs once.
var rankNames = words("RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE GROUP_RANK")

// singleRank are the values of the variables of rankNames in a job with one rank.
var singleRank = words("RANK=0 WORLD_SIZE=1 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 GROUP_RANK=0")

// environmentName matches variables that the environment of a script usually has, or that modules export. An
// assignment changes them for the program also without export, so the setup keeps it.
var environmentName = lazyregexp.New(`^(?:PATH|(?:\w*_)?(?:LIBRARY|INCLUDE)_PATH|CPATH|PYTHONPATH|MANPATH|MODULEPATH|HOME|TMPDIR|USER|LANG|LC_\w+|(?:CUDA|ROCM|CONDA|MPI|JAVA|PYTHON|VIRTUAL)_\w+|OMP_NUM_THREADS)$`)

// programVariable matches variables that configure libraries of programs. Users export them in their shell, and
// modules export some of them. IFS also changes how the shell splits words.
var programVariable = lazyregexp.New(`^(?:IFS|SCRATCH|WORK|TMP|TEMP|TZ|DISPLAY|(?:NCCL|GLOO|TORCH|TORCHINDUCTOR|PYTORCH|HF|TRANSFORMERS|TOKENIZERS|WANDB|OMP|KMP|MKL|OPENBLAS|OMPI|UCX|FI|XLA|TF|JAX|HIP|HSA|ROCR|MIOPEN|RAY|LD|XDG)_\w+)$`)

// noteRankValues adds notes about the values that the script exports in the variables of rankNames.
func (r *reader) noteRankValues() {
	for _, name := range slices.Sorted(maps.Keys(r.rankValues)) {
		switch v := r.rankValues[name]; {
		case r.job.single && (r.job.once || !slices.Contains(singleRank, v.Text)):
			r.change(v.Line, v.Text, "the program does not get this value: set it in command.argv with env")
		case r.job.once:
			r.note(v.Line, v.Text, "the program sets it for its processes")
		default:
			r.note(v.Line, v.Text, "ddpbatch sets it for each rank")
		}
	}
}

// exportNetwork keeps the values of network variables for a program that runs once: ddpbatch selects the network only
// for ranks.
func (r *reader) exportNetwork() {
	if !r.job.once {
		return
	}
	for i, s := range r.steps {
		if s.kind == stepAssign && managedVariables[s.name] == networkReason && r.exported[s.name] {
			r.steps[i].kind, r.steps[i].text = stepRun, "export "+s.text
		}
	}
	r.notes = slices.DeleteFunc(r.notes, func(n Note) bool { return n.Reason == networkReason })
}

// isManaged reports whether ddpbatch sets a variable for each rank. A job file cannot set most of them.
func isManaged(name string) bool {
	var n jobs.EnvName
	return managedVariables[name] != "" || n.UnmarshalTOML(name) != nil
}

// convert converts a script whose program is known.
func (r *reader) convert(stmts []*syntax.Stmt, program *candidate, others []candidate) {
	main := stmts[program.top]
	for _, c := range others {
		r.change(r.line(c.stmt), sourceText(c.stmt), "it runs at the same time as the program: a server or helper can be a [[component]]")
	}
	r.prepare(stmts[:program.top])
	prefix, simple := launchContext(main, program.stmt)
	for _, s := range prefix {
		r.prepareRequired(s)
	}
	if !simple {
		r.change(r.line(program.stmt), sourceText(program.stmt), "it is in a loop, a condition, or a function")
		r.removeArguments() // a function has its own
		r.prepareNested(main)
	}
	if program.background {
		r.change(r.line(program.stmt), sourceText(program.stmt), "it runs in the background")
	}
	r.convertLaunch(program.stmt, program.call)
	if simple {
		r.readRest(main, program.stmt)
	}
	for _, s := range stmts[program.top+1:] {
		r.readLater(s)
	}
}

// launchContext returns the commands before the program in its statement, as in
// `cd x && srun y`. simple reports whether the program runs exactly once if they succeed.
func launchContext(s, program *syntax.Stmt) (before []*syntax.Stmt, simple bool) {
	if s == program {
		return nil, true
	}
	switch c := s.Cmd.(type) {
	case *syntax.TimeClause:
		return launchContext(c.Stmt, program)
	case *syntax.BinaryCmd:
		if before, ok := launchContext(c.X, program); ok {
			return before, true
		}
		if parts := conjunction(c.X); c.Op == syntax.AndStmt && parts != nil {
			if before, ok := launchContext(c.Y, program); ok {
				return append(parts, before...), true
			}
		}
	}
	return nil, false
}

// conjunction returns the simple commands that && connects, or nil if a statement has other parts.
func conjunction(s *syntax.Stmt) []*syntax.Stmt {
	if s.Background || s.Negated {
		return nil
	}
	switch c := s.Cmd.(type) {
	case *syntax.DeclClause, *syntax.CallExpr, *syntax.TestClause:
		return []*syntax.Stmt{s}
	case *syntax.BinaryCmd:
		x, y := conjunction(c.X), conjunction(c.Y)
		if c.Op == syntax.AndStmt && len(s.Redirs) == 0 && x != nil && y != nil {
			return append(x, y...)
		}
	}
	return nil
}

// prepareRequired reads a command that precedes && and the program. If the command fails, the program
// does not run.
func (r *reader) prepareRequired(s *syntax.Stmt) {
	r.required = true
	defer func() { r.required = false }()
	if isPreparation(s) {
		r.prepare([]*syntax.Stmt{s})
		return
	}
	r.markUnknown(s)
	r.readEffects(s)
	r.run(s)
}

// isPreparation reports whether a command before && changes the shell or prepares the job. The reader
// then assumes that the command succeeds, and reads the command after && like a separate one.
func isPreparation(s *syntax.Stmt) bool {
	switch c := s.Cmd.(type) {
	case *syntax.DeclClause:
		return true
	case *syntax.BinaryCmd:
		return c.Op == syntax.AndStmt && isPreparation(c.X) && isPreparation(c.Y)
	case *syntax.CallExpr:
		return len(c.Args) == 0 || slices.Contains(words("cd pushd module ml source . conda mamba mkdir set echo date ulimit unset"), c.Args[0].Lit())
	}
	return false
}

// readRest reads what follows the program in its statement, such as a pipe.
func (r *reader) readRest(s, program *syntax.Stmt) {
	if s == program {
		return
	}
	switch c := s.Cmd.(type) {
	case *syntax.TimeClause:
		r.readRest(c.Stmt, program)
	case *syntax.BinaryCmd:
		if _, inX := launchContext(c.X, program); !inX {
			r.readRest(c.Y, program)
			return
		}
		r.readRest(c.X, program)
		switch {
		case (c.Op == syntax.Pipe || c.Op == syntax.PipeAll) && readsOutput(c.Y):
			r.note(r.line(c.Y), "| "+sourceText(c.Y), "the log is in the run directory")
		case c.Op == syntax.Pipe || c.Op == syntax.PipeAll:
			r.change(r.line(c.Y), "| "+sourceText(c.Y), "the output of the program goes to the log only")
		default:
			r.readLater(c.Y)
		}
	}
}

// readLater reads a command after the program. A job has no commands there.
func (r *reader) readLater(s *syntax.Stmt) {
	r.afterProgram = true
	defer func() { r.afterProgram = false }()
	if !r.isHarmless(s) && !r.endsProcess(s) {
		r.change(r.line(s), sourceText(s), "it runs after the program: a job file has no commands there; use a job with slurm.dependency")
	}
}

// prepare reads commands before the program.
func (r *reader) prepare(list []*syntax.Stmt) {
	for _, s := range list {
		before := len(r.steps)
		switch c := s.Cmd.(type) {
		case *syntax.CallExpr:
			r.prepareCall(s, c)
		case *syntax.DeclClause:
			r.prepareDeclaration(s, c)
		case *syntax.BinaryCmd:
			switch {
			case c.Op == syntax.AndStmt && len(s.Redirs) == 0 && !s.Background && isPreparation(c.X) && !(makesDirectory(c.X) && len(setVariables(c.Y)) > 0):
				r.prepare([]*syntax.Stmt{c.X, c.Y})
			case c.Op == syntax.OrStmt && isChangeOfDirectory(c.X) && r.endsScript(c.Y): // a job without its directory fails
				r.prepareRequired(c.X)
			default:
				r.prepareNested(s)
			}
		case *syntax.FuncDecl:
			if c.Name != nil {
				r.functions[c.Name.Value] = c.Body
			}
			r.statusStep = 0 // $? in the body is the exit status of the command before the call
			r.run(s)
		case *syntax.IfClause:
			if name := requiredArgument(s, c); name != "" && r.lacksArguments() {
				r.note(0, "$"+name, defaultReason)
			} else {
				r.prepareNested(s)
			}
		case nil:
			if slices.ContainsFunc(s.Redirs, writesFile) {
				r.run(s)
			}
		default:
			r.prepareNested(s)
		}
		if r.statusStep = len(r.steps); r.statusStep != before+1 || !r.isStatement(r.steps[before], s) {
			r.statusStep = 0
		}
	}
}

// requiredArgument returns the parameter in a condition that is false without arguments of the script, such as
// `if [ $# -gt 0 ]` and `if [ -n "$1" ]` without else. It returns an empty string for other statements.
func requiredArgument(s *syntax.Stmt, c *syntax.IfClause) string {
	if len(s.Redirs) > 0 || s.Background || s.Negated || c.Else != nil || len(c.Cond) != 1 {
		return ""
	}
	m := argumentTest().FindStringSubmatch(sourceText(c.Cond[0]))
	if m == nil {
		return ""
	}
	return cmp.Or(m[1], "#")
}

// argumentTest matches a condition that is false without arguments.
var argumentTest = lazyregexp.New(`^\[\[? (?:-n "\$\{?([1-9])\}?"|"?\$\{?#\}?"? (?:-gt [0-9]{1,3}|-g[et] [1-9]|-ne 0|-eq [1-9])) \]\]?$`)

// isStatement reports whether a step runs a statement of the script, and nothing else.
func (r *reader) isStatement(s step, stmt *syntax.Stmt) bool {
	return s.kind == stepCd && isChangeOfDirectory(stmt) || (s.kind == stepRun || s.kind == stepAssign) && slices.Contains([]string{r.code(stmt), sourceText(stmt)}, s.text)
}

// isChangeOfDirectory reports whether a statement is a plain cd.
func isChangeOfDirectory(s *syntax.Stmt) bool {
	c, ok := s.Cmd.(*syntax.CallExpr)
	return ok && len(s.Redirs) == 0 && !s.Background && !s.Negated && len(c.Args) > 0 && c.Args[0].Lit() == "cd"
}

// makesDirectory reports whether a command contains mkdir, which fails if the directory exists.
func makesDirectory(s *syntax.Stmt) bool {
	return hasNode(s, func(n syntax.Node) bool {
		c, ok := n.(*syntax.CallExpr)
		return ok && len(c.Args) > 0 && c.Args[0].Lit() == "mkdir"
	})
}

// prepareNested keeps a loop, a condition, or a pipe as shell code.
func (r *reader) prepareNested(s *syntax.Stmt) {
	if r.isHarmless(s) && len(setVariables(s)) == 0 && !setsUnknownName(s) && !hasExit(s) && !(r.errexit && r.mayFail(s)) {
		return
	}
	r.markUnknown(s)
	r.hideNestedSecrets(s)
	r.readEffects(s)
	r.run(s)
}

// readEffects reads the effects on the shell of commands that the job file keeps as shell code: of a
// loop, a condition, or the body of a function.
func (r *reader) readEffects(s *syntax.Stmt) {
	syntax.Walk(s, func(n syntax.Node) bool {
		switch n := n.(type) {
		case *syntax.CmdSubst, *syntax.ProcSubst, *syntax.Subshell:
			return false // in a process of its own
		case *syntax.CallExpr:
			if len(n.Args) == 0 {
				break
			}
			switch name := n.Args[0].Lit(); name {
			case "cd", "pushd", "popd":
				r.loseDirectory()
			case "trap":
				r.change(r.line(n), sourceText(n), "a job file has no traps")
			case "shift":
				if r.hasArguments() {
					r.removeArguments()
				}
			case "exec":
				if len(n.Args) > 1 {
					r.change(r.line(n), sourceText(n), "it replaces the setup, so that the program of the job does not start")
				}
			case "source", ".", "eval":
				r.forget()
				r.removeArguments()
			case "unset":
				for _, w := range n.Args[1:] {
					value, _ := r.word(w)
					r.unset(cmp.Or(value, w.Lit()))
				}
			case "shopt":
				args, _ := r.arguments(n.Args[1:])
				r.readExpansionOptions(r.line(n), sourceText(n), args)
			case "set":
				if slices.ContainsFunc(n.Args[1:], func(w *syntax.Word) bool {
					return w.Lit() == "noglob" || strings.HasPrefix(w.Lit(), "-") && strings.Contains(w.Lit(), "f")
				}) {
					r.expansionCommand = sourceText(n)
				}
			default:
				if r.functions[name] != nil && !r.callsHarmlessFunction(name) {
					r.readFunction(name)
					r.forget()
				}
			}
		case *syntax.DeclClause:
			r.readAttributes(n)
			for _, a := range n.Args {
				if a.Name != nil && (n.Variant.Value == "export" || n.Variant.Value == "declare") {
					if isManaged(a.Name.Value) {
						continue
					}
					r.exported[a.Name.Value] = r.exported[a.Name.Value] || n.Variant.Value == "export"
				}
			}
		}
		return true
	})
}

// hideNestedSecrets hides secrets that a loop or a condition assigns.
func (r *reader) hideNestedSecrets(s *syntax.Stmt) {
	syntax.Walk(s, func(n syntax.Node) bool {
		if a, ok := n.(*syntax.Assign); ok && a.Name != nil && a.Value != nil {
			if v := strings.Trim(sourceText(a.Value), `"'`); isSecret(a.Name.Value, v) {
				r.hideVariable(a.Name.Value, v)
			}
		}
		return true
	})
}

// code returns the source of a statement, unchanged.
func (r *reader) code(s *syntax.Stmt) string {
	start, end := int(s.Pos().Offset()), int(s.End().Offset())
	if start < end && end <= len(r.src) && !hasOpenDocument(s) {
		return strings.TrimSpace(strings.TrimSuffix(string(r.src[start:end]), ";"))
	}
	var b strings.Builder
	if err := syntax.NewPrinter().Print(&b, s); err != nil {
		return ""
	}
	return strings.TrimSpace(b.String())
}

// hasOpenDocument reports whether a part of the script may end before a here-document. A here-document in a
// command substitution ends inside it.
func hasOpenDocument(n syntax.Node) (found bool) {
	syntax.Walk(n, func(n syntax.Node) bool {
		d, ok := n.(*syntax.Redirect)
		found = found || ok && d.Hdoc != nil
		_, isSubstitution := n.(*syntax.CmdSubst)
		return !isSubstitution
	})
	return found
}

// isDocument reports whether a part of the script is a here-document.
func isDocument(n syntax.Node) bool {
	d, ok := n.(*syntax.Redirect)
	return ok && d.Hdoc != nil
}

// assignmentText returns the code of an assignment. The printer moves a here-document behind the command
// substitution that contains it, which bash before 5.2 cannot read.
func (r *reader) assignmentText(a *syntax.Assign) string {
	if start, end := int(a.Pos().Offset()), int(a.End().Offset()); start < end && end <= len(r.src) && hasNode(a, isDocument) {
		return string(r.src[start:end])
	}
	return sourceText(a)
}

// run keeps a statement as shell code that runs on the first node before the program, as in the
// script.
func (r *reader) run(s *syntax.Stmt) {
	syntax.Walk(s, func(n syntax.Node) bool {
		c, ok := n.(*syntax.CallExpr)
		if !ok || len(c.Args) < 2 {
			return true
		}
		isScript := func(w *syntax.Word) bool { return strings.Trim(sourceText(w), `"`) == "$0" }
		switch last := c.Args[len(c.Args)-1]; path.Base(c.Args[0].Lit()) {
		case "sbatch":
			if isScript(last) || path.Base(strings.Trim(sourceText(last), `"`)) == path.Base(r.file) {
				r.change(r.line(c), sourceText(c), "it submits the script, not the job file: use ddpbatch submit --chain")
			}
		case "cp", "rsync", "scp", "cat", "install", "tar":
			if slices.ContainsFunc(c.Args[1:], isScript) && r.hasDirectives() {
				r.note(r.line(c), sourceText(c), ownScriptReason)
			}
		}
		return true
	})
	r.hasBackground = r.hasBackground || hasNode(s, func(n syntax.Node) bool {
		s, ok := n.(*syntax.Stmt)
		return ok && s.Background
	})
	uses := usedVariables(s)
	if r.givenArgs && hasNode(s, runsInShell) { // the code inherits the arguments
		uses = append(uses, "@")
	}
	r.addStep(step{kind: stepRun, line: r.line(s), text: r.code(s), uses: uses, mayEnd: true})
}

// runsInShell reports whether a command runs further code in the shell of the script.
func runsInShell(n syntax.Node) bool {
	c, ok := n.(*syntax.CallExpr)
	return ok && len(c.Args) > 0 && slices.Contains(words("source . eval"), c.Args[0].Lit())
}

// argumentsReason returns the reason of a note about the arguments of the script.
func (r *reader) argumentsReason() string {
	switch {
	case r.setsArguments:
		return "the script sets its arguments ($1, $@) itself, but a job has none"
	case r.givenArgs:
		return "only the shell of the script has its arguments ($1, $@)"
	}
	return "a job has no command-line arguments ($1, $@): give them to init with --arg"
}

// ownScriptReason is the reason of a note about $0.
const ownScriptReason = "$0 is the script of the job, not this one"

// noteParameters adds a note if a step reads parameters that a job does not have.
func (r *reader) noteParameters(s step) {
	reads := slices.DeleteFunc(slices.Clone(s.uses), func(name string) bool { return !readsArguments(name) })
	requires := len(reads) > 0 && (!s.noArgs || strings.Contains(s.text, "exit"))
	if r.givenArgs {
		reads, requires = nil, false
	}
	if slices.Contains(s.uses, "@") && !r.givenArgs || requires {
		r.change(s.line, s.text, r.argumentsReason())
		reads = nil
	} else if slices.Contains(s.uses, "$0") && !r.hasDirectives() { // sbatch copies the script
		r.change(s.line, s.text, ownScriptReason)
	}
	for _, name := range reads {
		r.note(0, "$"+name, defaultReason)
	}
	if slices.Contains(s.uses, "?") {
		r.change(s.line, s.text, "parameters such as $? may have other values in the job")
	}
}

func (r *reader) addStep(s step) {
	if r.required && (s.mayEnd || s.kind == stepCd) {
		if s.mayEnd = false; !strings.Contains(s.text, "<<") {
			s.text += " || exit"
		}
	}
	if r.statusStep > 0 && r.statusStep == len(r.steps) && (s.kind == stepRun || s.kind == stepAssign) && slices.Contains(s.uses, "?") {
		last := r.steps[r.statusStep-1] // one step, so that $? is the exit status of its first command
		r.steps = r.steps[:r.statusStep-1]
		s.kind, s.line, s.text, s.mayEnd = stepRun, last.line, last.text+"\n"+s.text, true
		s.uses = slices.DeleteFunc(slices.Concat(last.uses, s.uses), func(name string) bool { return name == "?" })
	}
	s.errexit, s.noArgs = r.errexit, r.lacksArguments()
	s.mayEnd = s.mayEnd && !s.errexit
	if r.shellOptions["nounset"] && s.kind != stepEnv && slices.ContainsFunc(s.uses, r.mayBeUnset) {
		s.needs = append(s.needs, "nounset")
	}
	if r.shellOptions["pipefail"] && pipeSign().MatchString(s.text) {
		s.needs = append(s.needs, "pipefail")
	}
	if s.kind != stepAssign { // keptSteps decides whether the job needs it
		r.noteParameters(s)
	}
	if r.isSuspicious(s.text) || slices.ContainsFunc(s.uses, func(name string) bool { return r.hidden[name] }) && s.kind == stepRun {
		r.change(s.line, s.text, "it may contain a secret, which a job file must not contain: run it before you submit, or keep it in a script that only you can read")
		return
	}
	r.steps = append(r.steps, s)
}

// prepareDeclaration reads declarations such as export NAME=value.
func (r *reader) prepareDeclaration(s *syntax.Stmt, c *syntax.DeclClause) {
	hasValue := func(a *syntax.Assign) bool { return a.Name != nil && !a.Naked }
	if slices.ContainsFunc(s.Redirs, writesFile) && !slices.ContainsFunc(c.Args, hasValue) { // export -p >file
		r.run(s)
		return
	}
	exports, options := c.Variant.Value == "export", ""
	for _, a := range c.Args {
		if a.Name != nil || a.Value == nil || !strings.HasPrefix(a.Value.Lit(), "-") {
			continue
		}
		option := a.Value.Lit()
		if exports && (option == "-n" || option == "-f") {
			r.run(s)
			return
		}
		exports = exports || strings.Contains(option, "x")
		options += option
	}
	r.readAttributes(c)
	if strings.ContainsAny(options, "ilnu") || readsOwnNames(c) { // declare -i N=1+1
		r.hideNestedSecrets(s)
		r.run(s)
		r.markUnknown(c)
		for _, name := range setVariables(c) {
			if exports && isManaged(name) {
				r.change(r.line(s), sourceText(s), "ddpbatch sets "+name+" for each rank: export it in a separate command")
				continue
			}
			r.exported[name] = r.exported[name] || exports
		}
		return
	}
	for _, a := range c.Args {
		if a.Name == nil {
			if a.Value != nil && !strings.HasPrefix(a.Value.Lit(), "-") { // export $NAMES
				r.run(s)
				r.forget()
			}
			continue
		}
		name := a.Name.Value
		if exports {
			r.exported[name] = true
		}
		if a.Naked {
			if !exports {
				continue
			}
			if r.hidden[name] {
				r.addSecretName(r.line(s), name)
			} else if v, known := r.knownString(name); known {
				r.setVariable(r.line(s), name, v, "export "+name+"="+quoteWord(v), nil)
			} else if !isManaged(name) {
				r.addStep(step{kind: stepRun, line: r.line(s), text: "export " + name, uses: []string{name}})
			}
			continue
		}
		declaration := ""
		if options != "" && !exports { // declare -A, readonly -a
			declaration = sourceText(s)
		}
		r.prepareAssign(s, a, declaration)
	}
}

// readAttributes reads the options of a declaration that change the values of later assignments.
func (r *reader) readAttributes(c *syntax.DeclClause) {
	for _, a := range c.Args {
		if a.Name != nil || a.Value == nil || !strings.HasPrefix(a.Value.Lit(), "-") || c.Variant.Value == "export" {
			continue
		}
		if strings.Contains(a.Value.Lit(), "n") && c.Variant.Value != "local" { // local: its function has ended
			r.change(r.line(c), sourceText(c), "only a shell can follow a reference to a variable")
		}
		if strings.ContainsAny(a.Value.Lit(), "ilnu") {
			for _, name := range setVariables(c) {
				r.attributed[name] = true
			}
		}
	}
}

// readsOwnNames reports whether a declaration reads a variable that it sets before, as in export A=1 B=$A. The
// shell evaluates all values first.
func readsOwnNames(c *syntax.DeclClause) bool {
	var names []string
	for _, a := range c.Args {
		if slices.ContainsFunc(usedVariables(a), func(name string) bool { return slices.Contains(names, name) }) {
			return true
		}
		if a.Name != nil {
			names = append(names, a.Name.Value)
		}
	}
	return false
}

// prepareAssign reads NAME=value before the program. declaration is the text of a declaration with
// options.
func (r *reader) prepareAssign(s *syntax.Stmt, a *syntax.Assign, declaration string) {
	name, line := a.Name.Value, r.line(s)
	setBySlurm := isSlurmVariable(name) && isManaged(name) || name == "CUDA_VISIBLE_DEVICES" && r.job.nodeGPUs() > 0
	if r.allexport || setBySlurm {
		r.exported[name] = true
	}
	if n, _ := r.knownString("#"); n == "0" && a.Value != nil && (isAllArguments(a.Value) || sourceText(a.Value) == `"$*"`) {
		r.note(line, sourceText(a), noArguments)
		a = &syntax.Assign{Name: a.Name, Append: a.Append}
	}
	known := r.assign(line, a)
	setsOthers := a.Value != nil && len(setVariables(a.Value)) > 0 // as in A=$((B=1))
	if setsOthers {
		r.markUnknown(a.Value)
	}
	if r.hidden[name] {
		return
	}
	text, uses := cmp.Or(declaration, r.assignmentText(a)), usedVariables(a)
	if a.Append {
		uses = append(uses, name)
	}
	code := text
	if r.exported[name] {
		code = "export " + text
	}
	mayEnd := a.Value != nil && r.hasFailingCommand(a.Value)
	hasEffect := a.Value != nil && (hasCommand(a.Value) && !hasPureCommands(a.Value) || setsOthers || requiresValue(a.Value) || r.errexit && mayEnd) && !isManaged(name)
	switch value, isString := r.knownString(name); {
	case !hasEffect && !r.exported[name]:
		isInherited := environmentName().MatchString(name) || programVariable().MatchString(name) || r.setupMaySet(name)
		r.addStep(step{kind: stepAssign, line: line, name: name, text: text, uses: uses, value: value, isKnown: known && isString, mayEnd: mayEnd, isInherited: isInherited})
	case !hasEffect && known && isString:
		r.setVariable(line, name, value, code, uses)
	case !r.noteUnknown(line, name, text, uses):
		r.addStep(step{kind: stepRun, line: line, text: code, uses: uses, mayEnd: hasEffect})
	}
}

// setVariable adds a variable with a known value for the ranks. text is the code that exports it, and
// uses are the variables that the code reads.
func (r *reader) setVariable(line int, name, value, text string, uses []string) {
	if isManaged(name) {
		r.keepManaged(line, name, name+"="+value, name+"="+quoteWord(value), nil)
		return
	}
	if !isValidText(value) {
		r.addStep(step{kind: stepRun, line: line, text: text, uses: uses})
		return
	}
	r.addStep(step{kind: stepEnv, line: line, name: name, value: value, text: text, uses: uses})
}

// pluginName matches the name of a plugin of Slurm, but not an expansion.
var pluginName = lazyregexp.New(`^\w+$`)

// keepManaged keeps an assignment to a variable that ddpbatch sets for each rank, for commands of the
// setup that read it. The variable is not exported. shown is the text of the note.
func (r *reader) keepManaged(line int, name, shown, code string, uses []string) {
	switch {
	case name == "SLURM_EXPORT_ENV" && code == name+"=ALL", // ddpbatch's srun has --export=ALL, and --mpi
		name == "SLURM_MPI_TYPE" && pluginName().MatchString(strings.TrimPrefix(code, name+"=")) && r.job.setIfValid("mpi", strings.TrimPrefix(code, name+"=")):
		r.addStep(step{kind: stepRun, line: line, text: "export " + code, uses: uses})
		return
	case strings.HasPrefix(name, "SLURM_") && !strings.HasPrefix(name, "SLURM_CPU_BIND"):
		r.change(line, shown, "it changes the behavior of srun, which ddpbatch controls")
	case name == "SRUN_CPUS_PER_TASK": // ddpbatch gives its srun the number of cores
		r.addStep(step{kind: stepRun, line: line, text: "export " + code, uses: uses})
		return
	case slices.Contains(rankNames, name):
		r.rankValues[name] = Note{Line: line, Text: shown}
	default:
		r.note(line, shown, cmp.Or(managedVariables[name], "ddpbatch sets it for each rank"))
	}
	if !isSlurmVariable(name) {
		r.addStep(step{kind: stepAssign, line: line, name: name, text: code, uses: uses})
	}
}

// noteUnknown reports whether a variable with an unknown value is managed by ddpbatch or is a
// secret, and adds a note then.
func (r *reader) noteUnknown(line int, name, text string, uses []string) bool {
	switch {
	case isManaged(name):
		r.keepManaged(line, name, text, text, uses)
		return true
	case isSecretName(name) && !isFileContent(text):
		r.moveToSecrets(line, name, "")
		return true
	}
	return false
}

// isFileContent reports whether an assignment sets a variable to the content of a file. The job file then has only the
// path.
func isFileContent(assignment string) bool {
	_, value, _ := strings.Cut(assignment, "=")
	value = unquote.Replace(value)
	return value != "" && fileContent().FindString(value) == value
}

// A setupCall is a simple command before the program, such as module load.
type setupCall struct {
	stmt  *syntax.Stmt
	line  int
	text  string   // source
	name  string   // without directories
	args  []string // values of the arguments, empty if not known
	known bool     // whether all arguments are known
}

// prepareCall reads a simple command before the program.
func (r *reader) prepareCall(s *syntax.Stmt, call *syntax.CallExpr) {
	if len(call.Args) == 0 {
		for _, a := range call.Assigns {
			r.prepareAssign(s, a, "")
		}
		return
	}
	if defaults := defaultAssignments(s); defaults != nil {
		for _, a := range defaults {
			r.prepareAssign(s, a, "")
		}
		return
	}
	args := r.args(call.Args)
	switch {
	case len(args) == 0: // an empty variable
		return
	case hasDefaultAssignment(call):
		r.markUnknown(call)
		r.run(s)
		return
	case !args[0].known:
		r.run(s)
		r.forget()
		r.removeArguments()
		return
	}
	c := setupCall{stmt: s, line: r.line(s), text: sourceText(s), name: path.Base(args[0].text)}
	c.args, c.known = r.arguments(call.Args[1:])
	isRedirected := s.Background || slices.ContainsFunc(s.Redirs, func(d *syntax.Redirect) bool { return writesFile(d) || d.Op == syntax.RdrIn || d.Hdoc != nil })
	before := len(r.steps)
	switch {
	case isRedirected && c.name == "exec" && len(call.Args) == 1:
		r.note(c.line, c.text, "the log is in the run directory")
	case isRedirected && r.functions[args[0].text] != nil:
		r.prepareFunction(s, args[0].text)
	case isRedirected && !slices.Contains(words("source . module cd eval"), c.name):
		r.markUnknown(call)
		r.run(s)
	case r.callsHarmlessFunction(args[0].text) && !(r.errexit && r.mayFail(r.functions[args[0].text])):
	case r.functions[args[0].text] != nil:
		r.prepareFunction(s, args[0].text)
	default:
		r.prepareCommand(c)
	}
	isSetup := slices.Contains(words("module ml source . conda mamba micromamba cd pushd"), c.name)
	if isSetup && !slices.ContainsFunc(r.steps[before:], func(s step) bool { return s.kind == stepRun }) {
		r.setupWords = append(r.setupWords, usedVariables(call)...)
	}
}

// prepareFunction reads a call of a function of the script.
func (r *reader) prepareFunction(s *syntax.Stmt, name string) {
	r.readFunction(name)
	r.run(s)
	r.forget()
}

// readFunction reads the effects on the shell of a function of the script.
func (r *reader) readFunction(name string) {
	body := r.functions[name]
	if !r.follow(body) {
		r.forget()
		return
	}
	r.functions[name] = nil // without the calls of a recursive function
	r.markUnknown(body)
	r.hideNestedSecrets(body)
	arguments := r.removeArguments() // a function has its own
	r.readEffects(body)
	maps.Copy(r.vars, arguments)
	r.functions[name] = body
}

// endOfExports matches the end of set -a, which exports all variables.
var endOfExports = lazyregexp.New(`\bset \+(?:a|o allexport)\b`)

// endsExports reports whether the script ends set -a. It searches only once.
func (r *reader) endsExports() bool {
	if r.exportsEnd == nil {
		found := endOfExports().Match(r.src)
		r.exportsEnd = &found
	}
	return *r.exportsEnd
}

// prepareCommand reads a program or a builtin command of the shell.
func (r *reader) prepareCommand(c setupCall) {
	switch c.name {
	case "module", "ml":
		r.prepareModule(c)
	case "source", ".":
		r.prepareSource(c)
	case "conda", "mamba", "micromamba":
		r.prepareConda(c)
	case "cd", "pushd":
		r.changeDirectory(c)
	case "popd":
		r.leaveDirectory(c)
	case "trap":
		r.change(c.line, c.text, "a job file has no traps")
	case "shift":
		isKnown := r.shiftArguments(c)
		r.addStep(step{kind: stepRun, line: c.line, text: r.code(c.stmt), uses: usedVariables(c.stmt), mayEnd: true, shifts: isKnown})
	case "exit":
		r.change(c.line, c.text, "the script ends here")
	case "set":
		option := strings.Join(c.args, " ")
		switch {
		case (option == "-a" || option == "-o allexport") && r.endsExports():
			r.allexport = true
			r.run(c.stmt)
			return
		case r.allexport && (option == "+a" || option == "+o allexport"):
			r.allexport = false
			r.run(c.stmt)
			return
		}
		r.readShellOptions(c.line, c.text, c.args)
	case "shopt":
		r.run(c.stmt)
		r.readExpansionOptions(c.line, c.text, c.args)
	case "unset":
		if !c.known {
			r.forget()
		}
		for _, a := range c.args {
			r.unset(a)
			delete(r.exported, a)
			r.job.secrets = slices.DeleteFunc(r.job.secrets, func(s string) bool { return s == a })
		}
		r.run(c.stmt)
	case "eval":
		if strings.Contains(c.text, "conda") && strings.Contains(c.text, "hook") {
			r.addStep(step{kind: stepHook, line: c.line, text: r.code(c.stmt)})
			return
		}
		r.run(c.stmt)
		r.forget()
		r.removeArguments()
	case "builtin", "command":
		if len(c.args) > 0 && slices.Contains(words("cd pushd popd source . eval set shift unset export declare read exit exec trap"), c.args[0]) {
			r.change(c.line, c.text, "write it without "+c.name)
		}
		r.run(c.stmt)
	default:
		if !r.isHarmless(c.stmt) || r.errexit && r.mayFail(c.stmt) {
			r.markUnknown(c.stmt.Cmd)
			r.run(c.stmt)
		}
	}
}

// setOptions are values of set -o.
var setOptions = words("allexport errexit noglob nounset pipefail verbose xtrace")

// setsArguments reports whether a part of the script sets the positional parameters of the shell.
func setsArguments(n syntax.Node) bool {
	return hasNode(n, func(n syntax.Node) bool {
		c, ok := n.(*syntax.CallExpr)
		if !ok {
			return false
		}
		args := c.Args
		for len(args) > 0 && slices.Contains(words("builtin command"), args[0].Lit()) {
			args = args[1:]
		}
		return len(args) > 1 && args[0].Lit() == "set" && slices.ContainsFunc(args[1:], func(w *syntax.Word) bool {
			text := w.Lit()
			return text == "--" || !strings.HasPrefix(text, "-") && !strings.HasPrefix(text, "+") && !slices.Contains(setOptions, text)
		})
	})
}

// readShellOptions reads the arguments of set, or the options of the shell in the first line.
func (r *reader) readShellOptions(line int, text string, args []string) {
	on := false
	for _, a := range args {
		isOption := strings.HasPrefix(a, "-") || strings.HasPrefix(a, "+")
		if isOption {
			on = a[0] == '-'
		}
		if isOption && strings.Contains(a, "e") || a == "errexit" {
			r.errexit = on
		}
		if isOption && strings.Contains(a, "u") || a == "nounset" {
			r.setShellOption(line, "nounset", on)
		}
		if a == "pipefail" {
			r.setShellOption(line, a, on)
		}
		if a == "--" || !isOption && !slices.Contains(setOptions, a) {
			r.change(line, text, r.argumentsReason())
		}
		if a == "noglob" || strings.HasPrefix(a, "-") && strings.Contains(a, "f") {
			r.expansionCommand = text
		}
		if a == "-a" || a == "allexport" {
			r.change(line, text, "it exports all variables: use export")
		}
	}
}

// setShellOption records an option of the shell that can end the script. The setup sets it if it has such a step.
func (r *reader) setShellOption(line int, name string, on bool) {
	r.shellOptions[name] = on
	r.addStep(step{kind: stepRun, line: line, text: "set " + map[bool]string{true: "-o ", false: "+o "}[on] + name, option: name})
}

// pipeSign matches a pipe in shell code.
var pipeSign = lazyregexp.New(`[^|>]\|[^|]`)

// mayBeUnset reports whether a name in the result of usedVariables is a variable that neither the script nor Slurm
// sets.
func (r *reader) mayBeUnset(name string) bool {
	return isPlainName(name) && !r.vars[name].Set && !r.scriptVars[name] && len(r.assignments[name]) == 0 && !isSlurmVariable(name) &&
		!slices.Contains(rankVariables, name) && !slices.Contains(words("HOME USER LOGNAME PATH PWD SHELL UID OPTARG REPLY"), name)
}

// readExpansionOptions reads the arguments of shopt.
func (r *reader) readExpansionOptions(line int, text string, args []string) {
	for _, a := range args {
		switch a {
		case "nullglob", "failglob", "dotglob", "globstar", "extglob", "nocaseglob":
			r.expansionCommand = text
		case "expand_aliases":
			r.change(line, text, "the program and its arguments may be aliases")
		}
	}
}

// prepareConda reads conda and the compatible commands.
func (r *reader) prepareConda(c setupCall) {
	verb := ""
	if len(c.args) > 0 {
		verb = c.args[0]
	}
	switch {
	case c.name == "conda" && verb == "activate" && c.known && len(c.args) == 2:
		r.addStep(step{kind: stepConda, line: c.line, value: c.args[1], text: c.text})
	case verb == "deactivate" || !r.isHarmless(c.stmt):
		r.run(c.stmt)
	}
}

// hasDefaultAssignment reports whether a command contains ${NAME:=value} or $((NAME=value)).
func hasDefaultAssignment(n syntax.Node) bool {
	return hasNode(n, func(n syntax.Node) bool {
		if x, ok := n.(*syntax.ArithmExp); ok {
			return assignsVariable(x.X)
		}
		e, ok := n.(*syntax.ParamExp)
		return ok && e.Exp != nil && (e.Exp.Op == syntax.AssignUnset || e.Exp.Op == syntax.AssignUnsetOrNull)
	})
}

// defaultAssignments returns NAME=${NAME:-value} for each argument of `: ${NAME:=value}`. It returns nil for other
// commands.
func defaultAssignments(s *syntax.Stmt) (list []*syntax.Assign) {
	call, ok := s.Cmd.(*syntax.CallExpr)
	if !ok || len(call.Assigns) > 0 || len(call.Args) < 2 || call.Args[0].Lit() != ":" || len(s.Redirs) > 0 || s.Background || s.Negated {
		return nil
	}
	for _, w := range call.Args[1:] {
		if len(w.Parts) != 1 {
			return nil
		}
		part := w.Parts[0]
		q, isQuoted := part.(*syntax.DblQuoted)
		if isQuoted && len(q.Parts) == 1 && !q.Dollar {
			part = q.Parts[0]
		}
		e, ok := part.(*syntax.ParamExp)
		if !ok || e.Param == nil || !isPlainName(e.Param.Value) || e.Exp == nil || e.Excl || e.Length || e.Index != nil {
			return nil
		}
		expansion, param := *e.Exp, *e
		switch expansion.Op {
		case syntax.AssignUnset:
			expansion.Op = syntax.DefaultUnset
		case syntax.AssignUnsetOrNull:
			expansion.Op = syntax.DefaultUnsetOrNull
		default:
			return nil
		}
		param.Exp = &expansion
		part = &param
		if isQuoted {
			quoted := *q
			quoted.Parts = []syntax.WordPart{part}
			part = &quoted
		}
		list = append(list, &syntax.Assign{Name: e.Param, Value: &syntax.Word{Parts: []syntax.WordPart{part}}})
	}
	return list
}

// markUnknown marks the variables that a part of the script sets as unknown.
func (r *reader) markUnknown(n syntax.Node) {
	for _, name := range setVariables(n) {
		r.scriptVars[name], r.altered[name] = true, len(r.steps)+1
		delete(r.vars, name)
	}
	if setsUnknownName(n) {
		r.forget()
	}
}

// unset marks a variable, or the array of an element such as a[1], as unknown.
func (r *reader) unset(name string) {
	name, _, _ = strings.Cut(name, "[")
	delete(r.vars, name)
	r.altered[name] = len(r.steps) + 1
}

// changeDirectory reads cd.
func (r *reader) changeDirectory(c setupCall) {
	home, _ := r.knownString("HOME")
	list := c.args
	if len(list) > 0 && (list[0] == "--" || list[0] == "-P" || list[0] == "-L") {
		list = list[1:]
	}
	switch {
	case len(list) == 0 && c.known && home != "" && c.name == "cd":
		list = []string{home}
	case !c.known || len(list) != 1 || strings.HasPrefix(list[0], "-") || strings.HasPrefix(list[0], "+"): // pushd +1
		r.leaveDirectory(c)
		return
	}
	dir, wasUnknown := list[0], r.unknownDir
	pwd, isKnown := r.knownString("PWD")
	switch {
	case filepath.IsAbs(dir):
		r.job.workdir, r.job.shellDir, r.unknownDir = filepath.Clean(dir), "", false
		pwd, isKnown = "", true
	case r.job.shellDir != "":
		r.job.shellDir += "/" + quoteWord(dir)
	default:
		r.job.workdir = filepath.Join(r.job.workdir, dir)
	}
	if isKnown {
		r.setString("PWD", filepath.Join(pwd, dir))
	}
	if dir == r.options.Dir && c.name == "cd" && !wasUnknown && !slices.ContainsFunc(r.steps, func(s step) bool { return s.kind == stepCd }) {
		return // the directory from which the script was submitted
	}
	r.addStep(step{kind: stepCd, line: c.line, text: c.name + " " + quoteWord(dir)})
}

// leaveDirectory reads cd to a directory that is known only to a shell.
func (r *reader) leaveDirectory(c setupCall) {
	target, isPlain := strings.CutPrefix(c.text, "cd ")
	uses := usedVariables(c.stmt)
	isOutside := func(name string) bool { // the shell of a rank does not have the value
		return slices.Contains(shellParameters, name) || name == "$0" || name == "$(" || strings.HasSuffix(name, "[]") || readsArguments(name) && !r.lacksArguments()
	}
	isFirst := r.job.shellDir == "" && slices.Contains([]string{"", r.options.Dir}, r.job.workdir) // a later one may be relative
	if len(uses) > 0 && !slices.ContainsFunc(uses, isOutside) && isPlain && !strings.Contains(target, " ") && isFirst {
		r.job.shellDir, r.job.workdir = target, ""
		r.dirNames, r.dirStmt, r.dirStep = uses, c.stmt, len(r.steps)
		r.addNeeded(uses)
		delete(r.vars, "PWD")
	} else {
		r.loseDirectory()
	}
	r.addStep(step{kind: stepCd, line: c.line, text: c.text, uses: uses})
}

// unknownDirectory is the reason of a note about a directory that only the shell of the script knows.
const unknownDirectory = "the directory is known only to a shell: set command.workdir"

// rankDirectory is the variable that holds the directory of the program if only the setup knows it.
const rankDirectory = "RANK_DIRECTORY"

// loseDirectory records that only the setup knows the directory of the program.
func (r *reader) loseDirectory() {
	r.unknownDir, r.dirNames, r.needed = true, nil, nil
	r.job.shellDir, r.job.workdir = `"$`+rankDirectory+`"`, ""
	delete(r.vars, "PWD")
}

// exportDirectory makes the setup export the directory of the program if only the setup knows it, or if a variable in
// the directory may change between the cd and the program.
func (r *reader) exportDirectory(program syntax.Node) {
	changes := func(name string) bool {
		return r.altered[name] > r.dirStep+1 || r.foreignSteps > r.dirStep || slices.ContainsFunc(r.assignments[name], func(a *syntax.Assign) bool {
			return a.Pos().After(r.dirStmt.Pos()) && !a.Pos().After(program.Pos())
		})
	}
	if !r.unknownDir && (r.job.shellDir == "" || !slices.ContainsFunc(r.dirNames, changes)) {
		return
	}
	r.loseDirectory() // without later directories, which are relative
	r.addStep(step{kind: stepRun, line: r.line(program), text: "export " + rankDirectory + "=$PWD", uses: []string{"PWD"}})
	r.exported[rankDirectory] = true
	r.note(0, "$"+rankDirectory, exportedReason)
}

// prepareModule reads module and ml.
func (r *reader) prepareModule(c setupCall) {
	list := c.args
	if c.name == "ml" && len(list) > 0 && !slices.Contains(words("purge load use unload swap list add av avail spider save restore"), list[0]) && !strings.HasPrefix(list[0], "-") {
		list = append([]string{"load"}, list...)
	}
	isPlain := c.known && len(list) > 1 && (list[0] == "load" || list[0] == "add")
	for _, m := range list[min(1, len(list)):] {
		var w jobs.Word
		isPlain = isPlain && w.UnmarshalTOML(m) == nil
	}
	switch {
	case isPlain:
		for _, m := range list[1:] {
			r.addStep(step{kind: stepModule, line: c.line, value: m, text: "module load " + quoteWord(m)})
		}
	case len(list) == 0 || slices.Contains(words("list avail av show spider li help whatis"), list[0]):
	default:
		r.run(c.stmt)
	}
}

// environmentFile matches files that set up a shell. They do not change variables of a script.
var environmentFile = lazyregexp.New(`(?:/etc/profile|/etc/bashrc|\.bashrc|\.bash_profile|\.profile|conda\.sh|mamba\.sh|/lmod/.*|/init/(?:bash|sh)|modules?\.sh|bin/activate|/activate)$`)

// prepareSource reads source, and recognizes files that activate an environment.
func (r *reader) prepareSource(c setupCall) {
	file := ""
	if len(c.args) > 0 {
		file = c.args[0]
	}
	venv, isVenv := strings.CutSuffix(file, "/bin/activate")
	if isVenv && !filepath.IsAbs(venv) && r.job.shellDir == "" {
		venv = filepath.Join(r.job.workdir, venv)
	}
	isOnly := c.known && len(c.args) == 1
	switch {
	case c.known && len(c.args) == 2 && (file == "activate" || file == "activate.sh"):
		r.addStep(step{kind: stepConda, line: c.line, value: c.args[1], text: c.text})
	case isOnly && file == "activate":
		r.addStep(step{kind: stepConda, line: c.line, value: "base", text: c.text})
	case isOnly && isVenv && !isCondaPath(file) && (filepath.IsAbs(file) || r.job.shellDir == ""):
		r.addStep(step{kind: stepVenv, line: c.line, value: venv, text: r.code(c.stmt)})
	default:
		r.run(c.stmt)
		isEnvironment := isOnly && file == "deactivate" || c.known && environmentFile().MatchString(file) || environmentFile().MatchString(strings.Trim(c.text, `"`)) ||
			len(c.args) == 2 && strings.HasSuffix(file, "/activate")
		if !isEnvironment {
			r.forget()
			r.removeArguments()
		}
	}
}

// forget marks the values of the script's variables as unknown, because code that the reader
// cannot follow may have changed them.
func (r *reader) forget() {
	r.foreign, r.foreignSteps = true, len(r.steps)
	for name := range r.scriptVars {
		delete(r.vars, name)
	}
}

func isCondaPath(file string) bool {
	file = strings.ToLower(file)
	return strings.Contains(file, "conda") || strings.Contains(file, "mamba") || strings.Contains(file, "miniforge")
}

// addNeeded records variables that the program's command reads on the node.
func (r *reader) addNeeded(names []string) {
	for _, name := range names {
		if !slices.Contains(r.needed, name) {
			r.needed = append(r.needed, name)
		}
	}
}
