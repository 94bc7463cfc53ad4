package slurm

import (
	"bytes"
	"context"
	"fmt"
	"strings"
)

// TestOnly asks sbatch whether it would take a script, which it gets on its
// standard input, so that nothing has to be written for a question. The answer
// is sbatch's own, a line such as "Job 7 to start at ... using 4 processors";
// its estimate of the time is often far off. dir is as in [SubmitRequest].
func (c Client) TestOnly(ctx context.Context, script []byte, dir string) (answer string, err error) {
	// The answer comes on standard error.
	out, said, err := c.runWith(ctx, dir, bytes.NewReader(script), "sbatch", "--test-only")
	if err != nil {
		return "", fmt.Errorf("asking sbatch: %w", err)
	}
	var lines []string
	for line := range strings.Lines(out + said) {
		if line = strings.TrimPrefix(strings.TrimSpace(line), "sbatch: "); line != "" {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "\n"), nil
}
