package manual

import (
	"cmp"
	"strings"

	"github.com/alecthomas/kong"
)

// Program is a command line.
type Program struct {
	Name     string
	Summary  string // its first sentence
	Detail   string // what follows
	Commands []Command
	Exits    []Exit
}

// Command is one command; those of a group, such as "checkpoint ls", follow the group.
type Command struct {
	Path      []string // "checkpoint", "ls"
	Usage     string   // without the program's name
	Summary   string
	Detail    string // paragraphs; what is indented stays as it is
	Arguments []Argument
	Flags     []Flag
	Group     bool // it only has commands below it
}

// Name is the command as it is typed.
func (c Command) Name() string { return strings.Join(c.Path, " ") }

// Argument is a positional argument.
type Argument struct {
	Name, Help string
	Optional   bool
	Many       bool
}

// Flag is a flag.
type Flag struct {
	Name, Help string
	Short      string // a letter, or empty
	Value      string // what its value is called; empty for one that takes none
	Choices    []string
	Prefixes   []string // beginnings of its value, for completion: the keys of --set with "="
	Many       bool     // may be repeated, or takes several values with commas
	Negatable  bool
}

// Exit is one exit code.
type Exit struct {
	Code    int
	Meaning string
}

// Describe reads a command line from kong's model of it, which does not tell the
// description and the exit codes apart. Hidden commands are left out.
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

// Spelled is a flag as it is typed, with all its forms.
func (f Flag) Spelled() string {
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
