package main

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
	"github.com/ddpbatch/ddpbatch/jobs/doctor"
	"github.com/ddpbatch/ddpbatch/slurm"
)

// doctorTimeout limits the step that checks the nodes.
const doctorTimeout = 2 * time.Minute

// inJob checks the nodes of the allocation in a step with one task per node.
func (c *doctorCmd) inJob(ctx context.Context, p *program) ([]doctor.Finding, error) {
	allocation, err := c.allocation(p)
	if err != nil {
		return nil, err
	}
	nodes := allocation.Nodes
	binary, err := os.Executable()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(p.abs(c.Dir), ".ddpbatch-doctor-")
	if err != nil {
		return nil, hints.Add(fmt.Errorf("check the nodes: %w", err), "set --dir to a writable directory")
	}
	token := filepath.Join(dir, "token")
	defer unix.Rmdir(dir)
	// Another user may be able to replace dir with a different directory of this user.
	root, err := doctor.OpenNewDir(dir)
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
	if err := doctor.CreateEmpty(token); err != nil {
		return nil, fmt.Errorf("check the nodes: %w", err)
	}
	step := doctorStep(allocation, binary, "doctor", "--node", token, "--dir", p.abs(c.Dir))
	argv := step.SrunArgv()
	ctx, cancel := context.WithTimeout(ctx, doctorTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env, cmd.Dir, cmd.WaitDelay = step.Environ(p.Env), p.Dir, time.Second
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	before := time.Now()
	failed := cmd.Run()
	after := time.Now()
	found := parseReports(out.Bytes())
	if len(found) == 0 {
		if failed == nil {
			failed = errors.New("it printed no results")
		}
		return nil, hints.Add(fmt.Errorf("srun %s: %w: %s", binary, failed, strings.Join(strings.Fields(errOut.String()), " ")),
			"put the program on a file system that all nodes share, and run it inside an allocation: salloc -N 2 ddpbatch doctor --in-job")
	}
	findings := doctor.Merge(found, before, after)
	var silent, unseen []string
	for _, node := range nodes {
		if !slices.ContainsFunc(found, func(n doctor.Node) bool { return n.Host == node }) {
			silent = append(silent, node)
		} else if _, err := os.Stat(doctor.AnswerPath(token, node)); err != nil {
			unseen = append(unseen, node)
		}
	}
	if len(silent) > 0 {
		findings = append(findings, doctor.Finding{Part: "nodes", Level: doctor.Fail, Hosts: slurm.FoldHosts(silent),
			Detail: "no results from these nodes: " + strings.Join(strings.Fields(errOut.String()), " "), Hint: "report them to the administrator; to exclude them from a pending job, run `scontrol update JobId=ID ExcNodeList=" + slurm.FoldHosts(silent) + "`"})
	}
	if len(unseen) > 0 {
		findings = append(findings, doctor.Finding{Part: "files of all nodes", Level: doctor.Fail, Hosts: slurm.FoldHosts(unseen),
			Detail: "a file that these nodes wrote is not visible on this node", Hint: "put the run directory on a file system that all nodes share (--run-dir)"})
	}
	return findings, nil
}

// doctorStep returns the step that runs argv once on each node of the allocation.
func doctorStep(a slurm.Allocation, argv ...string) slurm.Step {
	var components [][]string
	for _, c := range a.Components {
		components = append(components, c.Nodes)
	}
	return slurm.Step{StepSize: slurm.StepSize{Nodes: len(a.Nodes), TasksPerNode: 1, CPUsPerTask: 1}, NodeList: a.Nodes, Components: slurm.OneTaskPerNode(components, a.Nodes),
		Overlap: true, Label: true, CPUBind: "none", Name: "ddpbatch-doctor", Argv: argv}
}

// allocation returns the allocation with the nodes to check: the nodes in --hosts, or all nodes.
func (c *doctorCmd) allocation(p *program) (slurm.Allocation, error) {
	a, inside, err := slurm.AllocationFromEnv(p.lookup)
	switch {
	case err != nil:
		return a, err
	case !inside:
		return a, exitError{exitUsage, hints.Add(errors.New("--in-job requires an allocation"), "run `salloc -N 2 ddpbatch doctor --in-job`, or run it in a batch script")}
	case a.StepTasks > 1:
		return a, usage("run --in-job without srun: it starts one task per node itself")
	case c.Hosts == "":
		return a, nil
	}
	hosts, err := slurm.ExpandHosts(c.Hosts)
	if err != nil {
		return a, exitError{exitUsage, err}
	}
	for _, host := range hosts {
		if !slices.Contains(a.Nodes, host) {
			return a, usage(fmt.Sprintf("--hosts: %s is not a node of the allocation %s", host, slurm.FoldHosts(a.Nodes)))
		}
	}
	a.Nodes = hosts
	return a, nil
}

// parseReports parses the output of srun --label and returns the report of each task, in task
// order. It skips all other lines, such as the output of a login script.
func parseReports(out []byte) []doctor.Node {
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
	var found []doctor.Node
	for _, task := range order {
		text := tasks[task].Bytes()
		var n doctor.Node
		if at := bytes.IndexByte(text, '{'); at >= 0 && json.NewDecoder(bytes.NewReader(text[at:])).Decode(&n) == nil && n.Host != "" {
			found = append(found, n)
		}
	}
	return found
}
