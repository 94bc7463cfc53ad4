package sbatch

import (
	"bytes"
	"cmp"
	"slices"
	"strconv"
	"strings"

	"mvdan.cc/sh/v3/expand"
	"mvdan.cc/sh/v3/syntax"

	"github.com/ddpbatch/ddpbatch/internal/lazyregexp"
	"github.com/ddpbatch/ddpbatch/jobs"
)

// An arg is one word of a command after expansion, or a word that only a shell can expand.
type arg struct {
	text  string // value, if known
	known bool
	word  *syntax.Word // source, which can hold several arguments

	startsProgram bool // whether an unknown value begins with the name of a program
}

// scriptEnviron supplies the known variables to the expander. It records whether the expander
// reads a variable whose value is not known.
type scriptEnviron struct {
	r       *reader
	unset   map[string]bool // variables that have a default in the word
	usesPWD bool            // whether the word uses $PWD, and not only ~
	missing bool
}

// Get returns a variable.
func (e *scriptEnviron) Get(name string) expand.Variable {
	if v, ok := e.r.vars[name]; ok {
		return v
	}
	if name != "IFS" && !e.unset[name] && (name != "PWD" || e.usesPWD) {
		e.missing = true
	}
	return expand.Variable{}
}

// Each calls f for no variable: expansions such as ${!A*} have no known value.
func (e *scriptEnviron) Each(func(string, expand.Variable) bool) { e.missing = true }

// An inspection is the result of a walk over a word before its expansion.
type inspection struct {
	possible bool
	defaults []string // variables with a default that is used
	environ  *scriptEnviron
}

var numericRange = lazyregexp.New(`\{[^{}]*\.\.[^{}]*\}`)

const (
	// maxBraces is the maximum number of brace expansions in a word. Each one multiplies the number
	// of words.
	maxBraces = 3
	// maxRange is the maximum number of elements of a range such as {1..999}, see inspect.
	maxRange = 1000
	// maxBraceWords is the maximum number of words that the expander creates from one.
	maxBraceWords = 16 << 10
)

// inspect reports whether the reader can expand a word without running anything.
func (r *reader) inspect(w *syntax.Word) inspection {
	x := inspection{possible: true, environ: &scriptEnviron{r: r, unset: map[string]bool{}}}
	if braces, _ := countBraces(w); braces > maxBraces {
		x.possible = false
		return x
	}
	quoted := map[syntax.Node]bool{} // texts in which braces have no meaning
	syntax.Walk(w, func(n syntax.Node) bool {
		switch n := n.(type) {
		case *syntax.DblQuoted:
			for _, p := range n.Parts {
				quoted[p] = true
				if e, ok := p.(*syntax.ParamExp); ok && len(n.Parts) > 1 && e.Param != nil && e.Param.Value == "@" {
					x.possible = false // several words
				}
			}
		case *syntax.CmdSubst, *syntax.ProcSubst, *syntax.ExtGlob:
			x.possible = false
		case *syntax.Lit:
			if m := numericRange().FindString(n.Value); !quoted[n] && (len(m) > len("{00..99}") || strings.Count(n.Value, "{") > maxBraces) {
				x.possible = false
			}
		case *syntax.BinaryArithm:
			if n.Op == syntax.Pow || n.Op == syntax.Shl {
				x.possible = false
			}
		case *syntax.ParamExp:
			if n.Param == nil {
				x.possible = false
				return false
			}
			name := n.Param.Value
			x.environ.usesPWD = x.environ.usesPWD || name == "PWD"
			if name == "#" && !r.givenArgs {
				x.defaults = append(x.defaults, name)
			}
			if name == "@" && n.Slice != nil || name == "0" { // ${@:0} contains $0
				x.possible = x.possible && name == "@" && isPositive(n.Slice.Offset)
				x.environ.unset["0"] = true
			}
			_, known := r.vars[name]
			if n.Excl || n.Width || n.Names != 0 {
				x.possible = false
			}
			if hasDefault(n) && !known {
				switch {
				case isSlurmVariable(name) && !r.isUnset(name), r.scriptVars[name], !isPlainName(name) && !r.isUnset(name), r.secretDefault(n), searchPath().MatchString(name), strings.HasSuffix(name, "PATH") && r.setupChangesEnvironment(), r.setupMaySet(name):
					x.possible = false
				default:
					x.environ.unset[name] = true
					x.defaults = append(x.defaults, name)
				}
			}
		}
		return x.possible
	})
	return x
}

