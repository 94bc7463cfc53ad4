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

// Reconfigure restarts slurmctld with different nodes and partitions and without its state: it
// drops all jobs, and job IDs start at 1. It takes about 200 ms.
//
// The lines are lines of slurm.conf, valid until the next Reconfigure. They replace lines with the
// same key, as in Options.SlurmConf. If any of them is a NodeName line, all previous nodes are
// removed. If any is a PartitionName line, all previous partitions are removed.
//
// Nodes that are not in this cluster get State=CLOUD. Slurm treats them as nodes that it could
// switch on, so it plans for them and answers "sbatch --test-only" without a slurmd. A job that is
// submitted to them never runs. Set EnforcePartLimits=ALL if Slurm must reject jobs that exceed a
// partition's limits instead of leaving them pending. Slurm accepts accounts and QOS of any name
// unless AccountingStorageEnforce is set.
//
// After an error the cluster has no slurmctld, and the caller can only stop it.
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

// RestartController stops slurmctld and starts it again after a delay with its state, as an
// administrator does. Meanwhile Slurm's commands fail.
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

// startAgain stops slurmctld and waits until it has restarted. down is the text of the file
// "again", which first.sh reads: the number of seconds to wait, or empty to delete slurmctld's
// state.
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

// planned returns the configuration with the given lines. Nodes that are not machines become nodes
// that Slurm only plans for.
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
	if cloud { // Slurm requires both if there are such nodes
		kept = override(kept, []string{"SuspendProgram=/bin/true", "ResumeProgram=/bin/true"})
	}
	return override(kept, lines)
}

func hasState(line string) bool {
	return slices.ContainsFunc(strings.Fields(strings.ToLower(line)), func(word string) bool {
		return strings.HasPrefix(word, "state=")
	})
}

// replaceFile replaces a file atomically, so that a concurrent reader sees the old or the new text.
func replaceFile(name, text string) error {
	next := filepath.Join(filepath.Dir(name), ".next")
	if err := os.WriteFile(next, []byte(text), 0o644); err != nil {
		return err
	}
	return os.Rename(next, name)
}
