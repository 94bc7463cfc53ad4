package jobs

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/ddpbatch/ddpbatch/internal/lazyregexp"
)

// CheckProgram checks the command line in [command] as far as possible on this machine. errs
// contains errors that occur on every machine, such as a missing script. warnings contains
// probable errors, and files that may exist on the nodes only. baseDir is the directory where
// relative paths start.
func (j *Job) CheckProgram(baseDir string) (errs, warnings Diagnostics) {
	if j.Command == nil || len(j.Command.Argv) == 0 {
		return nil, nil
	}
	c := j.newProgramCheck(baseDir, "command.argv", j.Command.Argv)
	if checkDirectory(c.workdir) != nil {
		return nil, nil // CheckFiles reports it
	}
	c.checkCommandLine()
	c.checkPurpose()
	c.checkFramework()
	return c.errs, c.warnings
}

// newProgramCheck returns a check of the command line in a key.
func (j *Job) newProgramCheck(baseDir, key string, argv []Text) *programCheck {
	c := &programCheck{job: j, key: key, argv: Strings(argv), launcher: j.Command.Launcher, placeholders: placeholderNames, workdir: ResolvePath(baseDir, j.Command.Workdir)}
	// Each of these may create the script before the program starts.
	c.certain = len(j.Setup.Lines) == 0 && len(j.Setup.Steps) == 0 && j.Setup.Container.Image == "" && len(j.Slurm.Dependency) == 0
	return c
}

// checkCommandLine makes the checks that apply to all programs.
func (c *programCheck) checkCommandLine() {
	if !c.checkSingleWord() {
		c.checkProgram()
		c.checkScript()
	}
	c.checkBuiltin()
	c.checkShellWords()
	c.checkPlaceholders()
	c.checkAddresses()
}

const relativeHint = "a relative path starts at command.workdir (default: the job file's directory)"

type programCheck struct {
	job            *Job
	key            string // of the command line
	workdir        string
	argv           []string
	launcher       Launcher
	placeholders   []string
	certain        bool // whether a missing relative path will also be missing when the job runs
	errs, warnings Diagnostics
}

// report adds an error about a word of argv, or a warning if it is not certain.
func (c *programCheck) report(certain bool, word int, allowed, format string, args ...any) {
	list := &c.warnings
	if certain {
		list = &c.errs
	}
	// The position in a long line takes time. One more than the maximum shows that there are more.
	if len(*list) > MaxDiagnostics {
		return
	}
	d := c.job.atElement(c.key, word)
	d.Message, d.Allowed = d.Key+": "+fmt.Sprintf(format, args...), allowed
	*list = append(*list, d)
}

// exists reports whether a path, relative to the working directory, exists.
func (c *programCheck) exists(path string) bool {
	_, err := os.Stat(c.path(path))
	return err == nil
}

func (c *programCheck) path(path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(c.workdir, path)
}

// hasPlaceholder reports whether the launcher replaces a part of a word.
func (c *programCheck) hasPlaceholder(word string) bool {
	return hasPlaceholder(word, c.placeholders...) || strings.Contains(word, "{component.")
}

// checkSingleWord reports a program whose name contains a whole command line. It returns true if it has
// reported one.
func (c *programCheck) checkSingleWord() bool {
	name := c.argv[0]
	words := strings.Fields(name)
	if len(words) < 2 || c.exists(name) {
		return false
	}
	if filepath.IsAbs(words[0]) && checkFile(words[0]) != nil {
		return false // a path with spaces that may exist on the nodes only
	}
	if _, err := exec.LookPath(name); err == nil {
		return false
	}
	var fixed []string
	for _, w := range append(words, c.argv[1:]...) {
		fixed = append(fixed, strconv.Quote(w))
	}
	allowed := "write one word per element: argv = [" + strings.Join(fixed, ", ") + "]"
	if strings.ContainsAny(name, `'"|<>&;$`) {
		allowed = fmt.Sprintf(`for a command line with quotes or operators write argv = ["bash", "-c", %q]`, name)
	}
	c.report(true, 0, allowed, "%q is one word, and no program has this name", name)
	return true
}

func (c *programCheck) checkProgram() {
	name := c.argv[0]
	if c.launcher != LauncherRank || c.job.Setup.Container.Image != "" || c.hasPlaceholder(name) {
		return // argument of torchrun, inside the image, or known in the job only
	}
	if !strings.Contains(name, "/") {
		if _, err := exec.LookPath(name); err != nil && c.exists(name) {
			c.report(false, 0, fmt.Sprintf(`write "./%s", or put an interpreter in front of it`, name),
				"%q is not in PATH on this machine; the working directory is not searched", name)
		}
		return
	}
	info, err := os.Stat(c.path(name))
	switch {
	case err != nil && filepath.IsAbs(name):
		c.report(false, 0, "it must exist on every node", "no such file on this machine: %q", name)
	case err != nil && !strings.HasPrefix(name, "~"):
		c.report(c.certain, 0, relativeHint, "no such file: %q", c.path(name))
	case err == nil && info.IsDir():
		c.report(c.certain && !filepath.IsAbs(name), 0, "name a program in it", "%q is a directory", name)
	case err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o111 == 0:
		c.report(c.certain && !filepath.IsAbs(name), 0, "run `chmod +x` on it, or put an interpreter in front of it",
			"%q is not executable", name)
	}
}

