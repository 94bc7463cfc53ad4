package main

import (
	"bufio"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/jobs/watch/screen"
)

// canAnswer reports whether standard input is a terminal.
func (p *program) canAnswer() bool {
	f, ok := p.Stdin.(*os.File)
	return ok && screen.Is(f, p.lookup)
}

// ask prompts for the values of flags. An empty line selects the default in brackets. The end
// of input selects the defaults of all remaining questions.
func (c *initCmd) ask(p *program) error {
	lines := bufio.NewScanner(p.Stdin)
	ask := func(question, byDefault string, good func(string) string) string {
		for {
			fmt.Fprintf(p.Stderr, "%s [%s] ", question, byDefault)
			if !lines.Scan() {
				fmt.Fprintln(p.Stderr)
				return byDefault
			}
			answer := strings.TrimSpace(lines.Text())
			if answer == "" {
				return byDefault
			}
			why := good(answer)
			if why == "" {
				return answer
			}
			p.note("%s", why)
		}
	}
	kinds := jobs.StarterKinds()
	number := func(s string) string {
		if n, err := strconv.ParseUint(s, 10, 16); err != nil || n == 0 && s != "0" {
			return fmt.Sprintf("%q is not a non-negative integer", s)
		}
		return ""
	}
	c.Kind = ask("Kind of job: "+strings.Join(kinds, ", "), kinds[0], func(s string) string {
		if slices.Contains(kinds, s) {
			return ""
		}
		return fmt.Sprintf("unknown kind %q: mlp, linear, cnn, and gpt use the built-in trainer; command and torchrun run your program", s)
	})
	c.Site = ask("Site profile (ddpbatch templates list)", "generic", func(s string) string {
		if _, err := p.finder().Find(s, p.Dir); err != nil {
			return fmt.Sprintf("site %q: %v", s, err)
		}
		return ""
	})
	if site, err := p.finder().Find(c.Site, p.Dir); err == nil && slices.Contains(site.Missing(), "account") {
		const later = "set later"
		c.Account = ask("Billing account ("+c.Site+" requires one)", later, func(s string) string {
			var w jobs.Word
			if err := w.UnmarshalTOML(s); err != nil {
				return err.Error()
			}
			return ""
		})
		if c.Account == later {
			c.Account = ""
		}
	}
	c.Nodes, _ = strconv.Atoi(ask("Number of nodes", "1", func(s string) string {
		if s == "0" {
			return "a job requires at least one node"
		}
		return number(s)
	}))
	c.GPUs, _ = strconv.Atoi(ask("GPUs per node", "0", number))
	return lines.Err()
}
