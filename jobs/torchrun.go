package jobs

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
)

// An argvError is the error for a word of argv that cannot follow torchrun or the launcher of a
// framework.
type argvError struct {
	word    int
	message string
	allowed string
}

func (e *argvError) Error() string { return fmt.Sprintf("command.argv[%d]: %s", e.word, e.message) }

// TorchrunArgv returns the words that follow torchrun's options, for launcher = "torchrun".
// torchrun starts Python. TorchrunArgv therefore removes an interpreter in front of the
// script, and -u, which torchrun always sets. It retains "-m MODULE", which torchrun also
// supports.
//
// interpreter is the Python that torchrun must run in. It is empty if argv does not start with
// an interpreter, or starts with "python" or "python3". Then the torchrun in PATH determines
// it. Other options of the interpreter have no equivalent and are an error.
func (c *Command) TorchrunArgv() (interpreter string, argv []string, err error) {
	if argv = Strings(c.Argv); len(argv) == 0 {
		return "", nil, nil
	}
	if at := interpreterAfterOptions(argv); at > 0 {
		without := slices.Concat(argv[:at], argv[at+1:])
		return "", nil, &argvError{at, fmt.Sprintf("torchrun starts Python, and would run %q as a script", argv[at]),
			"remove the interpreter: " + argvText(without)}
	}
	first := path.Base(argv[0])
	if slices.Contains(shells, first) || strings.HasSuffix(first, ".sh") {
		return "", nil, &argvError{0, fmt.Sprintf("torchrun runs a Python script, and %q is not one", argv[0]),
			"name the Python script; or, to run another program, write " + argvText(slices.Concat([]string{"--no_python"}, argv))}
	}
	if first == "torchrun" {
		return "", nil, startsTorchrun(0)
	}
	if !IsPython(first) {
		return "", argv, nil
	}
	if argv[0] != "python" && argv[0] != "python3" {
		interpreter = argv[0]
	}
	rest := 1
	for rest < len(argv) && argv[rest] == "-u" {
		rest++
	}
	switch {
	case rest == len(argv):
		return "", nil, &argvError{0, fmt.Sprintf("%q has no script", argv[0]), `for example: argv = ["train.py"]`}
	case argv[rest] == "-m":
		if rest+1 < len(argv) && (argv[rest+1] == "torch.distributed.run" || argv[rest+1] == "torch.distributed.launch") {
			return "", nil, startsTorchrun(rest + 1)
		}
	case len(argv[rest]) > 0 && argv[rest][0] == '-':
		kept := argv[rest:]
		if !isTorchrunOption(argv[rest]) {
			kept = nil
			if script := findScriptAfter(argv, rest, "cm", "WX"); script > 0 {
				kept = argv[script:]
			}
		}
		hint := "write " + argvText(slices.Concat([]string{"--no_python"}, argv))
		if len(kept) > 0 {
			hint = "remove the interpreter: " + argvText(kept) + "; or " + hint
		}
		return "", nil, &argvError{rest, fmt.Sprintf("torchrun starts Python and cannot pass it the option %q", argv[rest]), hint}
	}
	return interpreter, argv[rest:], nil
}

// startsTorchrun returns the error for a word of argv that starts torchrun.
func startsTorchrun(word int) error {
	return &argvError{word, `starts torchrun, but launcher = "torchrun" already starts it`,
		"remove torchrun and its --nnodes, --nproc_per_node, and rendezvous options"}
}

// isTorchrunOption reports whether a word after the interpreter is an option of torchrun. This
// is true for all long options and for the short options that Python does not have.
func isTorchrunOption(word string) bool {
	return strings.HasPrefix(word, "--") && word != "--check-hash-based-pycs" || word == "-r" || word == "-t"
}

// argvText formats argv as in a job file. It shortens a list with many or long words.
func argvText(argv []string) string {
	const maxWords, maxWord = 12, 80
	var words []string
	for _, word := range argv {
		if len(words) == maxWords || len(word) > maxWord {
			words = append(words, "...")
			break
		}
		words = append(words, strconv.Quote(word))
	}
	return "argv = [" + strings.Join(words, ", ") + "]"
}

// interpreterAfterOptions returns the index of a Python interpreter between torchrun's options
// and the script, or 0. It does not parse the options, because the set of options with a value
// depends on torchrun's version.
func interpreterAfterOptions(argv []string) int {
	if !strings.HasPrefix(argv[0], "-") {
		return 0
	}
	for i, word := range argv {
		switch {
		case strings.HasSuffix(word, ".py") || slices.Contains([]string{"-m", "--module", "--no_python", "--no-python"}, word):
			return 0
		case IsPython(word):
			return i
		}
	}
	return 0
}
