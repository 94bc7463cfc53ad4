package jobs

import (
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/internal/lazyregexp"
)

// Placeholders of command.argv. The launcher replaces them in each attempt.
const (
	PlaceholderRunDir     = "run_dir"
	PlaceholderRunID      = "run_id"
	PlaceholderAttempt    = "attempt"
	PlaceholderCheckpoint = "checkpoint_dir"
	PlaceholderArrayTask  = "array_task"
	PlaceholderHostfile   = "hostfile" // with command.run = "once" only
)

// placeholderNames are all placeholders, in the order of messages.
var placeholderNames = []string{PlaceholderRunDir, PlaceholderRunID, PlaceholderAttempt, PlaceholderCheckpoint, PlaceholderArrayTask, PlaceholderHostfile}

// Placeholders of the argv of a component, in addition to those of command.argv.
const (
	PlaceholderHost      = "host"
	PlaceholderPort      = "port"
	PlaceholderAddress   = "address"
	PlaceholderReadyFile = "ready_file"
)

// componentPlaceholderNames are all placeholders of the argv of a component.
var componentPlaceholderNames = append(slices.Clip(placeholderNames), PlaceholderHost, PlaceholderPort, PlaceholderAddress, PlaceholderReadyFile)

// placeholder and componentPlaceholder match a placeholder of command.argv, or of the argv of a
// component. They also match an escaped placeholder such as {{run_dir}}, and a variable of a shell
// such as ${run_dir}, which is not a placeholder.
var (
	placeholder          = lazyregexp.New(placeholderPattern(placeholderNames))
	componentPlaceholder = lazyregexp.New(placeholderPattern(componentPlaceholderNames))
)

func placeholderPattern(names []string) string {
	all := strings.Join(names, "|") + `|component\.[a-z][a-z0-9_-]*\.(?:host|port|address|addresses)`
	return `\{\{(?:` + all + `)\}\}|\$?\{(?:` + all + `)\}`
}

// Expand replaces the placeholders in text by their values. {{run_dir}} becomes {run_dir}. All
// other text stays unchanged, such as the braces of JSON, of shells, and of Python's format
// strings. A placeholder without a value also stays unchanged.
func Expand(text string, values map[string]string) string {
	return expand(placeholder(), text, values)
}

func expand(pattern *regexp.Regexp, text string, values map[string]string) string {
	if !strings.Contains(text, "{") {
		return text
	}
	return pattern.ReplaceAllStringFunc(text, func(found string) string {
		switch {
		case strings.HasPrefix(found, "{{"):
			return found[1 : len(found)-1]
		case strings.HasPrefix(found, "$"):
			return found
		}
		if value, ok := values[found[1:len(found)-1]]; ok {
			return value
		}
		return found
	})
}

// ExpandArgv replaces the placeholders in the words of a command line. It returns an error if a value
// would become code: if the word is code of a shell, such as the word after "sh -c", and the value
// has characters that the shell interprets. Code of other interpreters may contain all values
// without quotes, backslashes, dollar signs, and braces: strings can contain code in braces, as in
// Python's f"{x}" and Ruby's "#{x}".
func ExpandArgv(argv []string, values map[string]string) ([]string, error) {
	return expandArgv(placeholder(), "command.argv", argv, values)
}

// ExpandArgv replaces the placeholders in the command line of the component, like [ExpandArgv].
func (c *Component) ExpandArgv(values map[string]string) ([]string, error) {
	return expandArgv(componentPlaceholder(), fmt.Sprintf("component %q: argv", c.Name), Strings(c.Argv), values)
}

