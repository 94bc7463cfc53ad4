package sbatch

import (
	"bytes"
	"maps"
	"path"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// Strengths of a command that may be the job's program.
const (
	notProgram    = iota
	maybeProgram  // an unknown command
	plainProgram  // python, a path, or a container
	launchProgram // srun, torchrun, mpirun, and similar launchers
)

// A candidate is a command of the script that may be the job's program.
type candidate struct {
	stmt       *syntax.Stmt
	call       *syntax.CallExpr
	top        int // index of the statement of the script that contains it
	strength   int
	background bool
	isNested   bool // in a loop, a condition, a function, or a subshell
	isFallback bool // after ||
}

// isConcurrent reports whether the command may run several times at the same time, as in a loop.
func (c candidate) isConcurrent() bool { return c.background && c.isNested }

// preference returns how well a candidate qualifies; higher is better. A launcher in the background,
// such as a monitor, has a lower preference than a plain program. A command after || has the
// lowest.
func (c candidate) preference() int {
	n := c.strength * 4
	if c.strength == launchProgram && c.background {
		n = plainProgram*4 - 1
	}
	if !c.background {
		n += 2
	}
	if c.isFallback {
		n = 1
	}
	return n
}

// findProgram returns the script's program: the last command with the highest preference. It
// also returns the other commands that may run in the background when the program starts.
func (r *reader) findProgram(stmts []*syntax.Stmt) (program *candidate, others []candidate) {
	f := &finder{r: r.fork(), functions: map[string]bool{}}
	for i, s := range stmts {
		f.top = i
		f.visit(s, candidate{})
	}
	for i := range f.found {
		if c := &f.found[i]; program == nil || c.preference() >= program.preference() {
			program = c
		}
	}
	for _, c := range f.found {
		if c.background && c.strength >= plainProgram && c.top < program.top && !slices.ContainsFunc(stmts[c.top+1:program.top], waitsForAll) {
			others = append(others, c)
		}
	}
	return program, others
}

// waitsForAll reports whether a statement waits for all commands in the background, or for each process in a list.
func waitsForAll(s *syntax.Stmt) bool {
	loop, isLoop := s.Cmd.(*syntax.ForClause)
	if isLoop && len(loop.Do) == 1 {
		s = loop.Do[0]
	}
	c, ok := s.Cmd.(*syntax.CallExpr)
	return ok && !s.Background && len(c.Args) > 0 && c.Args[0].Lit() == "wait" && (len(c.Args) == 1 || isLoop || isList(c.Args[1]))
}

// unroll returns the commands of a group such as { a; b; }, or of a loop over one word, such as `for seed in 42`,
// after an assignment of the word. It returns nil for other statements.
func unroll(s *syntax.Stmt) []*syntax.Stmt {
	if group, ok := s.Cmd.(*syntax.Block); ok && !s.Background && !s.Negated && len(s.Redirs) == 0 {
		return group.Stmts
	}
	loop, ok := s.Cmd.(*syntax.ForClause)
	if !ok || loop.Select || s.Background || s.Negated || len(s.Redirs) > 0 {
		return nil
	}
	iter, ok := loop.Loop.(*syntax.WordIter)
	if !ok || len(iter.Items) != 1 {
		return nil
	}
	value := iter.Items[0].Lit()
	leavesLoop := func(n syntax.Node) bool {
		c, ok := n.(*syntax.CallExpr)
		return ok && len(c.Args) > 0 && slices.Contains(words("break continue"), c.Args[0].Lit())
	}
	if value == "" || strings.Trim(value, plainChars) != "" || hasNode(loop, leavesLoop) {
		return nil
	}
	assign := &syntax.Assign{Name: iter.Name, Value: iter.Items[0]}
	return append([]*syntax.Stmt{{Position: s.Position, Cmd: &syntax.CallExpr{Assigns: []*syntax.Assign{assign}}}}, loop.Do...)
}

// takenBranch returns the commands of a condition that the script runs, if the condition compares values
// that the script sets. It returns nil for other statements. top is the index of the statement.
func (r *reader) takenBranch(stmts []*syntax.Stmt, top int) []*syntax.Stmt {
	s := stmts[top]
	clause, ok := s.Cmd.(*syntax.IfClause)
	if !ok || s.Background || s.Negated || len(s.Redirs) > 0 {
		return nil
	}
	if bytes.Contains(r.src, []byte("nocasematch")) { // changes [[
		return nil
	}
	before := r.fork()
	for _, s := range stmts[:top] {
		before.prepare([]*syntax.Stmt{s})
		if _, isConditional := s.Cmd.(*syntax.BinaryCmd); isConditional { // prepare assumes that cd succeeds in cd x && A=1
			before.markUnknown(s)
		}
	}
	for part := clause; part != nil; part = part.Else {
		if len(part.Cond) == 0 { // else
			return part.Then
		}
		isTrue, known := before.testCondition(part.Cond)
		if !known || len(before.defaults) > 0 { // the environment may change the result
			return nil
		}
		if isTrue {
			return part.Then
		}
	}
	return nil
}

// testCondition returns the result of a condition, and whether it compares known values only.
func (r *reader) testCondition(cond []*syntax.Stmt) (isTrue, known bool) {
	if len(cond) != 1 || cond[0].Negated || cond[0].Background || len(cond[0].Redirs) > 0 {
		return false, false
	}
	var list []string
	switch c := cond[0].Cmd.(type) {
	case *syntax.CallExpr:
		last := len(c.Args) - 1
		if last == 0 {
			list, known = r.arguments(c.Args)
			isTrue = slices.Equal(list, []string{"true"})
			return isTrue, known && (isTrue || slices.Equal(list, []string{"false"}))
		}
		if last > 0 && c.Args[0].Lit() == "[" && c.Args[last].Lit() == "]" {
			list, known = r.arguments(c.Args[1:last])
		}
	case *syntax.TestClause:
		x, ok := c.X.(*syntax.BinaryTest)
		if !ok {
			return false, false
		}
		left, isWord := x.X.(*syntax.Word)
		right, isRightWord := x.Y.(*syntax.Word)
		if !isWord || !isRightWord {
			return false, false
		}
		a, isKnown := r.word(left)
		b, isRightKnown := r.word(right)
		list, known = []string{a, x.Op.String(), b}, isKnown && isRightKnown && !strings.ContainsAny(b, `*?[(\`) // no pattern
	}
	if !known || len(list) != 3 {
		return false, false
	}
	isEqual := list[0] == list[2]
	switch list[1] {
	case "=", "==":
		return isEqual, true
	case "!=":
		return !isEqual, true
	case "-eq", "-ne":
		return isEqual == (list[1] == "-eq"), isPlainNumber(list[0]) && isPlainNumber(list[2])
	}
	return false, false
}

// isPlainNumber reports whether a text is a number without a sign and leading zeros.
func isPlainNumber(s string) bool { return isNumber(s) && len(s) < 19 && (s == "0" || s[0] != '0') } // larger numbers are errors

// fork returns a reader for a first pass, which shares no state with r and adds no notes to it.
func (r *reader) fork() *reader {
	n := newReader(r.src, r.options)
	*n.job = *r.job
	n.job.slurm, n.job.raw, n.job.env = maps.Clone(r.job.slurm), maps.Clone(r.job.raw), maps.Clone(r.job.env)
	n.vars, n.assignments, n.givenArgs = maps.Clone(r.vars), r.assignments, r.givenArgs
	return n
}

// A finder searches a script for candidates.
type finder struct {
	r         *reader
	functions map[string]bool // names of the script's functions
	found     []candidate
	top       int
}

func (f *finder) visitAll(list []*syntax.Stmt, c candidate) {
	for _, s := range list {
		f.visit(s, c)
	}
}

// visit searches a statement. c holds the context.
func (f *finder) visit(s *syntax.Stmt, c candidate) {
	c.background = c.background || s.Background
	nested := c
	nested.isNested = true
	switch cmd := s.Cmd.(type) {
	case *syntax.CallExpr:
		list := defaultAssignments(s)
		if len(cmd.Args) == 0 {
			list = cmd.Assigns
		}
		if len(cmd.Args) == 0 || list != nil {
			for _, a := range list {
				f.assign(s, a, c)
			}
			return
		}
		c.stmt, c.call, c.top = s, cmd, f.top
		if c.strength = f.classify(f.r.args(cmd.Args), 0); c.strength > notProgram {
			f.found = append(f.found, c)
		}
	case *syntax.DeclClause:
		for _, a := range cmd.Args {
			if a.Name != nil && !a.Naked {
				f.assign(s, a, c)
			}
		}
	case *syntax.TimeClause:
		if cmd.Stmt != nil {
			f.visit(cmd.Stmt, c)
		}
	case *syntax.BinaryCmd:
		f.visit(cmd.X, c)
		switch cmd.Op {
		case syntax.OrStmt:
			c.isFallback = true
		case syntax.Pipe, syntax.PipeAll:
			c = nested // reads the output of another command
			if len(f.found) > 0 && f.found[len(f.found)-1].top == f.top {
				return
			}
		}
		f.visit(cmd.Y, c)
	case *syntax.Block:
		f.visitAll(cmd.Stmts, nested)
	case *syntax.Subshell:
		f.visitAll(cmd.Stmts, nested)
	case *syntax.IfClause:
		for part := cmd; part != nil; part = part.Else {
			f.visitAll(part.Cond, nested)
			f.visitAll(part.Then, nested)
		}
	case *syntax.WhileClause:
		f.visitAll(cmd.Cond, nested)
		f.visitAll(cmd.Do, nested)
	case *syntax.ForClause:
		for _, name := range setVariables(cmd) {
			delete(f.r.vars, name)
		}
		f.visitAll(cmd.Do, nested)
	case *syntax.CaseClause:
		for _, item := range cmd.Items {
			f.visitAll(item.Stmts, nested)
		}
	case *syntax.FuncDecl:
		if cmd.Name == nil || cmd.Body == nil { // "() command", which bash rejects
			return
		}
		f.functions[cmd.Name.Value] = true
		removed := f.r.removeArguments()
		f.visit(cmd.Body, nested)
		maps.Copy(f.r.vars, removed)
	}
}

func (f *finder) assign(s *syntax.Stmt, a *syntax.Assign, c candidate) {
	f.r.assign(f.r.line(s), a)
	if c.isNested {
		delete(f.r.vars, a.Name.Value)
	}
}

// wrappers are commands that run the rest of their command line as it is.
var wrappers = wordSet("exec time nohup command env stdbuf timeout nice numactl taskset unbuffer xvfb-run catchsegv ionice setsid builtin")

// plainWrappers are wrappers that the job does not need.
var plainWrappers = words("exec time nohup command builtin")

// wrapperValued contains the one-letter options of wrappers that have a value as the next word.
var wrapperValued = map[string]string{"env": "uCS", "nice": "n", "taskset": "c", "timeout": "sk", "time": "fo", "exec": "a", "xvfb-run": "ns"}

// launchers are commands that start several processes.
var launchers = wordSet("srun mpirun mpiexec mpiexec.hydra prun torchrun accelerate deepspeed horovodrun ibrun jsrun aprun colossalai composer fabric lightning")

var containers = wordSet("apptainer singularity shifter docker podman podman-hpc enroot charliecloud ch-run")

// runners start a program in a Python environment, as in `uv run`.
var runners = wordSet("uv poetry pipenv pixi conda mamba micromamba hatch pdm")

// setupCommands prepare a job. They are its program only in forms that classify accepts, such as `uv run`.
var setupCommands = wordSet(`mkdir cp mv rm rmdir ln rsync tar unzip gunzip gzip zip unpigz pigz zstd wget curl git pip pip3 conda mamba micromamba chmod chown chgrp touch cat sed awk grep egrep
	head tail source . export module ml find kill pkill killall virtualenv uv poetry pipenv pixi cd pushd popd ulimit umask unset test [ trap read shift return exit
	break continue eval let shopt alias wandb huggingface-cli hf ssh scp ssh-add sshpass sbcast sgather sacct sstat seff squeue scancel sbatch sinfo
	nvidia-cuda-mps-control nvcc gcc make cmake ninja tee sort uniq wc du df stat file diff mktemp basename dirname realpath readlink md5sum sha256sum jq xargs cut tr
	seq jobs disown login lfs getopts set deactivate activate mapfile readarray dcgmi type hash tensorboard spack aws gsutil rclone s3cmd msrun`)

// harmlessCommands only print or wait.
var harmlessCommands = wordSet(`echo printf date hostname true false : sleep wait exit nvidia-smi rocm-smi amd-smi env printenv pwd ls free scontrol which lscpu uname whoami id nproc uptime df du
	numactl ibstat ibv_devinfo clear logger squeue sacct seff sstat ifconfig ip lsb_release groups type jobs sync quota myquota`)

// classify returns the strength of a command.
func (f *finder) classify(args []arg, depth int) int {
	if len(args) == 0 || depth > 8 {
		return notProgram
	}
	first := args[0]
	if !first.known {
		if first.word.Lit() == "[" { // it could also be a pattern of file names
			return notProgram
		}
		return plainProgram
	}
	base := path.Base(first.text)
	rest := args[1:]
	switch {
	case f.functions[first.text]:
		return notProgram // its commands were visited
	case base == "srun":
		return f.classifySrun(rest, depth)
	case base == "eval":
		return f.classify(f.r.evaluated(rest), depth+1)
	case wrappers[base]:
		return f.classify(skipWrapper(base, rest), depth+1)
	case base == "accelerate" || base == "colossalai" || base == "fabric" || base == "lightning":
		if slices.Contains(words("launch run fit"), firstWord(rest)) {
			return launchProgram
		}
		return notProgram
	case launchers[base]:
		if isVersionCheck(args) {
			return notProgram
		}
		return launchProgram
	case containers[base]:
		return f.classifyContainer(base, rest, depth)
	case runners[base] && firstWord(rest) == "run":
		i := slices.IndexFunc(rest, func(a arg) bool { return a.text == "run" })
		inner := rest[i+1:]
		for len(inner) > 0 && inner[0].known && strings.HasPrefix(inner[0].text, "-") {
			inner = inner[1:]
		}
		return max(plainProgram, f.classify(inner, depth+1))
	case strings.HasPrefix(base, "python"):
		return classifyPython(rest)
	case base == "bash" || base == "sh":
		if len(rest) == 0 || rest[0].known && rest[0].text == "-n" {
			return notProgram
		}
		return plainProgram
	case base == "wandb" && firstWord(rest) == "agent":
		return plainProgram
	case harmlessCommands[base] || setupCommands[base]:
		return notProgram
	case strings.Contains(first.text, "/") || strings.HasSuffix(base, ".py") || strings.HasSuffix(base, ".sh"):
		if isVersionCheck(args) {
			return notProgram
		}
		return plainProgram
	case base == "ray" && firstWord(rest) != "start" && firstWord(rest) != "stop":
		return plainProgram
	case base == "ray":
		return notProgram
	}
	return maybeProgram
}

// classifySrun returns the strength of srun with some arguments.
func (f *finder) classifySrun(args []arg, depth int) int {
	_, inner, ok := parseSrun(args)
	if !ok {
		return launchProgram
	}
	if len(inner) == 0 || isVersionCheck(inner) {
		return notProgram
	}
	base := path.Base(inner[0].text)
	isHarmless := harmlessCommands[base] && base != "env" && base != "numactl"
	isSetup := setupCommands[base] && !wrappers[base] && f.classify(inner, depth+1) == notProgram
	if inner[0].known && (isHarmless || isSetup) {
		return notProgram
	}
	return launchProgram
}

// classifyContainer returns the strength of a container runtime with some arguments.
func (f *finder) classifyContainer(runtime string, args []arg, depth int) int {
	_, _, inner, ok := parseContainer(runtime, args)
	if !ok {
		return notProgram
	}
	if len(inner) == 0 {
		return plainProgram
	}
	base, strength := path.Base(inner[0].text), f.classify(inner, depth+1)
	isHarmless := harmlessCommands[base] || setupCommands[base] && strength == notProgram
	switch {
	case strength == launchProgram:
		return launchProgram
	case inner[0].known && isHarmless:
		return notProgram
	}
	return plainProgram
}

// firstWord returns the first argument that is not an option.
func firstWord(args []arg) string {
	for _, a := range args {
		if a.known && !strings.HasPrefix(a.text, "-") {
			return a.text
		}
	}
	return ""
}

func isVersionCheck(args []arg) bool {
	last := args[len(args)-1]
	return last.known && len(args) <= 2 && (last.text == "--version" || last.text == "-V" || last.text == "--help")
}

// classifyPython returns the strength of python with some arguments.
func classifyPython(args []arg) int {
	for i, a := range args {
		switch {
		case !a.known:
			return plainProgram
		case a.text == "--version" || a.text == "-V" || a.text == "-VV":
			return notProgram
		case a.text == "-c":
			return maybeProgram
		case a.text == "-m":
			if i+1 >= len(args) {
				return plainProgram
			}
			switch m := args[i+1].text; {
			case slices.Contains(words("pip venv virtualenv ensurepip compileall http.server json.tool site ipykernel"), m):
				return notProgram
			case slices.Contains(words("torch.distributed.run torch.distributed.launch torch.distributed.elastic accelerate.commands.launch deepspeed.launcher.runner deepspeed.launcher.launch mpi4py"), m):
				return launchProgram
			}
			return plainProgram
		case !strings.HasPrefix(a.text, "-"):
			return plainProgram
		}
	}
	return notProgram // interactive
}

// skipWrapper returns the command that a wrapper runs.
func skipWrapper(name string, args []arg) []arg {
	i := 0
	for i < len(args) {
		a := args[i]
		switch {
		case !a.known:
			return args[i:]
		case name == "env" && strings.Contains(a.text, "=") && !strings.HasPrefix(a.text, "-"):
			i++
		case strings.HasPrefix(a.text, "-"):
			i++
			takesAll := name == "ionice" || name == "stdbuf" || name == "numactl" && a.text != "-l" && a.text != "-a"
			if len(a.text) == 2 && (takesAll || strings.Contains(wrapperValued[name], a.text[1:])) {
				i++
			}
		case name == "timeout" && strings.Trim(a.text, "0123456789.smhd") == "":
			i++
		case name == "taskset" && strings.Trim(a.text, "0123456789abcdefx,-") == "":
			i++
		default:
			return args[i:]
		}
	}
	return nil
}
