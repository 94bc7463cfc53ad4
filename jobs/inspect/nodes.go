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

// nodesTimeout limits how long [Search.OnNodes] waits for the nodes of a job.
const nodesTimeout = 90 * time.Second

// Nodes are nodes of a Slurm job.
type Nodes struct {
	JobID string
	Hosts []string
	// Components are all nodes of each component of a heterogeneous job, in order; nil for other jobs.
	Components [][]string
}

// OnNodes returns the ranks on nodes of a Slurm job. On each node, a step of the job runs the given
// ddpbatch binary. If some nodes do not answer in time, it returns the other ranks and an error.
func (s Search) OnNodes(ctx context.Context, nodes Nodes, binary string) ([]Rank, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, nodesTimeout, errors.New("the nodes did not answer in time"))
	defer cancel()
	argv := []string{binary, "stacks", "--here"}
	if s.FindOnly {
		argv = append(argv, "--find")
	}
	argv = nodes.Srun(false, append(argv, s.RunID)...)
	path, err := environ.LookPath(s.Env, argv[0])
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, path, argv[1:]...)
	cmd.Env, _ = slurm.Scrub(s.Env)
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

// Srun returns the command line that runs argv once on each of the nodes, next to the ranks, in "/".
// With labels, each line of output starts with the index of the node.
func (n Nodes) Srun(labels bool, argv ...string) []string {
	step := slurm.Step{
		StepSize: slurm.StepSize{Nodes: len(n.Hosts), TasksPerNode: 1, CPUsPerTask: 1},
		NodeList: n.Hosts, Overlap: true, Name: "ddpbatch-inspect", Label: labels,
		Options:    []string{"--jobid=" + n.JobID, "--chdir=/"},
		Components: slurm.OneTaskPerNode(n.Components, n.Hosts),
		Argv:       argv,
	}
	return step.SrunArgv()
}
