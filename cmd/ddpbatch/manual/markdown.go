package manual

import (
	"fmt"
	"strings"

	"github.com/ddpbatch/ddpbatch/jobs"
)

// A Page is one generated file.
type Page struct {
	Name string
	Text []byte
}

const generated = "<!-- Written by `make reference` from the code. Change it there. -->\n"

// Reference returns the files of docs/reference.
func Reference(p Program, keys []jobs.Key) []Page {
	return []Page{
		{"commands.md", commandsPage(p)},
		{"environment.md", environmentPage()},
		{"exit-codes.md", exitsPage(p)},
		{"job-file.md", keysPage(keys)},
		{"job.schema.json", jobs.Schema()},
	}
}

func commandsPage(p Program) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "# Commands\n%s\n%s\n\n", generated, p.Summary)
	for _, c := range p.Commands {
		fmt.Fprintf(&b, "- [`%s`](#%s): %s\n", c.Name(), strings.ReplaceAll(c.Name(), " ", "-"), escape(c.Summary))
	}
	for _, c := range p.Commands {
		fmt.Fprintf(&b, "\n## %s\n%s\n\n    %s %s\n", c.Name(), escape(c.Summary), p.Name, c.Usage)
		if c.Detail != "" {
			fmt.Fprintf(&b, "\n%s\n", markdownText(c.Detail))
		}
		var rows [][]string
		for _, a := range c.Arguments {
			rows = append(rows, []string{code(a.Name), escape(a.Help)})
		}
		for _, f := range c.Flags {
			rows = append(rows, []string{code(f.Spelled()), escape(f.Help)})
		}
		if len(rows) > 0 {
			b.WriteString("\n")
			table(&b, []string{"argument or flag", "is"}, rows)
		}
	}
	return []byte(b.String())
}

func exitsPage(p Program) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "# Exit codes\n%s\nOf every command. A program of yours keeps its own, which `run`, `launch` and the job end with.\n\n", generated)
	var rows [][]string
	for _, e := range p.Exits {
		rows = append(rows, []string{fmt.Sprint(e.Code), escape(e.Meaning)})
	}
	table(&b, []string{"code", "is"}, rows)
	return []byte(b.String())
}

func keysPage(keys []jobs.Key) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "# The job file\n%s\n", generated)
	b.WriteString("TOML. A key that stands in none of these tables is a mistake, and so is one that belongs to another kind of model or data. " +
		"\"Needed\" is needed where its table, or the kind that it belongs to, is there. Editors complete the file by [its schema](job.schema.json), " +
		"which `ddpbatch schema` prints: the line `#:schema` that `ddpbatch init` writes tells them (taplo, Even Better TOML).\n")
	var rows [][]string
	flush := func() {
		if len(rows) > 0 {
			b.WriteString("\n")
			table(&b, []string{"key", "type", "default", "is"}, rows)
		}
		rows = nil
	}
	for _, k := range keys {
		if k.Table {
			flush()
			fmt.Fprintf(&b, "\n## [%s]\n%s\n", k.Name, escape(k.Help))
			continue
		}
		name := k.Name[strings.LastIndexByte(k.Name, '.')+1:]
		rows = append(rows, []string{code(name), escape(k.Type), escape(k.Default), escape(k.Help)})
	}
	flush()
	return []byte(b.String())
}

func environmentPage() []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "# The environment\n%s\n", generated)
	b.WriteString("What is set for a user's program is told in full, with reasons, by `ddpbatch env --explain`. What the environment already has is left alone where the third column does not say otherwise.\n")
	for _, g := range Variables {
		fmt.Fprintf(&b, "\n## %s\n%s\n\n", g.Title, escape(g.About))
		var rows [][]string
		for _, v := range g.Variables {
			rows = append(rows, []string{code(v.Name), v.Use, escape(v.Meaning)})
		}
		table(&b, []string{"variable", "is", "meaning"}, rows)
	}
	return []byte(b.String())
}

func table(b *strings.Builder, header []string, rows [][]string) {
	fmt.Fprintf(b, "| %s |\n|%s\n", strings.Join(header, " | "), strings.Repeat("---|", len(header)))
	for _, row := range rows {
		fmt.Fprintf(b, "| %s |\n", strings.Join(row, " | "))
	}
}

func code(s string) string { return "`" + strings.ReplaceAll(s, "|", `\|`) + "`" }

// escape escapes Markdown's special characters in plain text.
func escape(s string) string {
	return strings.NewReplacer("|", `\|`, "<", "&lt;", "*", `\*`).Replace(s)
}

// markdownText escapes text, except for indented lines, which Markdown prints literally.
func markdownText(s string) string {
	lines := strings.Split(s, "\n")
	for i, line := range lines {
		if !strings.HasPrefix(line, "    ") {
			lines[i] = escape(line)
		}
	}
	return strings.Join(lines, "\n")
}
