package manual

import (
	"cmp"
	"strings"

	"github.com/alecthomas/kong"
)

// A Program describes a command line.
type Program struct {
	Name     string
	Summary  string // first sentence of the description
	Detail   string // remaining description
	Commands []Command
	Exits    []Exit
}

// A Command describes one command. The commands of a group, such as "checkpoint ls", follow
// the group in [Program.Commands].
type Command struct {
	Path      []string // "checkpoint", "ls"
	Usage     string   // without the name of the program
	Summary   string
	Detail    string // paragraphs; indented lines are literal
	Arguments []Argument
	Flags     []Flag
	Group     bool // whether it only has subcommands
}

// Name returns the command as the user types it.
func (c Command) Name() string { return strings.Join(c.Path, " ") }

// An Argument describes a positional argument.
type Argument struct {
	Name, Help string
	Optional   bool
	Many       bool
}

// A Flag describes a flag of a command.
type Flag struct {
	Name, Help string
	Short      string // single letter; can be empty
	Value      string // placeholder for the value; empty for a flag without a value
	Choices    []string
	Prefixes   []string // completions for the beginning of the value, such as "KEY=" for --set
	Many       bool     // whether it is repeatable or accepts a comma-separated list
	Negatable  bool
}

// An Exit describes one exit code.
type Exit struct {
	Code    int
	Meaning string
}

// Describe converts kong's model to a [Program]. The description and the exit codes are
// separate parameters, because kong's model combines them in one text. Describe omits hidden
// commands.
func Describe(app *kong.Application, description string, exits []Exit) Program {
	first, rest, _ := strings.Cut(description, "\n")
	p := Program{Name: app.Name, Summary: first, Detail: strings.TrimSpace(rest), Exits: exits}
	var walk func(n *kong.Node, path []string)
	walk = func(n *kong.Node, path []string) {
		for _, child := range n.Children {
			if child.Hidden {
				continue
			}
			at := append(path[:len(path):len(path)], child.Name)
			p.Commands = append(p.Commands, describe(child, at))
			walk(child, at)
		}
	}
	walk(app.Node, nil)
	return p
}

func describe(n *kong.Node, path []string) Command {
	c := Command{Path: path, Usage: n.Summary(), Summary: n.Help, Detail: n.Detail, Group: len(n.Children) > 0}
	for _, a := range n.Positional {
		c.Arguments = append(c.Arguments, Argument{Name: a.Name, Help: a.Help, Optional: !a.Required, Many: a.IsCumulative()})
	}
	for _, f := range n.Flags {
		if f.Hidden || f.Name == "help" {
			continue
		}
		flag := Flag{Name: f.Name, Help: f.Help, Many: f.IsCumulative(), Negatable: f.Tag.Negatable != ""}
		if f.Short != 0 {
			flag.Short = string(f.Short)
		}
		if !f.IsBool() {
			flag.Value = cmp.Or(f.PlaceHolder, strings.ToUpper(f.Name))
		}
		if f.Enum != "" {
			flag.Choices = f.EnumSlice()
		}
		c.Flags = append(c.Flags, flag)
	}
	return c
}

// spelled returns all forms of the flag as the user types it, such as "-o, --output=FILE".
func (f Flag) spelled() string {
	name := "--" + f.Name
	if f.Negatable {
		name = "--[no-]" + f.Name
	}
	if f.Short != "" {
		name = "-" + f.Short + ", " + name
	}
	if f.Value != "" {
		name += "=" + f.Value
	}
	return name
}
