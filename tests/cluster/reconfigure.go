//go:build linux

package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Reconfigure starts slurmctld again with other nodes and partitions, and with nothing of its past:
// jobs are forgotten and ids begin at 1. It takes some 200 ms.
//
// The lines are those of slurm.conf and count only until the next Reconfigure. They replace lines of
// the same key as in Options.SlurmConf; but where any of them is a NodeName line, all nodes that
// were there before are gone, and where any is a PartitionName line, all partitions.
//
// Nodes other than this cluster's own are only said to exist, with State=CLOUD: Slurm takes them
// for nodes that it would switch on, so that it plans for them and answers "sbatch --test-only"
// without a slurmd anywhere. A job that is really sent to them never runs. To have Slurm refuse
// what is over a partition's limits, and not leave it pending, give the line EnforcePartLimits=ALL.
// Accounts and QOS of any name are accepted unless AccountingStorageEnforce is set.
//
// An error leaves the cluster without slurmctld; all that is left to do with it is to stop it.
func (c *Cluster) Reconfigure(ctx context.Context, lines ...string) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := c.reconfigure(ctx, lines); err != nil {
		return fmt.Errorf("reconfigure cluster: %w\n%s", err, tail(c.dir.log(controlName), 5))
	}
	return nil
}

func (c *Cluster) reconfigure(ctx context.Context, lines []string) error {
	for _, line := range lines {
		if confKey(line) == "" {
			return fmt.Errorf("slurm.conf line %q: need one key=value line", line)
		}
	}
	ctl := c.running(controlName)
	if ctl == nil {
		return errors.New("it does not run")
	}
	conf := strings.Split(strings.TrimSuffix(slurmConf(c.opts, c.net.subnet), "\n"), "\n")
	text := strings.Join(planned(conf, lines, c.Nodes()), "\n") + "\n"
	if err := replaceFile(c.dir.slurmEtc("slurm.conf"), text); err != nil {
		return err
	}
	return c.startAgain(ctx, ctl, "")
}

// RestartController ends slurmctld and after a while starts it again as it was, as an administrator
// does: it knows its jobs. Commands meanwhile find none.
func (c *Cluster) RestartController(ctx context.Context, down time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	ctl := c.running(controlName)
	if ctl == nil {
		return errors.New("restart slurmctld: it does not run")
	}
	if err := c.startAgain(ctx, ctl, fmt.Sprintf("%.3f", down.Seconds())); err != nil {
		return fmt.Errorf("restart slurmctld: %w\n%s", err, tail(c.dir.log(controlName), 5))
	}
	return nil
}

// startAgain ends slurmctld and waits until it is there again; down is what first.sh finds
// in the file "again": for how many seconds, or nothing, to take its past away.
func (c *Cluster) startAgain(ctx context.Context, ctl *machine, down string) error {
	if err := os.WriteFile(c.dir.again(), []byte(down), 0o644); err != nil {
		return err
	}
	if _, err := output(c.Command(ctx, "scontrol", "shutdown", "slurmctld")); err != nil {
		return err
	}
	for {
		_, err := os.Stat(c.dir.again())
		if errors.Is(err, fs.ErrNotExist) {
			return c.waitController(ctx, ctl)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("slurmctld does not end: %w", ctx.Err())
		case <-ctl.gone:
			return ctl.failed()
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// planned returns a configuration with other lines. Nodes that are not machines become ones that
// are only planned for.
func planned(conf, lines, machines []string) []string {
	lines = slices.Clone(lines)
	replaced := make(map[string]bool)
	cloud := false
	for i, line := range lines {
		kind, name, _ := strings.Cut(confKey(line), "=")
		switch kind {
		case "nodename":
			replaced[kind] = true
			same := func(machine string) bool { return strings.EqualFold(machine, name) }
			if slices.ContainsFunc(machines, same) || strings.EqualFold(name, "default") || hasState(line) {
				continue
			}
			lines[i] = line + " State=CLOUD"
			cloud = true
		case "partitionname":
			replaced[kind] = true
		}
	}
	var kept []string
	for _, line := range conf {
		if kind, _, _ := strings.Cut(confKey(line), "="); !replaced[kind] {
			kept = append(kept, line)
		}
	}
	if cloud { // they are asked for where there are such nodes
		kept = override(kept, []string{"SuspendProgram=/bin/true", "ResumeProgram=/bin/true"})
	}
	return override(kept, lines)
}

func hasState(line string) bool {
	return slices.ContainsFunc(strings.Fields(strings.ToLower(line)), func(word string) bool {
		return strings.HasPrefix(word, "state=")
	})
}

// replaceFile changes a file at once, so that a program that reads it meanwhile sees either text.
func replaceFile(name, text string) error {
	next := filepath.Join(filepath.Dir(name), ".next")
	if err := os.WriteFile(next, []byte(text), 0o644); err != nil {
		return err
	}
	return os.Rename(next, name)
}
