// Package sbatch converts a user's batch script to a job file. It converts directives, the
// commands before the program, and the srun, mpirun, torchrun, or python command.
//
// The package guarantees:
//
//   - The job runs the same program as the script, with the same arguments, in the same
//     directory and environment, and in as many copies. Otherwise a [Note] with Changes set
//     reports the difference.
//   - If there is such a note, Result.Script is the script itself, in which only the command
//     that starts the program is replaced by `ddpbatch launch`. A script that cannot be changed
//     this way has no Result.Script. If its directives have equivalent keys, the job runs the script
//     itself, once.
//   - A recognized secret is in no job file and in no note. Result.Script is a copy of the
//     script, with its secrets.
//
// Read converts in this order: the directives (directives.go); the search for the program (find.go);
// the commands before it, as steps of the setup (setup.go); the command that starts it (launch.go),
// with the layout of the ranks (layout.go) and the program's arguments (arguments.go); the notes and
// the job file (finish.go, job.go); and Result.Script (wrap.go) or a job that runs the script (keep.go).
// The values of words are in values.go.
//
// The package does not run any part of the script, and it does not guess values that are known
// only to a shell on the node. If the command contains such a value, it becomes a shell command
// in argv.
package sbatch

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/expand"
	"mvdan.cc/sh/v3/syntax"

	"github.com/ddpbatch/ddpbatch/internal/printable"
)

// A Note describes a part of the script that was not converted.
type Note struct {
	Line   int // from 1
	Text   string
	Reason string
	// Changes reports that the job file runs something different from the script because of
	// this part. Other notes are about logs, mail, and similar features.
	Changes bool
}

// Options describe the surroundings of a script.
type Options struct {
	Site string // site profile for the job file
	Home string // home directory, which replaces "~" and $HOME
	User string // user name, which replaces $USER
	Dir  string // directory from which the user submits the script
	Wrap bool   // return Result.Script in any case
	Path string // path of the script from Dir; without it, no job runs the script itself

	Args []string // arguments of the script, $1 and so on
}

// A Result is a job file, with notes about everything that it does not contain.
type Result struct {
	TOML []byte
	// Notes lists the notes that change what runs first, and then the others, each in the order
	// of lines.
	Notes []Note
	// Script is the script with `ddpbatch launch` in front of its program. It is nil if the job
	// file is equivalent to the script, unless Wrap was requested, or if the program's command
	// cannot be replaced.
	Script []byte
	// HasEnviron reports whether the job file contains values of variables that the script
	// exports. ddpbatch cannot reliably detect whether one of them is a secret.
	HasEnviron bool
}

// Changes returns the number of notes about parts that change what runs.
func (r Result) Changes() (n int) {
	for _, note := range r.Notes {
		if note.Changes {
			n++
		}
	}
	return n
}

// maxScript is the maximum size of a script in bytes. It also limits the recursion of the
// parser: each nesting level needs at least two bytes of the script and about 3 KB of stack,
// and Go terminates a program whose stack exceeds 1 GB. Batch scripts have a few kilobytes.
const maxScript = 64 << 10

// maxValue is the maximum length of a word's value in bytes. Without it, a script that
// repeatedly inserts a variable twice into itself would cause exponential growth. See also maxWork.
const maxValue = 64 << 10

// maxNesting is the maximum depth of a script's syntax tree. The reader visits a command once for
// each level around it, so a deeper script would take long.
const maxNesting = 200

// maxCommands is the maximum number of commands of a script. The reader compares some commands with all
// others. Batch scripts have a few dozen.
const maxCommands = 5000

// maxTaken is the maximum number of loops and conditions that the reader replaces by the commands that run. It
// reads the script again after each of them.
const maxTaken = 20

// measure returns the depth of the syntax tree of a part of a script, and the number of its commands.
func measure(part syntax.Node) (nesting, commands int) {
	depth := 0
	syntax.Walk(part, func(n syntax.Node) bool {
		if n == nil {
			depth--
			return true
		}
		if _, ok := n.(*syntax.Stmt); ok {
			commands++
		}
		depth++
		nesting = max(nesting, depth)
		return true
	})
	return nesting, commands
}

// hasNode reports whether a part of the script has a node that matches.
func hasNode(n syntax.Node, matches func(syntax.Node) bool) (found bool) {
	syntax.Walk(n, func(n syntax.Node) bool {
		found = found || n != nil && matches(n)
		return !found
	})
	return found
}