// checkScript checks the script that an interpreter runs.
func (c *programCheck) checkScript() {
	at, certain, inPath := c.findScript()
	if at < 0 {
		return
	}
	name := c.argv[at]
	if strings.HasPrefix(name, "~") || strings.HasPrefix(name, "$") || c.hasPlaceholder(name) || c.exists(name) {
		return
	}
	if _, err := exec.LookPath(name); err == nil && inPath && !strings.Contains(name, "/") {
		return
	}
	switch {
	case filepath.IsAbs(name) && c.job.Setup.Container.Image != "":
	case filepath.IsAbs(name):
		c.report(false, at, "it must exist on every node", "no such file on this machine: %q", name)
	default:
		c.report(certain && c.certain, at, relativeHint, "no such file: %q", c.path(name))
	}
}

var (
	pythons   = lazyregexp.New(`^(python|pypy)[0-9.]*t?$`) // t means free-threaded
	shells    = []string{"bash", "sh", "dash", "zsh", "ksh"}
	launchers = []string{"torchrun", "accelerate", "deepspeed"}
	wrappers  = []string{"env", "nice", "ionice", "nohup", "taskset", "numactl", "time", "timeout", "stdbuf", "setsid", "chrt", "strace", "nsys",
		"uv", "poetry", "pipenv", "pixi", "conda", "mamba", "micromamba"} // they start the program in their arguments
	envAssignment = lazyregexp.New(`^[A-Za-z_][A-Za-z0-9_]*=`)
)

// IsPython reports whether a program is a Python interpreter, such as "/usr/bin/python3.13t".
func IsPython(program string) bool { return pythons().MatchString(filepath.Base(program)) }

// findScript returns the index of the script in argv, or -1. certain is false if an unrecognized
// option may change the index, or if the options of a wrapper may change the directory. inPath
// reports whether the interpreter also searches PATH.
func (c *programCheck) findScript() (at int, certain, inPath bool) {
	argv, at := c.argv, 0
	if filepath.Base(argv[0]) == "env" {
		for at = 1; at < len(argv) && envAssignment().MatchString(argv[at]); at++ {
		}
		if at == len(argv) {
			return -1, false, false
		}
		if strings.HasPrefix(argv[at], "-") {
			at = 0 // with options, env is a wrapper like any other
		}
	}
	name := filepath.Base(argv[at])
	torchrun := c.launcher == LauncherTorchrun
	if c.launcher.IsFramework() && strings.HasSuffix(name, ".py") {
		return at, true, false
	}
	switch {
	case IsPython(name):
		return findScriptAfter(argv, at+1, "cm", "WX"), true, false
	case torchrun && !strings.HasPrefix(name, "-"):
		return at, true, false
	case slices.Contains(shells, name) && !torchrun:
		return findScriptAfter(argv, at+1, "cs", "oO"), true, true
	case slices.Contains(launchers, name):
		for i := at + 1; i < len(argv); i++ {
			if strings.HasSuffix(argv[i], ".py") && !strings.HasPrefix(argv[i], "-") {
				return i, false, false
			}
		}
	case slices.Contains(wrappers, name) && !torchrun:
		for i := at + 1; i < len(argv); i++ {
			switch program := filepath.Base(argv[i]); {
			case IsPython(program):
				return findScriptAfter(argv, i+1, "cm", "WX"), false, false
			case slices.Contains(shells, program):
				return findScriptAfter(argv, i+1, "cs", "oO"), false, true
			}
		}
	}
	return -1, false, false
}

// findScriptAfter returns the index of the first word from begin that is not an option, or -1. A
// short option in last means that there is no script. A short option in valued has a value.
func findScriptAfter(argv []string, begin int, last, valued string) int {
	for i := begin; i < len(argv); i++ {
		word := argv[i]
		switch {
		case word == "-":
			return -1
		case word == "--":
			if i+1 < len(argv) {
				return i + 1
			}
			return -1
		case slices.Contains([]string{"--rcfile", "--init-file", "--check-hash-based-pycs"}, word):
			i++
		case strings.HasPrefix(word, "--"):
		case strings.HasPrefix(word, "-"), strings.HasPrefix(word, "+"):
			letters := word[1:]
			end := strings.IndexAny(letters, last)
			value := strings.IndexAny(letters, valued)
			switch {
			case value >= 0 && (end < 0 || value < end):
				if value == len(letters)-1 {
					i++
				}
			case end >= 0:
				return -1
			}
		default:
			return i
		}
	}
	return -1
}

