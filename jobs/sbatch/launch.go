package sbatch

import (
	"path"
	"slices"
	"strings"

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

	containerDir string // --container-workdir as bash code; only the container may have the directory

	// Numbers in the options of srun or mpirun; 0 if not given.
	srun struct {
		nodes, tasks, tasksPerNode, cpus, taskGPUs, gpuTasks, gpuCPUs int
		exact                                                         bool // --exact or --exclusive
	}
}

// noInput is the reason of a note about a file that the program reads as standard input.
const noInput = "the program has no standard input"

// convertLaunch converts the command that starts the program.
func (r *reader) convertLaunch(s *syntax.Stmt, call *syntax.CallExpr) {
	c := &command{r: r, line: r.line(s), stmt: s}
	r.exportDirectory(s)
	c.args = r.expandLists(r.args(call.Args), 0) // without the assignments, as a shell does
	for _, a := range call.Assigns {
		r.exported[a.Name.Value] = true
		r.prepareAssign(s, a, "")
		if slices.ContainsFunc(c.args, func(w arg) bool { return !w.known && slices.Contains(usedVariables(w.word), a.Name.Value) }) {
			c.change(sourceText(a), "the arguments have the value before the assignment, but ranks have only the new one")
		}
	}
	for _, redirect := range s.Redirs {
		switch {
		case readsFile(redirect):
			r.change(r.line(redirect), sourceText(s), noInput)
		case writesFile(redirect):
			r.note(r.line(redirect), sourceText(s), "redirections are dropped: the log is in the run directory")
		}
	}
	c.unwrap()
}

func (c *command) note(what, why string) { c.r.note(c.line, what, why) }

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
		case slices.Contains(plainWrappers, base) && !strings.HasPrefix(next, "-") && len(c.args) > 1:
			c.args = c.args[1:]
		case base == "env" && c.takeEnvironment():
		case base == "timeout" && c.takeTimeout():
		case base == "eval" && c.takeEvaluated():
		case base == "eval":
			c.change(sourceText(c.stmt), "only the shell of the script knows the command that eval runs: set command.argv")
			return
		case base == "srun" && !c.inSrun:
			if !c.convertSrun() {
				return
			}
		case slices.Contains(mpirunNames, base) && !c.inSrun:
			if !c.convertMpirun(base) {
				return
			}
		case (base == "apptainer" || base == "singularity" || base == "shifter") && c.convertContainer(base):
		case base == "torchrun" && first.text == "torchrun" && !(c.isOnOneNode() && c.hasUnknownCount(c.args[1:])):
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
	call := parseSimple(strings.Join(parts, " "))
	if call == nil {
		return nil
	}
	return r.args(call.Args)
}

// takeTimeout moves timeout in front of the program, if it limits the time of srun. It reports whether
// it does.
func (c *command) takeTimeout() bool {
	inner := skipWrapper("timeout", c.args[1:])
	if !startsSrun(inner) {
		return false
	}
	c.prefix, c.args = slices.Clone(c.args[:len(c.args)-len(inner)]), inner
	return true
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
		c.r.moveToSecrets(c.line, name, value)
		return
	}
	c.r.exported[name] = true
	c.r.setVariable(c.line, name, value, "export "+name+"="+quoteWord(value), nil)
}

// takeProgram continues with the program that a launcher starts. It returns false without a program. If
// ok is false, only a shell can tell the launcher's options from the program.
func (c *command) takeProgram(launcher string, program []arg, ok bool) bool {
	if !ok {
		c.change(sourceText(c.stmt), "cannot tell the options of "+launcher+" from the program: set command.argv")
		c.layout()
		return false
	}
	if startsSeveral(program) {
		c.change(sourceText(c.stmt), "it starts several programs: a job file has one program")
	}
	c.inSrun, c.args = true, program
	return len(program) > 0
}

// startsSeveral reports whether a launcher starts several programs, which it separates with a
// colon.
func startsSeveral(args []arg) bool {
	return slices.ContainsFunc(args, func(a arg) bool { return a.known && a.text == ":" })
}
