//go:build linux

package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"sync"
	"time"

	"github.com/ddpbatch/ddpbatch/internal/hints"
)

// startTimeout limits the start of a cluster, a node, or slurmctld, unless the context ends
// earlier. The usual start takes a few seconds, and longer on a busy machine.
const startTimeout = 2 * time.Minute

// A Cluster is a running cluster. Its methods are safe for concurrent use.
type Cluster struct {
	opts Options
	dir  layout
	temp bool // dir is a temporary directory that Start created
	lock *os.File
	net  *network

	mu       sync.Mutex
	machines map[string]*machine // running machines by name
}

// Start starts a cluster and returns when all its nodes are idle. The context applies only to the
// start. The cluster runs until [Cluster.Stop] or until this process ends.
//
// An error names the part that did not start and quotes its log. An error about software that is
// missing on the machine has a hint (Hint() string).
func Start(ctx context.Context, o Options) (c *Cluster, err error) {
	o, err = o.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("start cluster: %w", err)
	}
	if err := checkMachine(o); err != nil {
		return nil, fmt.Errorf("start cluster: %w", err)
	}
	c = &Cluster{machines: make(map[string]*machine)}
	if o.Dir == "" {
		sweep()
		if o.Dir, err = os.MkdirTemp("", tempPrefix); err != nil {
			return nil, fmt.Errorf("start cluster: %w", err)
		}
		c.temp = true
	}
	c.opts, c.dir = o, layout(o.Dir)
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := c.up(ctx); err != nil {
		err = fmt.Errorf("start cluster: %w\n%s", err, c.Logs())
		return nil, errors.Join(err, c.Stop())
	}
	return c, nil
}

// checkMachine checks the requirements of a start: root and the programs.
func checkMachine(o Options) error {
	if os.Geteuid() != 0 {
		return hints.Errorf("run the tests as root on Debian", "not root: namespaces and Slurm's daemons need it")
	}
	programs := []string{"slurmctld", "slurmd", "munged", "scontrol", "sinfo", "srun", "setpriv", "nsenter", "mount"}
	if o.Accounting {
		programs = append(programs, "slurmdbd", "sacctmgr", "sacct", "mariadbd", "mariadb-install-db")
	}
	for _, name := range programs {
		if _, err := exec.LookPath(name); err != nil {
			return hints.Add(err, "install what the tests need with tests/setup.sh")
		}
	}
	if _, err := user.Lookup("munge"); err != nil {
		return hints.Add(err, "install what the tests need with tests/setup.sh")
	}
	return nil
}

// up starts all parts. If it fails, Stop must clean up the started parts.
func (c *Cluster) up(ctx context.Context) error {
	if err := c.dir.check(); err != nil {
		return err
	}
	var err error
	if c.lock, err = c.dir.claim(); err != nil {
		return err
	}
	if c.net, err = newNetwork(); err != nil {
		return err
	}
	login, err := os.Hostname()
	if err != nil {
		return err
	}
	if err := c.dir.fill(c.opts, c.net.subnet, login); err != nil {
		return err
	}
	ctl, err := c.add(controlName, roleControl)
	if err != nil {
		return err
	}
	if err := c.net.connectControl(ctl); err != nil {
		return err
	}
	if err := ctl.boot(); err != nil {
		return err
	}
	// A slurmd that finds no slurmctld waits for a while before it tries again.
	if err := c.waitController(ctx, ctl); err != nil {
		return err
	}
	for i := 1; i <= c.opts.Nodes; i++ {
		if err := c.bootNode(i); err != nil {
			return err
		}
	}
	return c.waitNodes(ctx, c.Nodes(), func(n nodeInfo) bool { return n.state == "IDLE" })
}

// add creates a machine and registers it for Stop.
func (c *Cluster) add(name string, r role) (*machine, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.machines[name] != nil {
		return nil, fmt.Errorf("machine %s runs already", name)
	}
	m, err := plugIn(c.dir, name, r, c.lock)
	if err != nil {
		return nil, err
	}
	c.machines[name] = m
	return m, nil
}

func (c *Cluster) bootNode(i int) error {
	m, err := c.add(nodeName(i), roleNode)
	if err != nil {
		return err
	}
	if err := c.net.connectNode(m, i); err != nil {
		return fmt.Errorf("connect %s: %w", m.name, err)
	}
	return m.boot()
}

// waitController waits until slurmctld listens.
func (c *Cluster) waitController(ctx context.Context, ctl *machine) error {
	address := net.JoinHostPort(c.net.control().String(), "6817")
	for {
		conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", address)
		if err == nil {
			return conn.Close()
		}
		if err := ctl.failed(); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("slurmctld does not answer at %s: %w", address, ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// running returns the machine, or nil if it is not running.
func (c *Cluster) running(name string) *machine {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.machines[name]
}

// Stop stops the cluster with everything that runs on it, including jobs, and returns when all
// processes have exited. It can be called twice. The caller must stop commands of [Cluster.Command]
// that still run on the login node.
func (c *Cluster) Stop() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var errs []error
	for name, m := range c.machines {
		m.off()
		delete(c.machines, name)
	}
	if c.net != nil {
		if err := c.net.close(); err != nil {
			errs = append(errs, fmt.Errorf("remove the network: %w", err))
		}
	}
	if c.lock != nil {
		errs = append(errs, c.lock.Close())
		c.lock = nil
	}
	if c.temp {
		errs = append(errs, os.RemoveAll(string(c.dir)))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("stop cluster: %w", err)
	}
	return nil
}

// Dir returns the cluster's directory, which contains its configuration and logs.
func (c *Cluster) Dir() string { return string(c.dir) }

// Nodes returns the names of the nodes, n1 and up, including nodes that are not running.
func (c *Cluster) Nodes() []string {
	names := make([]string, c.opts.Nodes)
	for i := range names {
		names[i] = nodeName(i + 1)
	}
	return names
}
