package sbatch

import (
	"bytes"
	"path"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"

	"github.com/ddpbatch/ddpbatch/internal/lazyregexp"
)

// readsOutput reports whether a command only copies or filters output.
func readsOutput(s *syntax.Stmt) bool {
	call, ok := s.Cmd.(*syntax.CallExpr)
	if !ok || len(call.Args) == 0 {
		b, ok := s.Cmd.(*syntax.BinaryCmd)
		return ok && readsOutput(b.X) && readsOutput(b.Y)
	}
	return slices.Contains(words("tee grep egrep sed awk ts cat tail head tr cut sort"), path.Base(call.Args[0].Lit()))
}

// endsProcess reports whether a statement only ends processes that the script has started. They end
// with the job anyway.
func (r *reader) endsProcess(s *syntax.Stmt) bool {
	if b, ok := s.Cmd.(*syntax.BinaryCmd); ok {
		return (b.Op == syntax.AndStmt || b.Op == syntax.OrStmt) && (r.endsProcess(b.X) || r.isHarmless(b.X)) && (r.endsProcess(b.Y) || r.isHarmless(b.Y))
	}
	c, ok := s.Cmd.(*syntax.CallExpr)
	if !ok || len(c.Args) < 2 || c.Args[0].Lit() != "kill" {
		return ok && len(c.Args) == 2 && c.Args[0].Lit() == "ray" && c.Args[1].Lit() == "stop"
	}
	for _, w := range c.Args[1:] {
		text := sourceText(w)
		name := strings.Trim(text, `"${}`)
		isOption := strings.HasPrefix(text, "-")
		isJob := strings.HasPrefix(text, "%") || text == "$!" || text == `"$!"`
		isProcess := strings.Contains(text, "$") && len(r.assignments[name]) > 0 && !slices.ContainsFunc(r.assignments[name], func(a *syntax.Assign) bool {
			return a.Value == nil || strings.Trim(sourceText(a.Value), `"`) != "$!"
		})
		if !isOption && !isJob && !isProcess {
			return false
		}
	}
	return true
}

// maxFollowed is the maximum number of commands in the functions that the reader follows, counted for each
// call. A function can call others several times, so the number of paths grows exponentially.
const maxFollowed = 50_000

// follow reports whether the reader follows another call of a function.
func (r *reader) follow(body *syntax.Stmt) bool {
	if r.followed < maxFollowed {
		_, commands := measure(body)
		r.followed += commands
	}
	return r.followed < maxFollowed
}

// callsHarmlessFunction reports whether a command calls a function of the script that only prints.
func (r *reader) callsHarmlessFunction(name string) bool {
	body := r.functions[name]
	if body == nil || !r.follow(body) {
		return false
	}
	if len(setVariables(body)) > 0 || hasExit(body) && !r.afterProgram {
		return false
	}
	r.functions[name] = nil // a recursive function is not harmless
	defer func() { r.functions[name] = body }()
	return r.isHarmless(body)
}

// isHarmless reports whether a statement only prints or waits.
func (r *reader) isHarmless(s *syntax.Stmt) bool {
	if slices.ContainsFunc(s.Redirs, writesFile) {
		return false
	}
	switch c := s.Cmd.(type) {
	case nil, *syntax.FuncDecl:
		return true
	case *syntax.DeclClause:
		return hasPureCommands(c) && (r.afterProgram || !setsUnknownName(c))
	case *syntax.TestClause:
		setsMatch := !r.afterProgram && bytes.Contains(r.src, []byte("BASH_REMATCH")) && hasNode(c, func(n syntax.Node) bool {
			b, ok := n.(*syntax.BinaryTest)
			return ok && b.Op == syntax.TsReMatch
		})
		return hasPureCommands(c) && !setsMatch
	case *syntax.ArithmCmd:
		return hasPureCommands(c)
	case *syntax.CallExpr:
		return r.isHarmlessCall(c)
	case *syntax.BinaryCmd:
		return r.isHarmless(c.X) && (r.isHarmless(c.Y) || (c.Op == syntax.Pipe) && readsOutput(c.Y) && !mayWriteFile(c.Y))
	case *syntax.IfClause:
		for part := c; part != nil; part = part.Else {
			if !r.areHarmless(part.Cond) || !r.areHarmless(part.Then) {
				return false
			}
		}
		return true
	case *syntax.ForClause:
		return hasPureCommands(c.Loop) && r.areHarmless(c.Do)
	case *syntax.CaseClause:
		return hasPureCommands(c.Word) && !slices.ContainsFunc(c.Items, func(i *syntax.CaseItem) bool { return !r.areHarmless(i.Stmts) })
	case *syntax.Block:
		return r.areHarmless(c.Stmts)
	case *syntax.TimeClause:
		return c.Stmt == nil || r.isHarmless(c.Stmt)
	}
	return false
}