// Read converts a batch script to a job file. It always returns a valid job file, unless the
// script is too large. Without a program in the script, the job file runs "false".
func Read(name string, src []byte, options Options) (Result, error) {
	if len(src) > maxScript {
		return Result{}, fmt.Errorf("read %q: larger than %d KiB, the limit for a batch script", name, maxScript>>10)
	}
	r := newReader(src, options)
	r.job.site, r.file = options.Site, name
	r.job.name, _, _ = strings.Cut(name, ".")
	if bytes.Contains(src, []byte("\r\n")) {
		src = bytes.ReplaceAll(src, []byte("\r\n"), []byte("\n"))
		r.src = src
		r.note(0, "line breaks of DOS", "sbatch rejects the script because of them")
	}
	if rest := bytes.TrimRight(src, `\`); (len(src)-len(rest))%2 == 1 {
		src = src[:len(src)-1] // bash drops a backslash at the end of the script
		r.src = src
	}
	r.readFirstLine()
	r.readDirectives(src)
	r.readComments(src)
	r.readOwnPath(src)
	file, err := parseBash(string(src))
	if err != nil {
		r.change(0, "the script", "bash cannot parse it: "+strings.TrimPrefix(err.Error(), ":"))
		file = &syntax.File{}
	} else if nesting, commands := measure(file); nesting > maxNesting {
		r.change(0, "the script", fmt.Sprintf("its commands are nested more than %d levels deep", maxNesting))
		file = &syntax.File{}
	} else if commands > maxCommands {
		r.change(0, "the script", fmt.Sprintf("it has more than %d commands", maxCommands))
		file = &syntax.File{}
	}
	r.setSlurmVariables()
	if r.setsArguments = setsArguments(file); !r.setsArguments {
		r.setArguments(options.Args)
	}
	r.assignments = collectAssignments(file)
	program, others := r.findProgram(file.Stmts)
	for i := 0; program != nil && i < maxTaken; i++ {
		body := unroll(file.Stmts[program.top])
		if body == nil {
			body = r.takenBranch(file.Stmts, program.top)
		}
		if body == nil {
			break
		}
		file.Stmts = slices.Replace(file.Stmts, program.top, program.top+1, body...)
		r.assignments = collectAssignments(file)
		program, others = r.findProgram(file.Stmts)
	}
	if program == nil {
		if len(file.Stmts) > 0 || len(r.notes) == 0 {
			r.change(0, "the script", "no line starts a program with srun, mpirun, torchrun, or python: set command.argv")
		}
		r.prepare(file.Stmts)
	} else {
		r.convert(file.Stmts, program, others)
	}
	r.finish(program)
	r.hideEarlierUses()
	r.sortNotes()
	result := Result{TOML: r.job.toml(), Notes: r.notes, HasEnviron: r.hasEnviron()}
	if program != nil && (result.Changes() > 0 || options.Wrap) {
		r.removeArguments() // the wrapped script has its own
		result.Script = r.wrap(program, others)
	}
	hasProgram := program != nil || slices.ContainsFunc(file.Stmts, func(s *syntax.Stmt) bool { return !r.isHarmless(s) }) // such as eval
	if hasProgram && result.Changes() > 0 && (result.Script == nil || isOtherShell(interpreter(src))) {
		if kept, ok := keepScript(name, src, options, result.Notes); ok {
			return kept, nil
		}
	}
	return result, nil
}

// hasEnviron reports whether the job file contains values of variables that the script exports.
func (r *reader) hasEnviron() bool {
	return len(r.job.env) > 0 || slices.ContainsFunc(r.steps, func(s step) bool {
		return s.kind == stepEnv || s.kind == stepRun && strings.Contains(s.text, "export ")
	})
}

// sortNotes orders the notes by importance and line, and removes duplicates.
func (r *reader) sortNotes() {
	slices.SortStableFunc(r.notes, func(a, b Note) int {
		if a.Changes != b.Changes {
			if a.Changes {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.Line, b.Line)
	})
	var kept []Note
	for _, n := range r.notes {
		if !slices.Contains(kept, n) {
			kept = append(kept, n)
		}
	}
	r.notes = kept
}

// A reader processes one script.
type reader struct {
	src              []byte
	options          Options
	job              *job
	givenArgs        bool                       // whether the setup has the arguments of the script
	setsArguments    bool                       // whether the script sets its own arguments
	attributed       map[string]bool            // variables with an attribute, as in declare -l, which changes their values
	directives       bool                       // whether the script has directives that sbatch reads
	stepSignal       directive                  // --signal without B:, which only steps receive
	components       int                        // number of components of a heterogeneous job after the first
	vars             map[string]expand.Variable // known values of the script's variables
	exported         map[string]bool
	hidden           map[string]bool             // variables that contained a secret
	secretValues     []string                    // values in the script that are secrets
	scriptVars       map[string]bool             // all variables that the script sets
	steps            []step                      // commands before the program
	functions        map[string]*syntax.Stmt     // bodies
	defaults         map[string]bool             // variables whose default has been used
	assignments      map[string][]*syntax.Assign // all assignments of the script
	errexit          bool                        // whether set -e applies to the current command
	allexport        bool                        // whether set -a applies to the current command
	shellOptions     map[string]bool             // whether nounset and pipefail apply to the current command
	exportsEnd       *bool                       // result of endsExports
	needed           []string                    // variables that the program's command reads on the node
	expansionCommand string                      // command that changes how the shell expands words
	afterProgram     bool                        // whether the reader is behind the program
	required         bool                        // whether the program runs only if the current command succeeds
	setupWords       []string                    // variables whose values are in setup or workdir, such as the name of a conda environment
	arrays           map[string]bool             // arrays that the ranks restore
	file             string                      // name of the script, which is Slurm's default of the job name
	rankValues       map[string]Note             // variables of rankNames that the script exports
	foreign          bool                        // whether a sourced file may have set any variable
	foreignSteps     int                         // number of steps before the last command that may have set any variable
	altered          map[string]int              // number of steps up to the last command, such as read and unset, that changes a variable
	inRank           bool                        // whether a rank evaluates the current words
	unknownDir       bool                        // whether the setup exports the directory of the program
	dirNames         []string                    // variables in the directory of the program
	dirStmt          syntax.Node                 // command that changes to the directory
	dirStep          int                         // number of steps before it
	hasBackground    bool                        // whether a step may start a command in the background
	statusStep       int                         // number of steps up to the one whose exit status is $?; 0 if there is none
	notes            []Note
	last             Note            // newest note, as addNote received it
	work             int             // work of the expansions so far
	followed         int             // commands in the functions that the reader has followed
	programs         map[string]bool // variables that holdsProgram has examined
}

func newReader(src []byte, options Options) *reader {
	return &reader{src: src, options: options, job: newJob(), vars: map[string]expand.Variable{}, exported: map[string]bool{}, hidden: map[string]bool{},
		scriptVars: map[string]bool{}, functions: map[string]*syntax.Stmt{}, defaults: map[string]bool{}, arrays: map[string]bool{}, programs: map[string]bool{}, rankValues: map[string]Note{},
		attributed: map[string]bool{}, shellOptions: map[string]bool{}, altered: map[string]int{}}
}

// note adds a note. It omits all secrets that it recognizes.
func (r *reader) note(line int, what, why string) { r.addNote(line, what, why, false) }

// change adds a note about a part that changes what runs.
func (r *reader) change(line int, what, why string) { r.addNote(line, what, why, true) }

func (r *reader) addNote(line int, what, why string, changes bool) {
	n := Note{line, what, why, changes}
	if n == r.last { // for another word of the same command
		return
	}
	r.last = n
	what, short := r.redact(what)
	if short {
		why += " (the rest may be a secret and is not shown)"
	}
	r.notes = append(r.notes, Note{line, shorten(what), why, changes})
}

// noteDefaults adds a note about the variables of the environment whose defaults are in the job file.
// Shell code that the job file keeps still reads the variables. values are the steps whose code has no expansion.
func (r *reader) noteDefaults(values []step, program *candidate) {
	read := map[string]bool{}
	var add func(names []string)
	add = func(names []string) {
		for _, name := range names {
			if read[name] {
				continue
			}
			read[name] = true
			for _, a := range r.assignments[name] {
				add(usedVariables(a))
			}
		}
	}
	if program != nil {
		add(usedVariables(program.stmt))
	}
	for _, s := range values {
		add([]string{s.name}) // in a separate export, as in export NAME
		add(s.uses)
	}
	add(r.setupWords)
	var names []string
	for _, name := range slices.Sorted(maps.Keys(r.defaults)) {
		isNoted := slices.ContainsFunc(r.notes, func(n Note) bool { return n.Text == "$"+name && n.Reason == defaultReason })
		if read[name] && !isNoted {
			names = append(names, name)
		}
	}
	r.noteVariables(names, defaultReason)
}

// maxVariables is the maximum length of the variables in a note. shorten accepts 120 bytes.
const maxVariables = 100

// noteVariables adds as few notes as possible about variables.
func (r *reader) noteVariables(names []string, why string) {
	text := ""
	for _, name := range names {
		switch {
		case text == "":
			text = "$" + name
		case len(text)+len(name) > maxVariables:
			r.note(0, text, why)
			text = "$" + name
		default:
			text += ", $" + name
		}
	}
	if text != "" {
		r.note(0, text, why)
	}
}

// defaultReason is the reason of a note about a variable or a parameter whose default, or empty value, is in the job file.
const defaultReason = "the job file assumes that neither the environment nor the command line sets it"

// shorten returns a part of the script on one line, without terminal control characters. It
// shortens long text.
func shorten(s string) string {
	s = printable.Line(s)
	if len(s) > 120 {
		s = strings.ToValidUTF8(s[:117], "") + "..."
	}
	return s
}

func (r *reader) line(n syntax.Node) int { return int(n.Pos().Line()) }

// sourceText returns the code of a part of the script on one line, except for line breaks in quotes.
func sourceText(n syntax.Node) string {
	var b strings.Builder
	if err := syntax.NewPrinter(syntax.SingleLine(true)).Print(&b, n); err != nil {
		return ""
	}
	return strings.TrimSpace(b.String())
}
