package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/ddpbatch/ddpbatch/slurm"
)

type hostsCmd struct {
	Lists []string `arg:"" name:"list" help:"Node lists, such as n[01-03,7], or host names; - reads them from standard input."`
	Fold  bool     `help:"Print one folded list instead of one name per line."`
	JSON  bool     `help:"Print the names as JSON."`
}

// maxHostInput is the maximum size of standard input, in bytes.
const maxHostInput = 64 << 20

func (c *hostsCmd) Run(_ context.Context, p *program) error {
	var hosts []string
	for _, list := range c.Lists {
		if list == "-" {
			text, err := io.ReadAll(io.LimitReader(p.Stdin, maxHostInput+1))
			if err == nil && len(text) > maxHostInput {
				err = fmt.Errorf("more than %d MiB of host names", maxHostInput>>20)
			}
			if err != nil {
				return exitError{exitUsage, fmt.Errorf("read host names: %w", err)}
			}
			list = string(text)
		}
		more, err := slurm.ExpandHosts(list)
		if err != nil {
			return exitError{exitUsage, err}
		}
		hosts = append(hosts, more...)
	}
	switch {
	case c.JSON:
		return p.printJSON(append([]string{}, hosts...))
	case c.Fold:
		p.printf("%s\n", slurm.FoldHosts(hosts))
	case len(hosts) > 0:
		p.printf("%s\n", strings.Join(hosts, "\n"))
	}
	return nil
}
