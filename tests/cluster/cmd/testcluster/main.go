//go:build linux

// Testcluster starts the Slurm cluster of the tests for manual experiments, and stops it on Ctrl-C.
// It needs root and the packages that tests/setup.sh installs.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/tests/cluster"
)

func main() {
	var o cluster.Options
	flag.StringVar(&o.Dir, "dir", "", "the cluster's `directory` (default: a temporary one, removed at the end)")
	flag.IntVar(&o.Nodes, "nodes", 0, "number of nodes (default 4; -1: none)")
	flag.IntVar(&o.CPUs, "cpus", 0, "CPUs per node, as Slurm counts (default 4)")
	flag.IntVar(&o.GPUs, "gpus", 0, "GPUs per node, as Slurm counts (default 2; -1: none)")
	flag.BoolVar(&o.Accounting, "accounting", false, "start slurmdbd with a MariaDB, for sacct and sacctmgr")
	flag.Func("conf", "a `line` for slurm.conf, such as KillWait=2 (may be repeated)", func(line string) error {
		o.SlurmConf = append(o.SlurmConf, line)
		return nil
	})
	flag.Parse()
	if err := run(o); err != nil {
		fmt.Fprintln(os.Stderr, "testcluster:", err)
		if hint := hints.Of(err); hint != "" {
			fmt.Fprintln(os.Stderr, "hint:", hint)
		}
		os.Exit(1)
	}
}

func run(o cluster.Options) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	begin := time.Now()
	c, err := cluster.Start(ctx, o)
	if err != nil {
		return err
	}
	fmt.Printf("%d nodes are up after %.1fs. In another terminal, as root:\n\n", len(c.Nodes()), time.Since(begin).Seconds())
	fmt.Printf("  export %s\n  sinfo\n  srun -N2 -n4 hostname\n\n", strings.Join(c.Env(), " "))
	fmt.Printf("A shell on n1: %s\n", strings.Join(c.OnNode(ctx, "n1", "bash").Args, " "))
	fmt.Printf("Logs: %s/log\nCtrl-C stops the cluster.\n", c.Dir())
	<-ctx.Done()
	return c.Stop()
}