func expandArgv(pattern *regexp.Regexp, key string, argv []string, values map[string]string) ([]string, error) {
	out := make([]string, len(argv))
	unsafeIn := unsafeInCode(argv)
	for i, word := range argv {
		unsafe := unsafeIn[i]
		used := map[string]string{}
		for name, value := range values {
			if unsafe != nil && unsafe(value) && hasPlaceholder(word, name) {
				continue
			}
			used[name] = value
		}
		out[i] = expand(pattern, word, used)
		if len(used) == len(values) || out[i] == expand(pattern, word, values) {
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(values)) {
			if _, safe := used[name]; !safe {
				hint := "write " + placeholderUse(name)
				if name == PlaceholderRunDir || name == PlaceholderCheckpoint || name == PlaceholderReadyFile {
					hint += ", or choose a path of letters, digits, and / . _ - with --run-dir"
				}
				return nil, hints.Errorf(hint,
					"%s[%d]: {%s} is %q, whose characters could be code in %q", key, i, name, values[name], argv[i-1])
			}
		}
	}
	return out, nil
}

// placeholderUse returns how code reads the value of a placeholder.
func placeholderUse(name string) string {
	if parts := strings.Split(name, "."); len(parts) == 3 {
		return `"$` + ComponentName(parts[1]).Variable(ComponentProperty(parts[2])) + `" in a shell, or os.environ in Python`
	}
	return `"$` + map[string]string{PlaceholderRunDir: "DDPBATCH_RUN_DIR", PlaceholderRunID: "DDPBATCH_RUN_ID", PlaceholderAttempt: "DDPBATCH_ATTEMPT",
		PlaceholderCheckpoint: "DDPBATCH_CHECKPOINT_DIR", PlaceholderArrayTask: "SLURM_ARRAY_TASK_ID", PlaceholderHostfile: "DDPBATCH_HOSTFILE", PlaceholderHost: "DDPBATCH_COMPONENT_HOST", PlaceholderPort: "DDPBATCH_COMPONENT_PORT",
		PlaceholderAddress: "DDPBATCH_COMPONENT_ADDRESS", PlaceholderReadyFile: "DDPBATCH_READY_FILE"}[name] + `" in a shell, or os.environ in Python`
}

var (
	// shellCode matches characters that a shell may interpret.
	shellCode = lazyregexp.New(`[^A-Za-z0-9_@%+:,./=-]`)
	// anyCode matches characters that end a string in most languages, or expand in it.
	anyCode = lazyregexp.New("[\"'\\\\$`{}]")
	// codeOption matches options whose value is code, such as the options of "bash -lc", "python3 -Ic", and "perl -E".
	codeOption = lazyregexp.New(`^(?:-[A-Za-z]*[ceE]|--eval)$`)
	// shellCodeOption matches options of shells such as -lc and -ce. Other options may precede the code.
	shellCodeOption = lazyregexp.New(`^-[A-Za-z]*c[A-Za-z]*$`)
	// setOption matches options of shells whose value is the next word, as in -o pipefail.
	setOption = lazyregexp.New(`^[-+][A-Za-z]*[oO]$`)
)

// unsafeInCode returns a function for each word of a command line that reports whether a value must not
// be in the word. It is nil if the word is not code. The time is linear, because a job file that the user
// received can have hundreds of thousands of words.
func unsafeInCode(argv []string) []func(value string) bool {
	unsafe := make([]func(string) bool, len(argv))
	afterShell, afterInterpreter := false, false // whether a word before the option is one
	var options shellOptions
	option := "" // the word before
	for i, word := range argv {
		isCode := codeOption().MatchString(option)
		switch {
		case options.announceCode(), isCode && strings.HasSuffix(option, "c") && afterShell:
			unsafe[i] = shellCode().MatchString
		case isCode && afterInterpreter:
			unsafe[i] = anyCode().MatchString
		}
		afterShell, afterInterpreter = afterShell || isShell(option), afterInterpreter || isInterpreter(option)
		options.add(word, option)
		option = word
	}
	return unsafe
}

func isShell(word string) bool { return slices.Contains(shells, filepath.Base(word)) }

// isInterpreter reports whether a word starts an interpreter, other than a shell, that runs code in its arguments.
func isInterpreter(word string) bool {
	return IsPython(word) || slices.Contains([]string{"perl", "ruby", "node", "Rscript", "julia"}, filepath.Base(word))
}

// shellOptions is the state after the words of a command line: whether the last shell has only options so far, and
// whether one of them announces code, as in "bash -ce" and "sh -c -o nounset".
type shellOptions struct {
	only, code bool
}

