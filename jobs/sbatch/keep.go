package sbatch

import (
	"bytes"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"

	"github.com/ddpbatch/ddpbatch/internal/lazyregexp"
)

// keptReason is the end of the reason of the note about a job that runs the script itself.
const keptReason = "the job reads the script when it starts, and runs it once, on the first node; ddpbatch does not start the ranks of its steps"

var (
	// readsOwnPath matches names of the script's own file, which sbatch copies.
	readsOwnPath = lazyregexp.New(`\$\{?0\b|BASH_SOURCE|\$argv0`)
	// arrayVariable matches variables of a job array that a trial of a sweep does not have.
	arrayVariable = lazyregexp.New(`SLURM_ARRAY_(?:TASK_(?:MIN|MAX|STEP|COUNT)|JOB_ID)`)
	// slurmVariable matches variables of Slurm.
	slurmVariable = lazyregexp.New(`\bSLURM_[A-Z_]+\b`)
	// masterDefault matches variables that ddpbatch sets, and for which a script has a default.
	masterDefault = lazyregexp.New(`\$\{MASTER_(?:ADDR|PORT):?[-=]`)
)

// isOtherShell reports whether the first line names an interpreter that is not compatible with bash.
func isOtherShell(interpreter []string) bool {
	return len(interpreter) > 0 && !slices.ContainsFunc(interpreter, func(w string) bool { return slices.Contains(words("bash sh dash ksh"), path.Base(w)) })
}

// interpreter returns the words of the first line of a script behind #!, or nil.
func interpreter(src []byte) []string {
	line, _, _ := strings.Cut(string(src), "\n")
	command, found := strings.CutPrefix(line, "#!")
	if !found {
		return nil
	}
	if args := strings.Fields(command); len(args) > 0 && isValidText(command) {
		return args
	}
	return nil
}

// keepScript converts only the directives of a script. The job runs the script itself, as one program. notes
// are the notes of the failed conversion. ok is false if the script may do something different in the job.
func keepScript(name string, src []byte, options Options, notes []Note) (result Result, ok bool) {
	shell := interpreter(src)
	code := withoutComments(src)
	isBash := len(shell) > 0 && !isOtherShell(shell)
	switch {
	case options.Path == "" || len(shell) == 0,
		slices.ContainsFunc(options.Args, func(a string) bool { return !isValidText(a) }),
		bytes.Contains(src, []byte("\r\n")), readsOwnPath().Match(code):
		return Result{}, false
	}
	if isBash {
		if file, err := parseBash(string(src)); err != nil || len(file.Stmts) == 0 || hasNode(file, submitsItself(name)) {
			return Result{}, false
		}
	}
	r := newReader(src, options)
	j := r.job
	j.site, r.file = options.Site, name
	j.name, _, _ = strings.Cut(name, ".")
	r.readDirectives(src)
	r.readOwnPath(src)
	r.setSlurmVariables()
	switch {
	case !r.directives,
		j.taskGPUs > 0 && j.allocatedTasks() > 1 || j.gpuTasks > 0 || j.gpuCPUs > 0, // steps of the script inherit them
		j.allTasks > 0 && j.allTasks != j.allocatedTasks()*max(1, j.nodes),          // the job has equal nodes
		r.stepSignal.name != "" || j.slurm["signal_before_end"] != "",               // the script and its steps get it
		j.array != "" && arrayVariable().Match(code):
		return Result{}, false
	}
	if j.memPerCPU != "" && j.setRaw("mem_per_cpu", quote(slurmMemory(j.memPerCPU))) { // also for steps of the script
		j.memPerCPU = ""
	}
	if j.distribution != "" && !j.addOption("--distribution="+j.distribution) {
		return Result{}, false
	}
	file := options.Path
	if j.workdir != "" && !filepath.IsAbs(file) {
		file = filepath.Join(options.Dir, file)
	}
	if strings.HasPrefix(file, "-") {
		file = "./" + file
	}
	c := &command{r: r, args: []arg{{text: "bash", known: true}, {text: file, known: true}}}
	c.layout()
	if j.nodes == 0 && j.allTasks > 1 {
		r.note(0, "--ntasks", "the script leaves the number of nodes to Slurm; the job requests one")
	}
	for _, variable := range slurmVariable().FindAllString(string(code), -1) {
		if was, now := r.sizeChange(variable); was != now {
			return Result{}, false
		}
		if variable == "SLURM_JOB_NAME" {
			r.keepJobName(0)
		}
	}
	if m := masterDefault().Find(code); m != nil {
		r.note(0, string(m[2:len(m)-1]), "ddpbatch sets it")
	}
	j.argv = slices.Concat(shell, []string{file}, options.Args)
	r.finish(nil)
	r.sortNotes()
	result = Result{TOML: j.toml(), Notes: append([]Note{noteKept(notes)}, r.notes...), HasEnviron: r.hasEnviron()}
	return result, result.Changes() == 0 && j.once
}

// noteKept returns the note about a job that runs the script itself, with the first reason in the notes of
// the failed conversion. The other notes do not apply to this job.
func noteKept(notes []Note) Note {
	kept := Note{Text: "the job runs the script itself", Reason: keptReason}
	first := slices.IndexFunc(notes, func(n Note) bool { return n.Changes && n.Line > 0 })
	if first < 0 {
		first = slices.IndexFunc(notes, func(n Note) bool { return n.Changes })
	}
	switch {
	case first < 0:
	case notes[first].Line > 0:
		kept.Text += fmt.Sprintf(" because of line %d", notes[first].Line)
		kept.Reason = notes[first].Reason + "; " + keptReason
	default:
		kept.Reason = notes[first].Text + ": " + notes[first].Reason + "; " + keptReason
	}
	return kept
}

// withoutComments returns the lines of a script that are not comments.
func withoutComments(src []byte) (code []byte) {
	for line := range bytes.Lines(src) {
		if !bytes.HasPrefix(bytes.TrimSpace(line), []byte("#")) {
			code = append(code, line...)
		}
	}
	return code
}

// submitsItself returns a function that reports whether a command submits the file with this name.
func submitsItself(name string) func(syntax.Node) bool {
	return func(n syntax.Node) bool {
		c, ok := n.(*syntax.CallExpr)
		return ok && len(c.Args) > 1 && c.Args[0].Lit() == "sbatch" && slices.ContainsFunc(c.Args[1:], func(w *syntax.Word) bool {
			return path.Base(strings.Trim(sourceText(w), `"'`)) == name
		})
	}
}