// mayWriteFile reports whether a filter may write a file, also as awk '{ print > "file" }'.
func mayWriteFile(s *syntax.Stmt) bool {
	text := sourceText(s)
	return strings.Contains(text, "tee ") || strings.Contains(strings.ReplaceAll(text, "2>/dev/null", ""), ">")
}

// failingCommands only print. They fail if nothing matches, or if a file or a program is missing.
var failingCommands = words("test [ false grep egrep stat ls cat head tail wc which clear nvidia-smi rocm-smi awk cut expr getent jq sed sort")

// mayFail reports whether a statement that only prints can end a script with set -e.
func (r *reader) mayFail(s *syntax.Stmt) bool {
	switch c := s.Cmd.(type) {
	case *syntax.TestClause, *syntax.ArithmCmd:
		return true
	case *syntax.CallExpr:
		return len(c.Args) > 0 && slices.Contains(failingCommands, c.Args[0].Lit())
	case *syntax.BinaryCmd:
		if c.Op != syntax.Pipe && c.Op != syntax.PipeAll {
			return r.mayFail(c.Y)
		}
		last, isCall := c.Y.Cmd.(*syntax.CallExpr)
		isFilter := isCall && len(last.Args) > 0 && !slices.Contains(words("grep egrep"), last.Args[0].Lit())
		return !isFilter && r.mayFail(c.Y) || r.shellOptions["pipefail"] && r.mayFail(c.X)
	case *syntax.Block:
		return slices.ContainsFunc(c.Stmts, r.mayFail)
	case *syntax.IfClause:
		for part := c; part != nil; part = part.Else {
			if slices.ContainsFunc(part.Then, r.mayFail) {
				return true
			}
		}
	case *syntax.ForClause:
		return slices.ContainsFunc(c.Do, r.mayFail)
	case *syntax.CaseClause:
		return slices.ContainsFunc(c.Items, func(i *syntax.CaseItem) bool { return slices.ContainsFunc(i.Stmts, r.mayFail) })
	}
	return false
}

// hasFailingCommand reports whether an assignment of a value fails if a command in the value fails.
func (r *reader) hasFailingCommand(n syntax.Node) bool {
	return hasNode(n, func(n syntax.Node) bool {
		c, ok := n.(*syntax.CmdSubst)
		return ok && len(c.Stmts) > 0 && r.mayFail(c.Stmts[len(c.Stmts)-1])
	})
}

// requiresValue reports whether a part of the script ends the script if a variable is empty, as in ${NAME:?}.
func requiresValue(n syntax.Node) bool {
	return hasNode(n, func(n syntax.Node) bool {
		p, ok := n.(*syntax.ParamExp)
		return ok && p.Exp != nil && (p.Exp.Op == syntax.ErrorUnset || p.Exp.Op == syntax.ErrorUnsetOrNull)
	})
}

// isHarmlessCall reports whether a simple command only prints or waits.
func (r *reader) isHarmlessCall(c *syntax.CallExpr) bool {
	if hasCommand(c) && !hasPureCommands(c) || requiresValue(c) && !r.afterProgram {
		return false
	}
	if len(c.Args) == 0 {
		return len(c.Assigns) > 0
	}
	if r.callsHarmlessFunction(c.Args[0].Lit()) {
		return true
	}
	base, first := path.Base(c.Args[0].Lit()), ""
	if len(c.Args) > 1 {
		first = c.Args[1].Lit()
	}
	switch base {
	case "env":
		return len(c.Args) == 1 // `env A=1 command` runs a command
	case "printf":
		return !strings.HasPrefix(first, "-v") // sets a variable
	case "numactl":
		return len(c.Args) == 2 && strings.HasPrefix(first, "-")
	case "scontrol":
		return first == "show" || first == "hostnames"
	case "conda", "mamba", "micromamba":
		return first == "env" && len(c.Args) > 2 && c.Args[2].Lit() == "list" || len(c.Args) == 2 && (slices.Contains(words("list info"), first) || first == "deactivate" && r.afterProgram)
	case "module", "ml":
		return base == "ml" && len(c.Args) == 1 || slices.Contains(words("list avail av show li"), first) || r.afterProgram && slices.Contains(words("unload purge rm"), first)
	case "pip", "pip3":
		return slices.Contains(words("list freeze show --version"), first)
	case "deactivate", "set", "cd", "pushd", "popd", "unset", "export", "shopt", "ulimit":
		return r.afterProgram // without effect on what has run
	case "trap":
		return r.afterProgram && first == "-"
	case "cat", "head", "tail", "grep", "stat", "wc", "test", "[":
		return true
	case "wait", "sleep": // also to distribute the starts of the tasks of an array
		return r.afterProgram || !r.hasBackground && len(usedVariables(c)) == 0
	case "srun", "mpirun":
		return len(c.Args) > 1 && r.printsOnly(c)
	case "python", "python3", "nvcc":
		return len(c.Args) == 2 && isVersionCheck(r.args(c.Args))
	}
	return harmlessCommands[base]
}

