package manual

import (
	"fmt"
	"strings"
)

// zsh returns a completion function for zsh. The user can source it, or install it as
// _ddpbatch in a directory in $fpath.
func zsh(p Program) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "#compdef %[1]s\n# Completion of %[1]s for zsh: source <(%[1]s completion zsh)\n", p.Name)
	level(&b, p, nil)
	for _, c := range p.Commands {
		if c.Group {
			level(&b, p, c.Path)
		} else {
			fmt.Fprintf(&b, "%s() {\n\t_arguments -s \\\n", function(p, c.Path))
			b.WriteString(strings.Join(arguments(c), " \\\n") + "\n}\n\n")
		}
	}
	fmt.Fprintf(&b, `# If zsh loads this file from $fpath, call the function; if it is sourced, only register it.
if [ "${funcstack[1]}" = _%[1]s ]; then
	_%[1]s "$@"
else
	compdef _%[1]s %[1]s
fi
`, p.Name)
	return []byte(b.String())
}

func function(p Program, path []string) string {
	return "_" + strings.Join(append([]string{p.Name}, path...), "_")
}

// level writes the completion function of a command that has subcommands.
func level(b *strings.Builder, p Program, path []string) {
	name := function(p, path)
	fmt.Fprintf(b, "%s() {\n\tlocal state line\n\tlocal -a commands\n\tcommands=(\n", name)
	for _, c := range p.below(path) {
		fmt.Fprintf(b, "\t\t%s\n", shellQuoted(strings.ReplaceAll(c.Path[len(path)], ":", `\:`)+":"+c.Summary))
	}
	fmt.Fprintf(b, `	)
	_arguments -C '(- *)--help[show help]' '1: :->command' '*::argument:->rest'
	case $state in
	command) _describe command commands ;;
	rest)
		case $line[1] in
`)
	for _, c := range p.below(path) {
		fmt.Fprintf(b, "\t\t%s) %s ;;\n", c.Path[len(path)], function(p, c.Path))
	}
	b.WriteString("\t\tesac\n\t\t;;\n\tesac\n}\n\n")
}

// arguments returns the specs for zsh's _arguments function.
func arguments(c Command) []string {
	specs := []string{"\t\t'(- *)--help[show help]'"}
	for _, f := range c.Flags {
		forms := []string{"--" + f.Name}
		if f.Negatable {
			forms = append(forms, "--no-"+f.Name)
		}
		if f.Short != "" {
			forms = append(forms, "-"+f.Short)
		}
		for _, form := range forms {
			spec := form
			if f.Value != "" && strings.HasPrefix(form, "--") {
				spec += "="
			}
			if f.Many {
				spec = "*" + spec
			}
			spec += "[" + bracket(f.Help) + "]"
			switch {
			case len(f.Choices) > 0:
				spec += ":" + bracket(f.Value) + ":(" + strings.Join(f.Choices, " ") + ")"
			case len(f.Prefixes) > 0:
				spec += ":" + bracket(f.Value) + ":{compadd -S '' -- " + strings.Join(f.Prefixes, " ") + "}"
			case f.Value != "":
				spec += ":" + bracket(f.Value) + ":_files"
			}
			specs = append(specs, "\t\t"+shellQuoted(spec))
		}
	}
	for i, a := range c.Arguments {
		place := fmt.Sprint(i + 1)
		if a.Many {
			place = "*"
		} else if a.Optional {
			place += ":"
		}
		action := "_files"
		if a.Name == runArgument {
			action = `_path_files -W "(. runs)" -/`
		}
		specs = append(specs, "\t\t"+shellQuoted(place+":"+bracket(a.Name)+":"+action))
	}
	return specs
}

// bracket escapes text for use in [...] and between colons.
func bracket(s string) string {
	return strings.NewReplacer("[", "(", "]", ")", ":", `\:`, `\`, `\\`).Replace(s)
}
