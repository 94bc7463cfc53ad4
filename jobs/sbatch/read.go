// Package sbatch converts a user's batch script to a job file. It converts directives,
// modules, environment variables, and the srun, mpirun, torchrun, or python command.
//
// It reports each line that it does not convert, with the reason ([Note]). It silently drops
// only commands that do not affect the job, such as echo.
//
// The package does not run any part of the script, and it does not guess values that are known
// only to a shell on the node. If the command contains such a value, it becomes a shell
// command in argv. Everything else with such a value is reported.
package sbatch

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"mvdan.cc/sh/v3/syntax"

	"github.com/ddpbatch/ddpbatch/internal/printable"
)

// A Note describes a part of the script that was not converted.
type Note struct {
	Line   int // from 1
	Text   string
	Reason string
}

// A Result is a job file, with notes about everything that it does not contain.
type Result struct {
	TOML  []byte
	Notes []Note
	// HasEnviron reports whether the job file contains values of variables that the script
	// exports. ddpbatch cannot reliably detect whether one of them is a secret.
	HasEnviron bool
}

// maxScript is the maximum size of a script in bytes. It also limits the recursion of the
// parser: each nesting level needs at least two bytes of the script and about 3 KB of stack,
// and Go terminates a program whose stack exceeds 1 GB. Batch scripts have a few kilobytes.
const maxScript = 64 << 10

// maxValue is the maximum length of a word's value in bytes. Without it, a script that
// repeatedly inserts a variable twice into itself would cause exponential growth.
const maxValue = 64 << 10

// Read converts a batch script to a job file for the given site. It returns an error if bash
// cannot parse the script or if the script starts no program.
func Read(name string, src []byte, site string) (Result, error) {
	if len(src) > maxScript {
		return Result{}, fmt.Errorf("read %q: larger than %d KiB, the limit for a batch script", name, maxScript>>10)
	}
	r := &reader{job: newJob(), vars: map[string]string{}, exported: map[string]bool{}, hidden: map[string]bool{}, scriptVars: map[string]bool{}}
	r.job.site = site
	if before, _, found := strings.Cut(name, "."); found || before != "" {
		r.job.name = before
	}
	r.readDirectives(src)
	file, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(bytes.NewReader(src), "")
	if err != nil {
		return Result{}, fmt.Errorf("read %q: %w", name, err)
	}
	r.setSlurmVariables()
	r.statements(file.Stmts)
	if len(r.job.argv) == 0 {
		return Result{}, noCommandError{name}
	}
	r.finish()
	r.hideEarlierUses()
	slices.SortStableFunc(r.notes, func(a, b Note) int { return cmp.Compare(a.Line, b.Line) })
	return Result{TOML: r.job.toml(), Notes: r.notes, HasEnviron: len(r.job.env) > 0}, nil
}

// noCommandError is the error for a script that starts no program.
type noCommandError struct{ name string }

func (e noCommandError) Error() string {
	return fmt.Sprintf("read %q: no line starts a program with srun, mpirun, torchrun, or python", e.name)
}

// Hint returns the alternative.
func (e noCommandError) Hint() string {
	return "run `ddpbatch init --kind command` to create a job file to fill in"
}

// A reader processes one script.
type reader struct {
	job          *job
	vars         map[string]string // known values of the script's variables
	exported     map[string]bool
	hidden       map[string]bool // variables that contained a secret
	secretValues []string        // values in the script that are secrets
	scriptVars   map[string]bool // all variables that the script sets
	notes        []Note
	offset       int // lines before this part of the script
	depth        int // nesting depth of scripts
}

// note adds a note. It omits all secrets that it recognizes.
func (r *reader) note(line int, what, why string) {
	what, short := r.redact(what)
	if short {
		why += " (the rest may be a secret and is not shown)"
	}
	r.notes = append(r.notes, Note{line, shorten(what), why})
}

// shorten returns a part of the script on one line, without terminal control characters. It
// shortens long text.
func shorten(s string) string {
	s = printable.Line(s)
	if len(s) > 120 {
		s = strings.ToValidUTF8(s[:117], "") + "..."
	}
	return s
}

func (r *reader) line(n syntax.Node) int { return int(n.Pos().Line()) + r.offset }

// sourceText returns the source code of a part of the script.
func sourceText(n syntax.Node) string {
	var b strings.Builder
	if err := syntax.NewPrinter(syntax.SingleLine(true)).Print(&b, n); err != nil {
		return ""
	}
	return strings.TrimSpace(b.String())
}

// setSlurmVariables sets Slurm's variables to the values that the directives request.
func (r *reader) setSlurmVariables() {
	j := r.job
	j.divideTotals()
	set := func(n int, names ...string) {
		for _, name := range names {
			if n > 0 {
				r.vars[name] = strconv.Itoa(n)
			}
		}
	}
	nodes, tasks := max(1, j.nodes), max(1, j.tasks)
	set(nodes, "SLURM_NNODES", "SLURM_JOB_NUM_NODES")
	set(tasks, "SLURM_NTASKS_PER_NODE")
	set(nodes*tasks, "SLURM_NTASKS", "SLURM_NPROCS")
	set(j.cpus, "SLURM_CPUS_PER_TASK")
	set(j.gpus, "SLURM_GPUS_ON_NODE", "SLURM_GPUS_PER_NODE")
	r.vars["SLURM_JOB_NAME"] = j.name
	r.vars["SLURM_SUBMIT_DIR"] = "."
}