func (r *reader) areHarmless(list []*syntax.Stmt) bool {
	return !slices.ContainsFunc(list, func(s *syntax.Stmt) bool { return !r.isHarmless(s) })
}

// printsOnly reports whether srun runs a command that only prints.
func (r *reader) printsOnly(c *syntax.CallExpr) bool {
	args := r.args(c.Args)
	if (&finder{r: r, functions: map[string]bool{}}).classify(args, 0) != notProgram {
		return false
	}
	_, inner, ok := parseSrun(args[1:])
	return ok && len(inner) > 0 && inner[0].known && harmlessCommands[path.Base(inner[0].text)]
}

// readsFile reports whether a redirection reads a file or a here-document.
func readsFile(redirect *syntax.Redirect) bool {
	switch redirect.Op {
	case syntax.RdrIn:
		return sourceText(redirect.Word) != "/dev/null"
	case syntax.Hdoc, syntax.DashHdoc, syntax.WordHdoc:
		return true
	}
	return false
}

// writesFile reports whether a redirection writes a file.
func writesFile(redirect *syntax.Redirect) bool {
	switch redirect.Op {
	case syntax.RdrOut, syntax.AppOut, syntax.RdrClob, syntax.RdrAll, syntax.AppAll, syntax.RdrInOut:
		target := sourceText(redirect.Word)
		return target != "/dev/null" && target != "/dev/stderr" && target != "/dev/stdout"
	}
	return false
}

func hasCommand(n syntax.Node) bool { return slices.Contains(usedVariables(n), "$(") }

// pureCommand matches commands that only print. Their substitutions have no effect.
var pureCommand = lazyregexp.New(`^(?:scontrol show|hostname|head|tail|date|echo|printf|wc|nproc|shuf|awk|sed|cut|tr|grep|expr|basename|dirname|pwd|seq|cat|getent|ip|comm|sort|uniq|realpath|readlink|which|nvidia-smi|rocm-smi|whoami|id|uname|bc|squeue|sacct|sstat|seff|ls|jq|du|df|free|uptime|lscpu|stat|md5sum|sha256sum|srun .*hostname|\[|test|python3? (?:-V|--version)|nvcc --version|git (?:rev-parse|log|describe))\s`)

// hasPureCommands reports whether all command substitutions in n only print.
func hasPureCommands(n syntax.Node) bool {
	hasEffect := func(n syntax.Node) bool {
		switch n := n.(type) {
		case *syntax.CallExpr:
			return len(n.Args) > 0 && !pureCommand().MatchString(sourceText(n)+" ")
		case *syntax.Redirect:
			return writesFile(n)
		}
		return false
	}
	return !hasNode(n, func(n syntax.Node) bool {
		switch n := n.(type) {
		case *syntax.ProcSubst:
			return true
		case *syntax.CmdSubst:
			return slices.ContainsFunc(n.Stmts, func(s *syntax.Stmt) bool { return hasNode(s, hasEffect) })
		}
		return false
	})
}

// endsScript reports whether a statement only prints and ends the script.
func (r *reader) endsScript(s *syntax.Stmt) bool {
	if c, ok := s.Cmd.(*syntax.CallExpr); ok && len(c.Args) > 0 {
		if body := r.functions[c.Args[0].Lit()]; body != nil {
			return r.areHarmless([]*syntax.Stmt{body}) && hasExit(body)
		}
	}
	return r.isHarmless(s) && hasExit(s)
}

// hasExit reports whether a part of the script can end the script.
func hasExit(n syntax.Node) bool {
	return hasNode(n, func(n syntax.Node) bool {
		call, ok := n.(*syntax.CallExpr)
		return ok && len(call.Args) > 0 && (call.Args[0].Lit() == "exit" || call.Args[0].Lit() == "return")
	})
}
