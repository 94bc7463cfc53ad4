package slurm

import (
	"context"
	"fmt"
	"strings"
)

// Release asks for the version of Slurm's programs, such as "23.11.4"; the
// controller is not asked.
func (c Client) Release(ctx context.Context) (string, error) {
	out, err := c.run(ctx, "", "sbatch", "--version")
	if err != nil {
		return "", fmt.Errorf("asking for Slurm's version: %w", err)
	}
	// "slurm 23.11.4"; on Debian "slurm-wlm 22.05.8".
	words := strings.Fields(out)
	if len(words) > 0 {
		if _, _, ok := parseVersion(words[len(words)-1]); ok {
			return words[len(words)-1], nil
		}
	}
	return "", fmt.Errorf("asking for Slurm's version: sbatch says %s", excerpt(out, 0))
}