// isUnset reports whether Slurm sets a variable only for an option that the script does not have, or
// whether name is a positional parameter and the script has no arguments.
func (r *reader) isUnset(name string) bool {
	if isNumber(name) {
		_, known := r.vars["#"]
		return known
	}
	switch name {
	case "SLURM_CPUS_PER_TASK":
		return r.job.cpus == 0 && r.hasDirectives()
	case "SLURM_NTASKS", "SLURM_NPROCS":
		return r.job.allTasks+r.job.tasks+r.job.gpuTasks == 0 && r.hasDirectives() && !r.inRank // srun sets it
	case "SLURM_NTASKS_PER_NODE":
		return r.job.tasks == 0 && r.hasDirectives()
	case "SLURM_ARRAY_TASK_ID", "SLURM_ARRAY_JOB_ID":
		return r.job.array == "" && !bytes.Contains(r.src, []byte("SBATCH -a")) && !bytes.Contains(r.src, []byte("--array"))
	}
	return false
}

// searchPath matches variables with lists of directories, which the environment usually has.
var searchPath = lazyregexp.New(`^(?:PATH|(?:\w*_)?(?:LIBRARY|INCLUDE|PKG_CONFIG|PLUGIN|SCHEDULER|TUNER)_PATH|[A-Z0-9]*PATH)$`)

// changesEnvironment matches setup commands that export variables.
var changesEnvironment = lazyregexp.New(`\b(?:module|ml|source|conda|mamba|micromamba)\b|(?:^|[;&|] *)\. `)

// setupMaySet reports whether a step before may set a variable that the script does not assign. Only the
// shell then knows whether a default applies.
func (r *reader) setupMaySet(name string) bool {
	isEnvironment := environmentName().MatchString(name) || slices.ContainsFunc(words("_HOME _ROOT _PREFIX _VERSION"), func(end string) bool { return strings.HasSuffix(name, end) })
	return r.foreign && isPlainName(name) || isEnvironment && r.setupChangesEnvironment()
}

// setupChangesEnvironment reports whether a step before loads a module or an environment.
func (r *reader) setupChangesEnvironment() bool {
	return slices.ContainsFunc(r.steps, func(s step) bool {
		return s.kind == stepModule || s.kind == stepConda || s.kind == stepVenv || s.kind == stepRun && changesEnvironment().MatchString(s.text)
	})
}

// secretDefault reports whether a default such as the one in ${API_KEY:-value} is a secret, which
// it hides.
func (r *reader) secretDefault(n *syntax.ParamExp) bool {
	if n.Exp.Word == nil {
		return false
	}
	if v := strings.Trim(sourceText(n.Exp.Word), `"'`); isSecret(n.Param.Value, v) {
		r.addSecretValue(v)
		return true
	}
	return false
}

func isSlurmVariable(name string) bool { return strings.HasPrefix(name, "SLURM") }

var plainName = lazyregexp.New(`^[A-Za-z_][A-Za-z0-9_]*$`)

func isPlainName(name string) bool { return plainName().MatchString(name) }

// isNumber reports whether the name of a parameter is a number, as in $1.
func isNumber(name string) bool { return name != "" && strings.Trim(name, "0123456789") == "" }

// readsArguments reports whether a name in the result of usedVariables stands for $# or for a positional
// parameter with a default, such as ${1:-x}.
func readsArguments(name string) bool { return name == "#" || isNumber(name) }

// isArgument reports whether a name in the result of usedVariables stands for any argument of the script.
func isArgument(name string) bool { return name == "@" || readsArguments(name) }

// fields expands a word to arguments, as bash does, and reports whether all of it is known.
func (r *reader) fields(w *syntax.Word) (list []string, known bool) {
	return r.expand(w, false)
}

// word returns the value of a word without splitting, as in an assignment, and whether it is
// known.
func (r *reader) word(w *syntax.Word) (value string, known bool) {
	list, known := r.expand(w, true)
	if !known || len(list) != 1 {
		return "", false
	}
	return list[0], true
}

// expand expands a word, and reports whether all of it is known. With literal, it does not split the
// value. It runs no command, and it bounds the work and the size of the result.
func (r *reader) expand(w *syntax.Word, literal bool) (list []string, known bool) {
	w = r.replacePwd(w)
	x := r.inspect(w)
	if !x.possible || expandsDifferently(w, literal) {
		return nil, false
	}
	each, most := r.cost(w), 1
	if !literal {
		_, most = countBraces(w)
	}
	if r.work+each*most > maxWork {
		return nil, false
	}
	r.work += each * most
	defer func() {
		if recover() != nil { // the expander panics on some unusual words
			list, known = nil, false
		}
	}()
	cfg := &expand.Config{Env: x.environ}
	var err error
	if literal {
		list = make([]string, 1)
		list[0], err = expand.Literal(cfg, w)
	} else if hasPattern(w) {
		return nil, false
	} else {
		list, err = expand.Fields(cfg, w)
	}
	if err != nil || x.environ.missing {
		return nil, false
	}
	r.work -= each * max(0, most-len(list))
	if len(list) > maxValue/8 || len(strings.Join(list, "")) > maxValue {
		return nil, false
	}
	if !literal && hasUnquotedExpansion(w) && slices.ContainsFunc(list, func(s string) bool { return strings.ContainsAny(s, "*?[") }) {
		return nil, false // a value that bash would use as a pattern of file names
	}
	for _, name := range x.defaults {
		r.defaults[name] = true
	}
	return list, true
}