// announceCode reports whether the next word is the code of the shell, unless it is another option.
func (o shellOptions) announceCode() bool { return o.only && o.code }

// add adds the next word. Before is the word before it.
func (o *shellOptions) add(word, before string) {
	if isShell(word) {
		*o = shellOptions{only: true}
		return
	}
	isOption := strings.HasPrefix(word, "-") || strings.HasPrefix(word, "+")
	o.only = o.only && (isOption || setOption().MatchString(before))
	o.code = o.code || shellCodeOption().MatchString(word)
}

// hasPlaceholder reports whether text contains one of the named placeholders.
func hasPlaceholder(text string, names ...string) bool {
	return slices.ContainsFunc(names, func(name string) bool { return strings.Contains(text, "{"+name+"}") })
}

// bracedWord matches a word in braces that could be a misspelled placeholder.
var bracedWord = lazyregexp.New(`(?:^|[^{$])\{([a-z]+(?:_[a-z]+)?)\}(?:$|[^}])`)

// exampleAddress is an IPv6 address with a port, whose brackets are code in a shell.
const exampleAddress = "[fd00::1]:29500"

// checkAddresses warns about addresses of components in code in which an IPv6 address is not allowed.
// The job would fail on networks with IPv6 only, and after its components are ready. The time does not
// grow with the number of components, because a sweep repeats the check for each trial.
func (c *programCheck) checkAddresses() {
	if c.job.Network.Family == FamilyIPv4 {
		return
	}
	pattern, isAddress := placeholder(), map[string]bool{}
	if slices.Contains(c.placeholders, PlaceholderAddress) {
		pattern, isAddress = componentPlaceholder(), map[string]bool{PlaceholderAddress: true}
	}
	for i := range c.job.Components {
		name := c.job.Components[i].Name
		isAddress[name.Placeholder(ComponentAddress)], isAddress[name.Placeholder(ComponentAddresses)] = true, true
	}
	unsafeIn := unsafeInCode(c.argv)
	for i, word := range c.argv {
		if unsafe := unsafeIn[i]; unsafe == nil || !unsafe(exampleAddress) {
			continue
		}
		reported := map[string]bool{}
		for _, found := range pattern.FindAllString(word, -1) {
			name := found[1 : len(found)-1] // {{name}} and ${name} give a name that no component has
			if isAddress[name] && !reported[name] {
				reported[name] = true
				c.report(false, i, "write "+placeholderUse(name), "{%s} is not possible in %q on a network with IPv6: the brackets of the address could be code", name, c.argv[i-1])
			}
		}
	}
}

// checkPlaceholders warns about words in braces that are probably misspelled placeholders.
func (c *programCheck) checkPlaceholders() {
	for i, word := range c.argv {
		if i > 0 && slices.Contains([]string{"-c", "-e"}, c.argv[i-1]) {
			continue // code for an interpreter
		}
		for _, m := range bracedWord().FindAllStringSubmatch(word, -1) {
			meant := Nearest(m[1], c.placeholders)
			if meant == "" || meant == m[1] {
				continue
			}
			c.report(false, i, fmt.Sprintf("write {%s}; placeholders: {%s}", meant, strings.Join(c.placeholders, "}, {")),
				"{%s} is not a placeholder, so the program receives it unchanged", m[1])
		}
	}
}

// CheckpointDirIn returns the checkpoint directory of a run, or an empty string for the default,
// which is in the run directory.
func (c *Command) CheckpointDirIn(runDir, runID string) string {
	return Expand(string(c.CheckpointDir), map[string]string{PlaceholderRunDir: runDir, PlaceholderRunID: runID})
}

// resolveCheckpointDir makes the checkpoint directory absolute.
func (c *Command) resolveCheckpointDir(baseDir string) {
	if c.CheckpointDir != "" && !strings.HasPrefix(string(c.CheckpointDir), "{"+PlaceholderRunDir+"}") {
		c.CheckpointDir = Text(ResolvePath(baseDir, c.CheckpointDir))
	}
}
