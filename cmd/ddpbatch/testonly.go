package main

import (
	"bytes"
	"context"
	"os/exec"
	"strings"
	"time"

	"github.com/ddpbatch/ddpbatch/slurm"
)

// testOnlyTimeout bounds sbatch, as in package slurm.
const testOnlyTimeout = 60 * time.Second

// testOnly asks sbatch whether it would take the script, which it gets on its
// standard input: no run directory is made for a question.
func (p *program) testOnly(ctx context.Context, f *jobFile, script []byte) error {
	ctx, cancel := context.WithTimeout(ctx, testOnlyTimeout)
	defer cancel()
	argv := []string{"sbatch", "--test-only"}
	start := time.Now()
	var said bytes.Buffer
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = f.base, bytes.NewReader(script), &said, &said
	cmd.Env, _ = slurm.Scrub(p.Env)
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return &slurm.CommandError{Argv: argv, Err: err, After: time.Since(start), Stderr: said.String()}
	}
	for line := range strings.Lines(said.String()) {
		p.printf("%s\n", strings.TrimPrefix(strings.TrimSpace(line), "sbatch: "))
	}
	return nil
}
