package inspect

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/ddpbatch/ddpbatch/internal/environ"
	"github.com/ddpbatch/ddpbatch/internal/printable"
	"github.com/ddpbatch/ddpbatch/slurm"
)

// nodesTimeout limits how long [CollectNodes] waits for the nodes of a job.
const nodesTimeout = 90 * time.Second

// CollectNodes returns the ranks of a run on hosts of a Slurm job. On each host, a step of the job
// runs the given ddpbatch binary. If some hosts do not answer in time, it returns the other ranks
// and an error.
func CollectNodes(ctx context.Context, runID, jobID string, hosts []string, binary string, env []string) ([]Rank, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, nodesTimeout, errors.New("the nodes did not answer in time"))
	defer cancel()
	return runOnNodes(ctx, Srun(jobID, hosts, 1, binary, "stacks", "--here", runID), env)
}

// FindNodes returns the ranks like [CollectNodes], without what they are doing.
func FindNodes(ctx context.Context, runID, jobID string, hosts []string, binary string, env []string) ([]Rank, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, nodesTimeout, errors.New("the nodes did not answer in time"))
	defer cancel()
	return runOnNodes(ctx, Srun(jobID, hosts, 1, binary, "stacks", "--here", "--find", runID), env)
}

// runOnNodes returns the ranks that the command prints on all nodes.
func runOnNodes(ctx context.Context, argv, env []string) ([]Rank, error) {
	path, err := environ.LookPath(env, argv[0])
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, path, argv[1:]...)
	cmd.Env, _ = slurm.Scrub(env)
	cmd.WaitDelay = time.Second
	var out, problems bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problems
	err = cmd.Run()
	var ranks []Rank
	lines := bufio.NewScanner(&out)
	lines.Buffer(nil, 8<<20)
	for lines.Scan() {
		var r Rank
		if json.Unmarshal(lines.Bytes(), &r) == nil && r.PID > 0 {
			ranks = append(ranks, r)
		}
	}
	slices.SortFunc(ranks, func(a, b Rank) int { return cmp.Compare(a.Rank, b.Rank) })
	if err != nil {
		text := strings.TrimSpace(problems.String())
		if ctx.Err() != nil {
			text = context.Cause(ctx).Error()
		}
		return ranks, fmt.Errorf("srun: %w: %s", err, printable.Line(text))
	}
	return ranks, nil
}

// Srun returns the command line that runs argv on hosts of a job, next to its ranks.
func Srun(jobID string, hosts []string, perNode int, argv ...string) []string {
	return slurm.Step{
		StepSize: slurm.StepSize{Nodes: len(hosts), TasksPerNode: perNode, CPUsPerTask: 1},
		NodeList: hosts, Overlap: true, Name: "ddpbatch-inspect",
		Options: []string{"--jobid=" + jobID},
		Argv:    argv,
	}.SrunArgv()
}
