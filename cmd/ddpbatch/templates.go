package main

import (
	"context"

	"github.com/ddpbatch/ddpbatch/templates"
)

type templatesCmd struct {
	List templatesListCmd `cmd:"" help:"List the sites, one on each line."`
}

type templatesListCmd struct {
	JSON bool `help:"Print the answer as JSON."`
}

func (c *templatesListCmd) Run(_ context.Context, p *program) error {
	names := templates.Names()
	if c.JSON {
		return p.printJSON(names)
	}
	for _, name := range names {
		p.printf("%s\n", name)
	}
	return nil
}
