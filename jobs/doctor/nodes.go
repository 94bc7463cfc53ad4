package doctor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/slurm"
)

// nodesTimeout limits the step that checks the nodes.
const nodesTimeout = 2 * time.Minute

// ExamineNodes checks the nodes of an allocation in a step with one task per node, which runs this
// program. Dir is a directory on the file system of the run directories, and env is the environment.
// It returns an error if no node sends its results.
func ExamineNodes(ctx context.Context, a slurm.Allocation, dir string, env []string) ([]Finding, error) {
	binary, err := os.Executable()
	if err != nil {
		return nil, err
	}
	work, err := os.MkdirTemp(dir, ".ddpbatch-doctor-")
	if err != nil {
		return nil, hints.Add(fmt.Errorf("check the nodes: %w", err), "set --dir to a writable directory")
	}
	defer unix.Rmdir(work)
	// Another user may be able to replace the directory with a different directory of this user.
	root, err := openNewDir(work)
	if err != nil {
		return nil, hints.Add(fmt.Errorf("check the nodes: %w", err), "name a directory with --dir in which other users cannot replace files")
	}
	defer root.Close()
	defer func() {
		entries, _ := fs.ReadDir(root.FS(), ".")
		for _, e := range entries {
			_ = root.Remove(e.Name())
		}
	}()
	token := filepath.Join(work, "token")
	if err := createEmpty(token); err != nil {
		return nil, fmt.Errorf("check the nodes: %w", err)
	}
	step := nodesStep(a, binary, "doctor", "--node", token, "--dir", dir)
	argv := step.SrunArgv()
	ctx, cancel := context.WithTimeout(ctx, nodesTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env, cmd.WaitDelay = step.Environ(env), time.Second
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	before := time.Now()
	failed := cmd.Run()
	after := time.Now()
	nodes, problems := parseReports(out.Bytes()), strings.Join(strings.Fields(errOut.String()), " ")
	if len(nodes) == 0 {
		if failed == nil {
			failed = errors.New("it printed no results")
		}
		return nil, hints.Add(fmt.Errorf("srun %s: %w: %s", binary, failed, problems),
			"put the program on a file system that all nodes share, and run it inside an allocation: salloc -N 2 ddpbatch doctor --in-job")
	}
	return append(merge(nodes, before, after), checkAnswers(a.Nodes, nodes, token, problems)...), nil
}

// nodesStep returns the step that runs argv once on each node of the allocation.
func nodesStep(a slurm.Allocation, argv ...string) slurm.Step {
	var components [][]string
	for _, c := range a.Components {
		components = append(components, c.Nodes)
	}
	return slurm.Step{StepSize: slurm.StepSize{Nodes: len(a.Nodes), TasksPerNode: 1, CPUsPerTask: 1}, NodeList: a.Nodes, Components: slurm.OneTaskPerNode(components, a.Nodes),
		Overlap: true, Label: true, CPUBind: "none", Name: "ddpbatch-doctor", Argv: argv}
}

// parseReports parses the output of srun --label and returns the report of each task, in task
// order. It skips all other lines, such as the output of a login script.
func parseReports(out []byte) []Node {
	tasks := map[int]*bytes.Buffer{}
	var order []int
	for line := range bytes.Lines(out) {
		label, rest, ok := bytes.Cut(line, []byte(": "))
		task, err := strconv.Atoi(string(bytes.TrimSpace(label)))
		if !ok || err != nil {
			continue
		}
		if tasks[task] == nil {
			tasks[task] = &bytes.Buffer{}
			order = append(order, task)
		}
		tasks[task].Write(rest)
	}
	slices.Sort(order)
	var found []Node
	for _, task := range order {
		text := tasks[task].Bytes()
		var n Node
		if at := bytes.IndexByte(text, '{'); at >= 0 && json.NewDecoder(bytes.NewReader(text[at:])).Decode(&n) == nil && n.Host != "" {
			found = append(found, n)
		}
	}
	return found
}

// checkAnswers returns a finding for the nodes without results, and one for the nodes whose answer to
// the token is not visible on this node. Problems are the error messages of the step.
func checkAnswers(nodes []string, results []Node, token, problems string) (findings []Finding) {
	var silent, unseen []string
	for _, node := range nodes {
		if !slices.ContainsFunc(results, func(n Node) bool { return n.Host == node }) {
			silent = append(silent, node)
		} else if _, err := os.Stat(answerPath(token, node)); err != nil {
			unseen = append(unseen, node)
		}
	}
	if len(silent) > 0 {
		list := slurm.FoldHosts(silent)
		f := fail("nodes", "no results from these nodes: "+problems, "report them to the administrator; to exclude them from a pending job, run `scontrol update JobId=ID ExcNodeList="+list+"`")
		f.Hosts = list
		findings = append(findings, f)
	}
	if len(unseen) > 0 {
		f := fail("files of all nodes", "a file that these nodes wrote is not visible on this node", "put the run directory on a file system that all nodes share (--run-dir)")
		f.Hosts = slurm.FoldHosts(unseen)
		findings = append(findings, f)
	}
	return findings
}