// idlePrograms are programs that end immediately and train nothing.
var idlePrograms = []string{"hostname", "false", "nvidia-smi", "whoami", "uname"}

// interactivePrograms are programs that wait for input if they have no arguments. Ranks have no input,
// so these programs end immediately.
var interactivePrograms = append([]string{"python", "python3", "ipython", "srun", "mpirun", "torchrun", "env"}, shells...)

// multiNodeLaunchers are programs that start processes on all nodes of a job themselves.
var multiNodeLaunchers = []string{"mpirun", "mpiexec", "horovodrun"}

// checkPurpose warns about a program that is probably not intended, such as hostname.
func (c *programCheck) checkPurpose() {
	name := filepath.Base(c.argv[0])
	switch {
	case slices.Contains(idlePrograms, name):
		c.report(false, 0, "write the program that each rank must run", "%q trains nothing: each rank runs it and ends", c.argv[0])
	case len(c.argv) == 1 && slices.Contains(interactivePrograms, name) && c.job.Command.Launcher != LauncherTorchrun:
		c.report(false, 0, "add the script and its arguments", "%q needs arguments: ranks have no input", c.argv[0])
	case c.job.RunsOnce():
	case slices.Contains(multiNodeLaunchers, name) && c.job.Ranks() > 1:
		c.report(false, 0, "set command.run = \"once\", or start argv with the program itself: ddpbatch starts the ranks with srun",
			"each of the %d ranks starts %q", c.job.Ranks(), name)
	case name == "srun" || name == "sbatch":
		c.report(false, 0, "write the program only: ddpbatch starts the ranks with srun", "each rank starts %q", c.argv[0])
	}
}

const shellFix = `for a shell write argv = ["bash", "-c", "..."]`

// builtins maps commands of a shell that are not useful as programs to the fixes: they change the shell itself.
var builtins = map[string]string{"cd": "set command.workdir", "pushd": "set command.workdir", "popd": "set command.workdir",
	"source": "set setup.steps = [{ source = \"FILE\" }]", ".": "set setup.steps = [{ source = \"FILE\" }]",
	"export": "set setup.env", "declare": "set setup.env", "unset": shellFix, "module": "set setup.modules",
	"ulimit": "set setup.lines", "umask": "set setup.lines", "alias": shellFix, "set": shellFix, "shopt": shellFix,
	"eval": shellFix, "exec": "omit exec: the launcher starts the program directly"}

// checkBuiltin warns if argv starts with a command that changes the shell.
func (c *programCheck) checkBuiltin() {
	if fix := builtins[c.argv[0]]; fix != "" && c.launcher == LauncherRank {
		c.report(false, 0, fix, "%q is a command of the shell, and no shell runs the program", c.argv[0])
	}
}

// shellOperators are words with a special meaning in a shell only.
var shellOperators = []string{"|", "||", "&&", "&", ";", ">", ">>", "<", "<<", "2>", "2>&1", "&>"}

// shellExpansion matches text that a shell would expand.
var shellExpansion = lazyregexp.New("\\$[A-Za-z_]|\\$\\{[A-Za-z_]|\\$\\(|`")

// shellArguments matches a word that is only the arguments of a shell script, such as "$@" and ${1:-data}. A part of
// a word may be a price.
var shellArguments = lazyregexp.New(`^["']?\$(?:[0-9@*#]|\{#?[0-9@*][^}]*\}|\{#\})["']?$`)

// checkShellWords warns about words that only a shell interprets.
func (c *programCheck) checkShellWords() {
	if slices.ContainsFunc(c.argv, func(word string) bool {
		return slices.Contains(shells, filepath.Base(word)) || filepath.Base(word) == "eval"
	}) {
		return // that shell interprets the words
	}
	var special []string
	first := -1
	for i, word := range c.argv {
		if i > 0 && slices.Contains([]string{"-c", "-e"}, c.argv[i-1]) {
			continue // code for an interpreter
		}
		if slices.Contains(shellOperators, word) || shellExpansion().MatchString(word) || shellArguments().MatchString(word) || word == "~" || strings.HasPrefix(word, "~/") {
			if first < 0 {
				first = i
			}
			special = append(special, fmt.Sprintf("%q", word))
		}
	}
	if first < 0 {
		return
	}
	more := ""
	if len(special) > 3 {
		special, more = special[:3], fmt.Sprintf(", and %d more", len(special)-3)
	}
	fix := shellFix + "; otherwise write the value itself"
	if c.launcher == LauncherTorchrun { // torchrun starts Python scripts
		fix = "write the value itself, or read the variable in the program"
	}
	c.report(false, first, fix,
		"no shell runs the program, so it receives %s%s unchanged", strings.Join(special, ", "), more)
}
