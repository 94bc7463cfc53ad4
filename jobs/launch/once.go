package launch

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/ddpbatch/ddpbatch/internal/hints"
)

// A onceProgram holds the nodes and the hostfile of a program with run = "once". It is nil for other
// programs.
type onceProgram struct {
	nodes    []string
	hostfile *os.File
}

// prepareOnce creates the hostfile of a program with run = "once". It returns nil for other
// programs, and an error if another launcher has started several ranks.
func (r *Rank) prepareOnce(o ProgramOptions) (*onceProgram, error) {
	if !r.job.RunsOnce() {
		return nil, nil
	}
	if r.Info.WorldSize != 1 {
		return nil, hints.Errorf("start it with `ddpbatch launch`, or submit it",
			"command.run = \"once\" is one process, but this is one of %d", r.Info.WorldSize)
	}
	p := &onceProgram{nodes: []string{r.Info.Host}}
	if list, ok := lookupIn(o.Environ)(programNodes); ok {
		p.nodes = strings.Split(list, ",")
	}
	var text strings.Builder
	for i, node := range p.nodes {
		fmt.Fprintf(&text, "%s slots=%d\n", node, r.job.RanksOn(i))
	}
	// Programs find the file by the descriptor of this process. Other users could replace a file
	// in a directory, and with it the hosts and commands of the program's launcher. A container may
	// not have the directory for temporary files.
	fd, err := unix.MemfdCreate("ddpbatch-hostfile", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("create hostfile: %w", err)
	}
	file := os.NewFile(uintptr(fd), "hostfile")
	if _, err := file.WriteString(text.String()); err != nil {
		file.Close()
		return nil, fmt.Errorf("write hostfile: %w", err)
	}
	p.hostfile = file
	return p, nil
}

// setVariables sets the variables that describe the nodes of the job. Nodes find each other by their
// names, because only this node has agreed on a network.
func (p *onceProgram) setVariables(environ []string) []string {
	if p == nil {
		return environ
	}
	if len(p.nodes) > 1 {
		environ = append(removeVars(environ, "MASTER_ADDR"), "MASTER_ADDR="+p.nodes[0])
	}
	return append(removeVars(environ, programNodes, programHostfile), programNodes+"="+strings.Join(p.nodes, ","),
		fmt.Sprintf("%s=/proc/%d/fd/%d", programHostfile, os.Getpid(), p.hostfile.Fd()))
}

func (p *onceProgram) close() {
	if p != nil {
		p.hostfile.Close()
	}
}

// inBatchStep reports whether the program runs in a job's batch script. Slurm then signals the
// program together with its rank.
func (r *Rank) inBatchStep(o ProgramOptions) bool {
	_, ok := lookupIn(o.Environ)(programNodes)
	return r.job.RunsOnce() && ok
}

// cancelSteps returns a function that cancels all steps of the job that have started since this call.
// An srun that is killed leaves the processes of its step behind, and the next attempt needs their
// resources. If Slurm does not reply, the steps remain, and srun reports that the nodes are busy.
func (a *attempt) cancelSteps(ctx context.Context) func() {
	if a.o.Allocation == nil {
		return func() {}
	}
	id := a.o.Allocation.JobID
	steps := func() ([]string, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), queryTimeout)
		defer cancel()
		return a.o.Slurm.Steps(ctx, id)
	}
	before, err := steps()
	if err != nil {
		return func() {}
	}
	return func() {
		after, _ := steps()
		for _, step := range after {
			if !slices.Contains(before, step) {
				ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), queryTimeout)
				_ = a.o.Slurm.KillStep(ctx, id+"."+step)
				cancel()
			}
		}
	}
}