// statements processes commands in order. It adds a note for each loop and each condition, and
// skips it.
func (r *reader) statements(list []*syntax.Stmt) {
	for _, s := range list {
		switch c := s.Cmd.(type) {
		case *syntax.CallExpr:
			r.convertCall(s, c)
		case *syntax.DeclClause:
			r.declaration(s, c)
		case *syntax.TimeClause:
			if c.Stmt != nil {
				r.statements([]*syntax.Stmt{c.Stmt})
			}
		case *syntax.BinaryCmd:
			switch c.Op {
			case syntax.AndStmt:
				r.statements([]*syntax.Stmt{c.X, c.Y})
			case syntax.Pipe, syntax.PipeAll: // the output of the program is piped, for example to tee
				r.statements([]*syntax.Stmt{c.X})
				r.note(r.line(c.Y), "| "+sourceText(c.Y), "the log is in the run directory")
			default:
				r.statements([]*syntax.Stmt{c.X})
				r.note(r.line(c.Y), "|| "+sourceText(c.Y), "commands after a failure are dropped")
			}
		case *syntax.Block:
			r.statements(c.Stmts)
		case *syntax.FuncDecl:
			r.note(r.line(s), sourceText(s), "functions are dropped")
		case nil:
		default:
			r.note(r.line(s), sourceText(s), "loops and conditions are dropped: write the commands of one run")
		}
	}
}

// declaration processes declarations such as export NAME=value.
func (r *reader) declaration(s *syntax.Stmt, c *syntax.DeclClause) {
	for _, a := range c.Args {
		if a.Name == nil {
			continue // an option
		}
		if c.Variant.Value == "export" {
			r.exported[a.Name.Value] = true
			if a.Naked || a.Value == nil && a.Array == nil {
				if r.hidden[a.Name.Value] {
					r.addSecretName(r.line(s), a.Name.Value)
				} else if v, known := r.vars[a.Name.Value]; known {
					r.setVariable(r.line(s), a.Name.Value, v)
				}
				continue
			}
		}
		r.assign(r.line(s), a)
	}
}

// assign processes NAME=value.
func (r *reader) assign(line int, a *syntax.Assign) {
	name := a.Name.Value
	r.scriptVars[name] = true
	value, known := "", false
	if a.Value != nil && !a.Append {
		value, known = r.word(a.Value)
	} else if a.Array == nil && !a.Append {
		known = true // NAME=
	}
	if r.assignsSecret(a, value, known) {
		r.hideVariable(name, value)
		if r.exported[name] {
			r.addSecretName(line, name)
		}
		return
	}
	delete(r.hidden, name)
	if !known {
		delete(r.vars, name)
		if r.exported[name] {
			r.noteUnknownVariable(line, name, sourceText(a))
		}
		return
	}
	r.vars[name] = value
	if r.exported[name] {
		r.setVariable(line, name, value)
	}
}

// word returns the value of a word, and whether it is known without running anything.
func (r *reader) word(w *syntax.Word) (value string, known bool) {
	return r.parts(w.Parts)
}

func (r *reader) parts(parts []syntax.WordPart) (string, bool) {
	var b strings.Builder
	for _, p := range parts {
		switch x := p.(type) {
		case *syntax.Lit:
			b.WriteString(unescape(x.Value))
		case *syntax.SglQuoted:
			if x.Dollar {
				return "", false
			}
			b.WriteString(x.Value)
		case *syntax.DblQuoted:
			s, ok := r.parts(x.Parts)
			if !ok {
				return "", false
			}
			b.WriteString(s)
		case *syntax.ParamExp:
			if x.Param == nil {
				return "", false
			}
			v, known := r.vars[x.Param.Value]
			switch {
			case x.Excl || x.Length || x.Width || x.Index != nil || x.Slice != nil || x.Repl != nil:
				return "", false
			case x.Exp != nil && !known && (x.Exp.Op == syntax.DefaultUnset || x.Exp.Op == syntax.DefaultUnsetOrNull) && !isSlurmVariable(x.Param.Value):
				if x.Exp.Word == nil {
					continue
				}
				s, ok := r.word(x.Exp.Word)
				if ok && isSecret(x.Param.Value, s) { // ${API_KEY:-a secret}
					r.addSecretValue(s)
					ok = false
				}
				if !ok {
					return "", false
				}
				b.WriteString(s)
			case x.Exp != nil && !known, !known:
				return "", false
			default:
				b.WriteString(v)
			}
		case *syntax.ArithmExp:
			n, ok := r.arithmetic(x.X)
			if !ok {
				return "", false
			}
			b.WriteString(strconv.Itoa(n))
		default:
			return "", false
		}
		if b.Len() > maxValue {
			return "", false
		}
	}
	return b.String(), true
}

func isSlurmVariable(name string) bool { return strings.HasPrefix(name, "SLURM") }

// unescape removes the backslashes from a literal.
func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+1 < len(s) {
			if i++; s[i] == '\n' {
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// arithmetic evaluates an expression such as $((a * b)). It returns false if a value is not
// known.
func (r *reader) arithmetic(e syntax.ArithmExpr) (int, bool) {
	switch x := e.(type) {
	case *syntax.Word:
		s, known := r.word(x)
		if v, variable := r.vars[s]; variable {
			s = v
		}
		n, err := strconv.Atoi(s)
		return n, known && err == nil
	case *syntax.ParenArithm:
		return r.arithmetic(x.X)
	case *syntax.BinaryArithm:
		a, aok := r.arithmetic(x.X)
		b, bok := r.arithmetic(x.Y)
		if !aok || !bok || max(a, b) > 1<<20 || min(a, b) < -1<<20 {
			return 0, false
		}
		switch {
		case x.Op == syntax.Mul:
			return a * b, true
		case x.Op == syntax.Add:
			return a + b, true
		case x.Op == syntax.Sub:
			return a - b, true
		case x.Op == syntax.Quo && b != 0:
			return a / b, true
		}
	}
	return 0, false
}