// replacePwd returns a word with $PWD instead of $(pwd), if the directory is known.
func (r *reader) replacePwd(w *syntax.Word) *syntax.Word {
	if _, known := r.knownString("PWD"); !known || !hasNode(w, isPwd) || r.functions["pwd"] != nil {
		return w
	}
	replace := func(parts []syntax.WordPart) []syntax.WordPart {
		parts = slices.Clone(parts)
		for i, p := range parts {
			if isPwd(p) {
				parts[i] = &syntax.ParamExp{Param: &syntax.Lit{Value: "PWD"}}
			}
		}
		return parts
	}
	parts := replace(w.Parts)
	for i, p := range parts {
		if q, ok := p.(*syntax.DblQuoted); ok {
			parts[i] = &syntax.DblQuoted{Left: q.Left, Right: q.Right, Dollar: q.Dollar, Parts: replace(q.Parts)}
		}
	}
	return &syntax.Word{Parts: parts}
}

// isPwd reports whether a part of a word is $(pwd).
func isPwd(n syntax.Node) bool {
	c, ok := n.(*syntax.CmdSubst)
	if !ok || len(c.Stmts) != 1 || c.TempFile || c.ReplyVar {
		return false
	}
	call := simpleCommand(&syntax.File{Stmts: c.Stmts})
	return call != nil && len(call.Args) == 1 && call.Args[0].Lit() == "pwd"
}

// assignmentLike matches the start of an argument such as out=~/runs, in which bash expands ~.
var assignmentLike = lazyregexp.New(`^[A-Za-z_]\w*=`)

// expandsDifferently reports whether bash expands a word to a different value than the expander. With literal,
// the word is the value of an assignment.
func expandsDifferently(w *syntax.Word, literal bool) bool {
	isAssignment := literal || len(w.Parts) > 0 && assignmentLike().MatchString(sourceText(w))
	for i, p := range w.Parts {
		switch p := p.(type) {
		case *syntax.Lit: // A=x:~/y
			if isAssignment && (strings.Contains(p.Value, ":~") || !literal && i == 0 && strings.Contains(p.Value, "=~")) {
				return true
			}
		case *syntax.ParamExp: // ${A:-"x y"} is one word
			if !literal && isChoice(p) && p.Exp.Word != nil && strings.ContainsAny(sourceText(p.Exp.Word), `"'\`) {
				return true
			}
		case *syntax.DblQuoted: // "${A:-~/x}" keeps the ~, and "${A:-'x'}" the quotes
			if slices.ContainsFunc(p.Parts, func(p syntax.WordPart) bool {
				e, ok := p.(*syntax.ParamExp)
				if !ok || e.Exp == nil || e.Exp.Word == nil {
					return false
				}
				text := sourceText(e.Exp.Word)
				return strings.HasPrefix(text, "~") || isChoice(e) && strings.ContainsAny(text, `'\`)
			}) {
				return true
			}
		}
	}
	return false
}

// isChoice reports whether an expansion has a default or an alternative, as in ${NAME:-value} or ${NAME:+value}.
func isChoice(p *syntax.ParamExp) bool {
	return hasDefault(p) || p.Exp != nil && (p.Exp.Op == syntax.AlternateUnset || p.Exp.Op == syntax.AlternateUnsetOrNull)
}

// maxWork is the maximum work of the expansions of a script, in the unit of [reader.cost]. Without it,
// a script of 64 KiB could need any amount of memory and time: "${x//a/$x}" is as long as the square
// of x. Scripts of users need less than 200,000.
const maxWork = 2 << 20

// wordCost is the work of a word or an element of an array, in addition to its text.
const wordCost = 64

// cost returns a limit for the work of expanding a part of a word: about the number of bytes that are
// written and compared. The result is at most maxWork+1.
func (r *reader) cost(n syntax.Node) (total int) {
	add := func(n int) { total = min(total+n, maxWork+1) }
	addAll := func(parts []syntax.WordPart) {
		for _, p := range parts {
			add(r.cost(p))
		}
	}
	switch n := n.(type) {
	case *syntax.Word:
		add(wordCost)
		addAll(n.Parts)
	case *syntax.DblQuoted:
		addAll(n.Parts)
	case *syntax.Lit:
		add(len(n.Value))
	case *syntax.SglQuoted:
		add(len(n.Value))
	case *syntax.ParamExp:
		if n.Param == nil {
			return maxWork + 1
		}
		value := r.valueCost(n.Param.Value)
		add(value)
		if n.Index != nil {
			add(r.arithmeticCost(n.Index))
		}
		if n.Slice != nil {
			add(r.arithmeticCost(n.Slice.Offset, n.Slice.Length))
		}
		if n.Exp != nil && n.Exp.Word != nil {
			word := r.cost(n.Exp.Word)
			add(word)
			switch n.Exp.Op {
			case syntax.DefaultUnset, syntax.DefaultUnsetOrNull, syntax.AlternateUnset, syntax.AlternateUnsetOrNull,
				syntax.AssignUnset, syntax.AssignUnsetOrNull, syntax.ErrorUnset, syntax.ErrorUnsetOrNull:
			default: // a pattern
				add(value * word)
			}
		}
		if n.Repl != nil {
			for _, w := range []*syntax.Word{n.Repl.Orig, n.Repl.With} {
				if w != nil {
					add(value * r.cost(w))
				}
			}
		}
	case *syntax.ArithmExp:
		add(r.arithmeticCost(n.X))
	}
	return total
}

