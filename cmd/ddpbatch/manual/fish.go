package manual

import (
	"fmt"
	"strings"
)

// fish returns a list of completions. Each has a condition on the preceding commands.
func fish(p Program) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "# Completion of %[1]s for fish: %[1]s completion fish | source\n", p.Name)
	add := func(path []string, also string, rest ...string) {
		condition := "__" + p.Name + "_at " + strings.Join(path, " ")
		fmt.Fprintf(&b, "complete -c %s -n %s%s %s\n", p.Name, fishQuoted(strings.TrimSpace(condition)), also, strings.Join(rest, " "))
	}
	// The function tests whether the commands before the cursor equal its arguments.
	fmt.Fprintf(&b, `function __%s_at
	set -l path
	for word in (commandline -opc)[2..-1]
		string match -q -- '-*' $word; and continue
		set -l longer $path $word
		contains -- "$longer" %s; and set path $longer; or break
	end
	test "$path" = "$argv"
end
`, p.Name, fishNames(p))
	add(nil, " -f")
	for _, c := range p.Commands {
		outer := c.Path[:len(c.Path)-1]
		add(outer, " -f", "-a", fishQuoted(c.Path[len(c.Path)-1]), "-d", fishQuoted(c.Summary))
		if c.Group {
			add(c.Path, " -f")
		}
		add(c.Path, "", "-l help", "-d", fishQuoted("Show help."))
		for _, f := range c.Flags {
			rest := []string{"-l " + f.Name}
			if f.Short != "" {
				rest = append(rest, "-s "+f.Short)
			}
			if len(f.Choices) > 0 {
				rest = append(rest, "-x -a", fishQuoted(strings.Join(f.Choices, " ")))
			} else if len(f.Prefixes) > 0 {
				rest = append(rest, "-x -a", fishQuoted(strings.Join(f.Prefixes, " ")))
			} else if f.Value != "" {
				rest = append(rest, "-r")
			}
			add(c.Path, "", append(rest, "-d", fishQuoted(f.Help))...)
			if f.Negatable {
				add(c.Path, "", "-l no-"+f.Name)
			}
		}
		if c.takesRuns() {
			add(c.Path, "", "-a", fishQuoted("(__fish_complete_directories runs/)"))
		}
	}
	return []byte(b.String())
}

// fishNames returns the quoted command names, separated by spaces.
func fishNames(p Program) string {
	var names []string
	for _, c := range p.Commands {
		names = append(names, fishQuoted(c.Name()))
	}
	return strings.Join(names, " ")
}

func fishQuoted(s string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(s) + "'"
}
