package manual

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Shells returns the shells that [Completion] supports.
func Shells() []string { return []string{"bash", "zsh", "fish"} }

// Completion returns a completion script for a shell. The script completes commands, flags,
// flag values from a fixed set, and run directories below runs/ for arguments that are runs.
// It completes all other words as file names.
func Completion(p Program, shell string) ([]byte, error) {
	switch shell {
	case "bash":
		return bash(p), nil
	case "zsh":
		return zsh(p), nil
	case "fish":
		return fish(p), nil
	}
	return nil, fmt.Errorf("no completion for shell %q; supported: %s", shell, strings.Join(Shells(), ", "))
}

// runArgument is the name of arguments that accept a run.
const runArgument = "run"

// spellings returns all forms of a command's flags, including --help.
func (c Command) spellings() []string {
	words := []string{"--help"}
	for _, f := range c.Flags {
		words = append(words, "--"+f.Name)
		if f.Negatable {
			words = append(words, "--no-"+f.Name)
		}
		if f.Short != "" {
			words = append(words, "-"+f.Short)
		}
	}
	return words
}

func (c Command) takesRuns() bool {
	return len(c.Arguments) > 0 && c.Arguments[0].Name == runArgument
}

// below returns the commands directly below a path.
func (p Program) below(path []string) (names []Command) {
	for _, c := range p.Commands {
		if len(c.Path) == len(path)+1 && strings.Join(c.Path[:len(path)], " ") == strings.Join(path, " ") {
			names = append(names, c)
		}
	}
	return names
}

func bash(p Program) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, `# Completion of %[1]s for bash: source <(%[1]s completion bash)
_%[1]s() {
	local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} path= i
	# bash splits words at "=".
	if [ "$word" = = ]; then
		word=
	elif [ "$before" = = ] && [ "$COMP_CWORD" -ge 2 ]; then
		before=${COMP_WORDS[COMP_CWORD-2]}
	fi
	for ((i = 1; i < COMP_CWORD; i++)); do
		case "$path ${COMP_WORDS[i]}" in
`, p.Name)
	for _, c := range p.Commands {
		fmt.Fprintf(&b, "\t\t%s) path=%s ;;\n", shellQuoted(" "+c.Name()), shellQuoted(" "+c.Name()))
	}
	b.WriteString("\t\tesac\n\tdone\n\tlocal words= flags= runs=\n\tcase \"$path\" in\n")
	fmt.Fprintf(&b, "\t'') words=%s flags=--help ;;\n", shellQuoted(joined(p.below(nil))))
	for _, c := range p.Commands {
		fmt.Fprintf(&b, "\t%s)\n\t\tflags=%s\n", shellQuoted(" "+c.Name()), shellQuoted(strings.Join(c.spellings(), " ")))
		if c.Group {
			fmt.Fprintf(&b, "\t\twords=%s\n", shellQuoted(joined(p.below(c.Path))))
		}
		if c.takesRuns() {
			b.WriteString("\t\truns=yes\n")
		}
		if choices := c.withChoices(); len(choices) > 0 {
			b.WriteString("\t\tcase \"$before\" in\n")
			for _, f := range choices {
				if len(f.Prefixes) > 0 { // the user continues the value without a space
					fmt.Fprintf(&b, "\t\t--%s) words=%s flags=; compopt -o nospace 2>/dev/null ;;\n", f.Name, shellQuoted(strings.Join(f.Prefixes, " ")))
					continue
				}
				fmt.Fprintf(&b, "\t\t--%s) words=%s flags= ;;\n", f.Name, shellQuoted(strings.Join(f.Choices, " ")))
			}
			b.WriteString("\t\tesac\n")
		}
		b.WriteString("\t\t;;\n")
	}
	fmt.Fprintf(&b, `	esac
	COMPREPLY=()
	case "$word" in
	-*) mapfile -t COMPREPLY < <(compgen -W "$flags" -- "$word") ;;
	*)
		if [ -n "$words" ]; then
			mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
		elif [ -n "$runs" ]; then
			mapfile -t COMPREPLY < <(compgen -d -- "${word:-runs/}")
		fi
		;;
	esac
}
complete -o default -o filenames -F _%[1]s %[1]s
`, p.Name)
	return []byte(b.String())
}

// Complete sets the completions for the values of all flags with this name. It omits values
// with characters other than letters, digits, and "._-". The shells expand the words of a
// completion script when the user presses Tab, so that a value such as "$(command)" would run
// the command, even if it is quoted in the script. Values can be file names of other users.
func (p Program) Complete(name string, values []string) {
	plain := slices.DeleteFunc(slices.Clone(values), func(v string) bool { return !plainValue.MatchString(v) })
	p.eachFlag(name, func(f *Flag) { f.Choices = plain })
}

// plainValue matches values that no shell expands.
var plainValue = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]*$`)

// CompletePrefixes sets the completions for the beginning of the values of all flags with this
// name.
func (p Program) CompletePrefixes(name string, prefixes []string) {
	p.eachFlag(name, func(f *Flag) { f.Prefixes = prefixes })
}

func (p Program) eachFlag(name string, change func(*Flag)) {
	for _, c := range p.Commands {
		for i := range c.Flags {
			if c.Flags[i].Name == name {
				change(&c.Flags[i])
			}
		}
	}
}

// withChoices returns the flags that have completions for their values.
func (c Command) withChoices() (flags []Flag) {
	for _, f := range c.Flags {
		if len(f.Choices) > 0 || len(f.Prefixes) > 0 {
			flags = append(flags, f)
		}
	}
	return flags
}

func joined(commands []Command) string {
	var names []string
	for _, c := range commands {
		names = append(names, c.Path[len(c.Path)-1])
	}
	return strings.Join(names, " ")
}

func shellQuoted(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