// valueCost returns the length of the value of a variable, for [reader.cost].
func (r *reader) valueCost(name string) int {
	v := r.vars[name]
	total := len(v.Str)
	for _, s := range v.List {
		total += len(s) + wordCost
	}
	return min(total, maxWork+1)
}

// arithmeticCost returns the work of arithmetic expressions, for [reader.cost].
func (r *reader) arithmeticCost(exprs ...syntax.ArithmExpr) (total int) {
	add := func(n int) { total = min(total+n, maxWork+1) }
	for _, name := range arithmeticNames(exprs...) {
		add(wordCost + r.valueCost(name))
	}
	for _, x := range exprs {
		if x == nil {
			continue
		}
		syntax.Walk(x, func(n syntax.Node) bool {
			if p, ok := n.(*syntax.ParamExp); ok {
				add(r.cost(p))
				return false
			}
			return true
		})
	}
	return total
}

// countBraces returns the number of brace expansions in a word, and a limit for the number of words
// that result. More words are an error of the expander.
func countBraces(w *syntax.Word) (braces, words int) {
	elements := 1
	for _, p := range w.Parts {
		if lit, ok := p.(*syntax.Lit); ok {
			braces += strings.Count(lit.Value, "{")
			elements += strings.Count(lit.Value, ",") + maxRange*strings.Count(lit.Value, "..")
		}
	}
	words = 1
	for range min(braces, maxBraces) {
		words = min(words*elements, maxBraceWords)
	}
	return braces, words
}

// hasPattern reports whether a word contains an unquoted pattern of file names.
func hasPattern(w *syntax.Word) bool {
	for _, p := range w.Parts {
		lit, ok := p.(*syntax.Lit)
		if !ok {
			continue
		}
		for i := 0; i < len(lit.Value); i++ {
			switch lit.Value[i] {
			case '\\':
				i++
			case '*', '?', '[':
				return true
			}
		}
	}
	return false
}

func hasUnquotedExpansion(w *syntax.Word) bool {
	return slices.ContainsFunc(w.Parts, func(p syntax.WordPart) bool {
		_, ok := p.(*syntax.ParamExp)
		return ok
	})
}

// args expands the words of a command.
func (r *reader) args(words []*syntax.Word) (list []arg) {
	for _, w := range words {
		values, known := r.fields(w)
		if !known {
			r.markUnknown(w) // as in $((N++)) $N
			list = append(list, arg{word: w, startsProgram: r.startsProgram(w)})
			continue
		}
		for _, v := range values {
			list = append(list, arg{text: v, known: true, word: w})
		}
	}
	return list
}

// maxListDepth is the maximum number of variables that refer to each other in a command line.
const maxListDepth = 4

// expandLists replaces variables that hold several arguments, of which some are not known, by these
// arguments. The script must set the variable before the program, unconditionally.
func (r *reader) expandLists(args []arg, depth int) (list []arg) {
	for _, a := range args {
		if words := r.listWords(a); words != nil && depth < maxListDepth {
			list = append(list, r.expandLists(r.args(words), depth+1)...)
		} else {
			list = append(list, a)
		}
	}
	return list
}

