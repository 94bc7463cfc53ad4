package slurm

import (
	"context"
	"fmt"
	"strings"
)

// Config asks the controller for the cluster's configuration, as "scontrol show config"
// tells it: keys of slurm.conf and what they are set to, "(null)" where they are not.
func (c Client) Config(ctx context.Context) (map[string]string, error) {
	out, err := c.run(ctx, "", "scontrol", "show", "config")
	if err != nil {
		return nil, fmt.Errorf("asking for Slurm's configuration: %w", err)
	}
	return parseConfig(out), nil
}

// parseConfig reads lines such as "KillWait                = 30 sec". The first of a key
// counts: parts of plugins' own follow.
func parseConfig(out string) map[string]string {
	config := map[string]string{}
	for line := range strings.Lines(out) {
		key, value, ok := strings.Cut(line, " = ")
		key = strings.TrimSpace(key)
		if _, twice := config[key]; ok && !twice && key != "" && !strings.ContainsFunc(key, notInName) {
			config[key] = oneLine(value)
		}
	}
	return config
}

// notInName says that a character is in no key of slurm.conf.
func notInName(r rune) bool {
	return r != '_' && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
}