// listWords returns the words of the value of a variable such as $ARGS or "${ARGS[@]}", or nil.
func (r *reader) listWords(a arg) (list []*syntax.Word) {
	if a.known || a.word == nil || len(a.word.Parts) != 1 {
		return nil
	}
	part, quoted := a.word.Parts[0], false
	if q, ok := part.(*syntax.DblQuoted); ok && len(q.Parts) == 1 {
		part, quoted = q.Parts[0], true
	}
	p, ok := part.(*syntax.ParamExp)
	if !ok || p.Param == nil || p.Excl || p.Length || p.Width || p.Slice != nil || p.Repl != nil || p.Exp != nil {
		return nil
	}
	name := p.Param.Value
	assigns := r.assignments[name]
	unconditional, moved := 0, false // moved: the directory has changed since the first assignment
	first := slices.IndexFunc(r.steps, func(s step) bool { return s.kind == stepAssign && s.name == name })
	for _, s := range r.steps {
		if s.kind == stepAssign && s.name == name {
			unconditional++
		}
		moved = moved || unconditional > 0 && s.kind == stepCd
	}
	if len(assigns) == 0 || r.hidden[name] || first < r.foreignSteps || r.altered[name] > first+1 || unconditional != len(assigns) { // in a loop, a condition, or a function
		return nil
	}
	index, _ := p.Index.(*syntax.Word)
	var owners []*syntax.Assign // assignments that contain the words
	for i, value := range assigns {
		switch {
		case value.Append != (i > 0) || value.Index != nil:
			return nil
		case value.Array != nil && index != nil && index.Lit() == "@":
			for _, e := range value.Array.Elems {
				if e.Index != nil || e.Value == nil || !quoted && strings.ContainsAny(sourceText(e.Value), `"'\`) { // bash splits the values again
					return nil
				}
				list, owners = append(list, e.Value), append(owners, value)
			}
		case value.Value != nil && len(assigns) == 1 && p.Index == nil && !quoted:
			list = splitValue(value.Value)
			owners = slices.Repeat([]*syntax.Assign{value}, len(list))
		default:
			return nil
		}
	}
	for i, w := range list {
		mayDiffer := func(name string) bool {
			isLater := func(a *syntax.Assign) bool { return a.Pos().After(owners[i].Pos()) }
			return len(r.assignments[name]) > 1 || slices.ContainsFunc(r.assignments[name], isLater) || r.altered[name] > first+1 || slices.Contains(shellParameters, name) || readsArguments(name) && !r.lacksArguments() || name == "$0" || moved && slices.Contains(words("PWD OLDPWD $("), name)
		}
		if !hasPureCommands(w) || moved && hasPattern(w) || slices.ContainsFunc(usedVariables(w), mayDiffer) {
			return nil
		}
	}
	return list
}

// splitValue returns the words of a value in double quotes, or nil if only a shell can split it.
func splitValue(w *syntax.Word) (list []*syntax.Word) {
	if len(w.Parts) != 1 {
		return nil
	}
	q, ok := w.Parts[0].(*syntax.DblQuoted)
	if !ok {
		return nil
	}
	text := strings.ReplaceAll(strings.Trim(sourceText(q), `"`), "\\\n", "")
	if strings.ContainsAny(text, "\"'`\\*?[~{}()<>|&;#") {
		return nil
	}
	call := parseSimple("x " + strings.Join(strings.Fields(text), " "))
	if call == nil {
		return nil
	}
	return call.Args[1:]
}

// startsProgram reports whether the first argument in a word with an unknown value is a program
// and not an option, because the script assigns such values to the variable at its start.
func (r *reader) startsProgram(w *syntax.Word) bool {
	if len(w.Parts) == 0 {
		return false
	}
	part := w.Parts[0]
	if q, ok := part.(*syntax.DblQuoted); ok && len(q.Parts) > 0 {
		part = q.Parts[0]
	}
	switch p := part.(type) {
	case *syntax.Lit:
		text := strings.TrimLeft(strings.ReplaceAll(p.Value, "\\\n", ""), " \n\t")
		return text != "" && programStart().MatchString(text)
	case *syntax.SglQuoted:
		return programStart().MatchString(strings.TrimLeft(p.Value, " \n\t"))
	case *syntax.ParamExp:
		if p.Param == nil || p.Excl || p.Length || p.Width || p.Slice != nil || p.Repl != nil || p.Exp != nil {
			return false
		}
		return r.holdsProgram(p.Param.Value)
	}
	return false
}

// holdsProgram reports whether all assignments of a variable start with a program. It examines each
// variable once, because each assignment may refer to others. A variable that refers to itself does
// not count.
func (r *reader) holdsProgram(name string) bool {
	if known, examined := r.programs[name]; examined {
		return known
	}
	r.programs[name] = false
	found := false
	for _, a := range r.assignments[name] {
		if a.Append {
			continue
		}
		value := a.Value
		if a.Array != nil && len(a.Array.Elems) > 0 {
			value = a.Array.Elems[0].Value
		}
		if a.Index != nil || value == nil || !r.startsProgram(value) {
			return false
		}
		found = true
	}
	r.programs[name] = found
	return found
}

// programStart matches the name of a program at the start of a command line. It matches neither an
// option nor an assignment.
var programStart = lazyregexp.New(`^[A-Za-z0-9_./~][^\s=]*(?:\s|$)`)

// collectAssignments returns the script's assignments by variable.
func collectAssignments(file *syntax.File) map[string][]*syntax.Assign {
	all := map[string][]*syntax.Assign{}
	syntax.Walk(file, func(n syntax.Node) bool {
		if a, ok := n.(*syntax.Assign); ok && a.Name != nil && !a.Naked {
			all[a.Name.Value] = append(all[a.Name.Value], a)
		}
		return true
	})
	return all
}

// arguments returns the values of words. all reports whether all values are known.
func (r *reader) arguments(words []*syntax.Word) (args []string, all bool) {
	all = true
	for _, a := range r.args(words) {
		all = all && a.known
		args = append(args, a.text)
	}
	return args, all
}

// source returns the value of an argument, or its source if the value is not known.
func (a arg) source() string {
	if !a.known {
		return sourceText(a.word)
	}
	return a.text
}

// shellText returns an argument as bash code.
func (a arg) shellText() string {
	if !a.known {
		return sourceText(a.word)
	}
	return quoteWord(a.text)
}

const plainChars = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./:,@%"

// quoteWord returns a text as one word of bash.
func quoteWord(s string) string {
	if s != "" && strings.Trim(s, plainChars) == "" {
		return s
	}
	quoted, err := syntax.Quote(s, syntax.LangBash)
	if err != nil {
		return "''"
	}
	return quoted
}

// usedVariables returns the names of the variables that a part of the script reads. A command
// substitution counts as the name "$(", positional parameters count as "@", $0, $!, and $$ count as
// themselves, $# counts as "#", ${1:-x} counts as "1", and the shell's other parameters, such as $?,
// count as "?". An element of an array adds
// "NAME[]", and the indirect ${!NAME} counts as "!".
func usedVariables(nodes ...syntax.Node) (names []string) {
	add := func(s string) {
		if !slices.Contains(names, s) {
			names = append(names, s)
		}
	}
	addNames := func(exprs ...syntax.ArithmExpr) {
		for _, name := range arithmeticNames(exprs...) {
			add(name)
		}
	}
	for _, n := range nodes {
		syntax.Walk(n, func(n syntax.Node) bool {
			switch n := n.(type) {
			case *syntax.FuncDecl: // its positional parameters are those of its call
				for _, name := range usedVariables(n.Body) {
					if name != "@" && !readsArguments(name) {
						add(name)
					}
				}
				return false
			case *syntax.CallExpr:
				if readsParameters(n) {
					add("@")
				}
			case *syntax.ForClause:
				if w, ok := n.Loop.(*syntax.WordIter); ok && !w.InPos.IsValid() { // for A; do
					add("@")
				}
			case *syntax.CmdSubst, *syntax.ProcSubst:
				add("$(")
			case *syntax.ParamExp:
				switch {
				case n.Param == nil:
				case n.Excl && n.Param.Value == "#": // the last argument
					add("@")
				case n.Excl:
					add("!")
				case n.Index != nil:
					add(n.Param.Value)
					add(n.Param.Value + "[]")
				case n.Param.Value == "!" || n.Param.Value == "$":
					add("$" + n.Param.Value)
				case slices.Contains(words("? - _"), n.Param.Value):
					add("?")
				case n.Param.Value == "0":
					add("$0")
				case n.Param.Value == "#", isNumber(n.Param.Value) && hasDefault(n):
					add(n.Param.Value)
				case !isPlainName(n.Param.Value):
					add("@")
				default:
					add(n.Param.Value)
				}
			case *syntax.ArithmExp:
				addNames(n.X)
			case *syntax.ArithmCmd:
				addNames(n.X)
			case *syntax.CStyleLoop:
				addNames(n.Init, n.Cond, n.Post)
			case *syntax.LetClause:
				addNames(n.Exprs...)
			}
			return true
		})
	}
	return names
}

// hasDefault reports whether an expansion has the form ${NAME:-value} or ${NAME-value}.
func hasDefault(n *syntax.ParamExp) bool {
	return n.Exp != nil && (n.Exp.Op == syntax.DefaultUnset || n.Exp.Op == syntax.DefaultUnsetOrNull)
}

// readsParameters reports whether a command reads the positional parameters without naming them.
func readsParameters(c *syntax.CallExpr) bool {
	if len(c.Args) == 0 {
		return false
	}
	switch c.Args[0].Lit() {
	case "getopts":
		return len(c.Args) <= 3 // further arguments replace the parameters
	case "shift":
		return true
	}
	return false
}

// arithmeticName matches a variable in an arithmetic expression.
var arithmeticName = lazyregexp.New(`[A-Za-z_][A-Za-z0-9_]*`)

// arithmeticNames returns the names in arithmetic expressions, in which variables need no $. An
// expression of let may be quoted.
func arithmeticNames(exprs ...syntax.ArithmExpr) (names []string) {
	for _, x := range exprs {
		if x == nil {
			continue
		}
		syntax.Walk(x, func(n syntax.Node) bool {
			switch n := n.(type) {
			case *syntax.Lit:
				names = append(names, arithmeticName().FindAllString(n.Value, -1)...)
			case *syntax.SglQuoted:
				names = append(names, arithmeticName().FindAllString(n.Value, -1)...)
			}
			return true
		})
	}
	return names
}

// setVariables returns the names of the variables that a part of the script assigns.
func setVariables(nodes ...syntax.Node) (names []string) {
	prefixes := map[*syntax.Assign]bool{} // assignments for one command only
	for _, n := range nodes {
		syntax.Walk(n, func(n syntax.Node) bool {
			switch n := n.(type) {
			case *syntax.Assign:
				if n.Name != nil && !prefixes[n] {
					names = append(names, n.Name.Value)
				}
			case *syntax.ParamExp:
				if n.Param != nil && n.Exp != nil && (n.Exp.Op == syntax.AssignUnset || n.Exp.Op == syntax.AssignUnsetOrNull) {
					names = append(names, n.Param.Value)
				}
			case *syntax.ForClause:
				if w, ok := n.Loop.(*syntax.WordIter); ok {
					names = append(names, w.Name.Value)
				}
			case *syntax.CStyleLoop: // from here on, each variable of the expression counts
				names = append(names, arithmeticNames(n.Init, n.Cond, n.Post)...)
			case *syntax.ArithmCmd:
				if assignsVariable(n.X) {
					names = append(names, arithmeticNames(n.X)...)
				}
			case *syntax.LetClause:
				names = append(names, arithmeticNames(n.Exprs...)...)
			case *syntax.ArithmExp:
				if assignsVariable(n.X) {
					names = append(names, arithmeticNames(n.X)...)
				}
			case *syntax.CallExpr:
				for _, a := range n.Assigns {
					prefixes[a] = len(n.Args) > 0
				}
				if len(n.Args) > 1 {
					switch n.Args[0].Lit() {
					case "read", "mapfile", "readarray", "getopts", "printf", "let":
						for _, w := range n.Args[1:] {
							name, _, _ := strings.Cut(strings.TrimPrefix(w.Lit(), "-v"), "=") // printf -vNAME
							if isPlainName(name) {
								names = append(names, name)
							}
						}
					}
				}
			}
			return true
		})
	}
	return names
}

// setsUnknownName reports whether a part of the script sets a variable whose name only a shell knows, as in
// export "$NAME=1" and read "$NAME".
func setsUnknownName(n syntax.Node) bool {
	hasValue := func(w *syntax.Word) bool { return strings.Contains(sourceText(w), "$") }
	return hasNode(n, func(n syntax.Node) bool {
		switch n := n.(type) {
		case *syntax.DeclClause:
			return slices.ContainsFunc(n.Args, func(a *syntax.Assign) bool {
				return a.Name == nil && a.Value != nil && !strings.HasPrefix(a.Value.Lit(), "-")
			})
		case *syntax.CallExpr:
			if len(n.Args) < 2 {
				return false
			}
			switch n.Args[0].Lit() {
			case "read", "mapfile", "readarray", "getopts", "unset":
				return slices.ContainsFunc(n.Args[1:], hasValue)
			case "printf":
				option := sourceText(n.Args[1])
				return strings.HasPrefix(option, "-v") && hasValue(n.Args[1]) || option == "-v" && len(n.Args) > 2 && hasValue(n.Args[2])
			}
		}
		return false
	})
}

// assignsVariable reports whether an arithmetic expression changes a variable, as in $((i++)).
func assignsVariable(x syntax.ArithmExpr) bool {
	return hasNode(x, func(n syntax.Node) bool {
		switch n := n.(type) {
		case *syntax.UnaryArithm:
			return n.Op == syntax.Inc || n.Op == syntax.Dec
		case *syntax.BinaryArithm:
			return strings.HasSuffix(n.Op.String(), "=") && !slices.Contains(words("== != <= >="), n.Op.String())
		}
		return false
	})
}

// assign reads NAME=value, hides a secret value, and reports whether the value is known.
func (r *reader) assign(line int, a *syntax.Assign) (known bool) {
	name := a.Name.Value
	old, hadValue := r.vars[name]
	defer func() { r.scriptVars[name] = true }()
	var v expand.Variable
	switch {
	case a.Index != nil:
	case a.Array != nil:
		if v, known = r.arrayValue(a.Array); known {
			for _, s := range v.List {
				if isSecret(name, s) {
					r.addSecretValue(s)
				}
			}
		}
		if a.Append {
			known = known && hadValue && old.Kind == expand.Indexed && len(old.List)+len(v.List) <= maxValue/8
			v.List = append(slices.Clone(old.List), v.List...)
		}
	default:
		value := ""
		if known = true; a.Value != nil {
			value, known = r.word(a.Value)
			if n, isCount := r.gpuCount(a.Value); !known && isCount {
				value, known = strconv.Itoa(n), true
				r.note(line, sourceText(a), "the job has "+value+" GPUs on each node")
			}
		}
		if a.Append {
			known = known && hadValue && old.Kind == expand.String
			value = old.Str + value
		}
		if len(value) > maxValue {
			known = false
		}
		if r.assignsSecret(a, value, known) {
			r.hideVariable(name, value)
			if r.exported[name] {
				r.addSecretName(line, name)
			}
			return false
		}
		v = expand.Variable{Set: true, Kind: expand.String, Str: value}
	}
	delete(r.hidden, name)
	if !known || r.attributed[name] {
		delete(r.vars, name)
		return false
	}
	r.vars[name] = v
	return true
}

// gpuQuery matches commands that count the GPUs of a node.
var gpuQuery = lazyregexp.New(`^\$\(nvidia-smi (?:-L|--list-gpus) \| (?:wc -l|grep -c \S+)\)$`)

// gpuCount returns the number of GPUs of each node of the job, if a word is a command that counts
// them.
func (r *reader) gpuCount(w *syntax.Word) (n int, ok bool) {
	n = r.job.nodeGPUs()
	return n, n > 0 && !r.job.exclusive && gpuQuery().MatchString(sourceText(w))
}

// arrayValue returns the value of (a b c).
func (r *reader) arrayValue(a *syntax.ArrayExpr) (expand.Variable, bool) {
	v := expand.Variable{Set: true, Kind: expand.Indexed}
	for _, e := range a.Elems {
		if e.Index != nil || e.Value == nil {
			return expand.Variable{}, false
		}
		list, known := r.fields(e.Value)
		if !known {
			return expand.Variable{}, false
		}
		v.List = append(v.List, list...)
	}
	return v, len(v.List) <= maxValue/8
}

// setArguments sets the positional parameters of the script. Without arguments, it sets only $#, because
// the user may add arguments to the command.
func (r *reader) setArguments(args []string) {
	r.setString("#", strconv.Itoa(len(args)))
	if len(args) == 0 && !r.givenArgs {
		return
	}
	r.givenArgs = true
	for i, a := range args {
		r.setString(strconv.Itoa(i+1), a)
	}
	r.vars["@"] = expand.Variable{Set: true, Kind: expand.Indexed, List: args}
	r.vars["*"] = r.vars["@"]
}

// hasArguments reports whether the arguments of the script are known.
func (r *reader) hasArguments() bool { return r.vars["@"].Set }

// lacksArguments reports whether the script certainly has no arguments, unless the user adds some to the command.
func (r *reader) lacksArguments() bool { return !r.givenArgs && r.isUnset("1") }

// removeArguments removes the positional parameters, and returns them.
func (r *reader) removeArguments() map[string]expand.Variable {
	removed := map[string]expand.Variable{}
	for name, v := range r.vars {
		if isNumber(name) || slices.Contains(words("# @ *"), name) {
			removed[name] = v
			delete(r.vars, name)
		}
	}
	return removed
}

// shiftArguments removes the first arguments of the script, as shift does. It reports whether it knows the others.
func (r *reader) shiftArguments(c setupCall) bool {
	if !r.hasArguments() {
		return false
	}
	n := 1
	if len(c.args) > 0 {
		n, c.known = parseCount(c.args[0])
	}
	list := r.vars["@"].List
	r.removeArguments()
	isKnown := c.known && n <= len(list)
	if isKnown {
		r.setArguments(list[n:])
	}
	return isKnown
}

// setString sets a variable to a known value.
func (r *reader) setString(name, value string) {
	r.vars[name] = expand.Variable{Set: true, Kind: expand.String, Str: value}
}

// knownString returns the value of a scalar variable, if it is known.
func (r *reader) knownString(name string) (string, bool) {
	v, ok := r.vars[name]
	return v.Str, ok && v.Kind == expand.String
}

// setSlurmVariables sets Slurm's variables to the values that the directives request.
func (r *reader) setSlurmVariables() {
	j := r.job
	j.divideTotals()
	set := func(n int, names ...string) {
		for _, name := range names {
			if n > 0 {
				r.setString(name, strconv.Itoa(n))
			}
		}
	}
	set(j.nodes, "SLURM_NNODES", "SLURM_JOB_NUM_NODES")
	set(cmp.Or(j.allTasks, j.tasks*j.nodes), "SLURM_NTASKS", "SLURM_NPROCS")
	set(j.tasks, "SLURM_NTASKS_PER_NODE")
	set(j.cpus, "SLURM_CPUS_PER_TASK")
	set(j.nodeGPUs(), "SLURM_GPUS_ON_NODE")
	if j.gpusPerNodeGiven && j.gpuType == "" {
		set(j.gpus, "SLURM_GPUS_PER_NODE")
	}
	if indices, _, err := jobs.ArrayRange(j.array).Parse(); j.array != "" && err == nil {
		r.setString("SLURM_ARRAY_TASK_COUNT", strconv.Itoa(len(indices)))
		r.setString("SLURM_ARRAY_TASK_MIN", strconv.Itoa(indices[0]))
		r.setString("SLURM_ARRAY_TASK_MAX", strconv.Itoa(indices[len(indices)-1]))
	}
	name := r.file
	if j.nameGiven {
		name = j.name
	}
	r.setString("SLURM_JOB_NAME", name)
	if _, given := r.knownString("PWD"); !given && r.options.Dir != "" { // without --chdir
		r.setString("PWD", r.options.Dir)
	}
	for name, value := range map[string]string{"SLURM_SUBMIT_DIR": r.options.Dir, "HOME": r.options.Home, "USER": r.options.User, "LOGNAME": r.options.User} {
		if value != "" {
			r.setString(name, value)
		}
	}
}
