//go:build linux

package cluster

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
)

// sbatch submits a script and returns the job ID. The output file is DIR/JOB.out.
func sbatch(t *testing.T, c *Cluster, script string, args ...string) string {
	t.Helper()
	dir := t.TempDir()
	cmd := c.Command(t.Context(), append([]string{"sbatch", "--parsable", "--output=" + dir + "/%j.out"}, args...)...)
	cmd.Stdin = strings.NewReader("#!/bin/bash\n" + script)
	out, err := output(cmd)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(out)
}

// wait waits for a state for up to a minute.
func wait(t *testing.T, c *Cluster, id string, states ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := c.WaitJob(ctx, id, states...); err != nil {
		t.Fatal(err)
	}
}

func mustOutput(t *testing.T, c *Cluster, argv ...string) string {
	t.Helper()
	out, err := output(c.Command(t.Context(), argv...))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func sortedLines(text string) []string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	slices.Sort(lines)
	return lines
}

// TestCluster runs all tests that can share one cluster.
func TestCluster(t *testing.T) {
	begin := time.Now()
	c := ForTest(t, Options{Dir: t.TempDir(), SlurmConf: []string{"SlurmdTimeout=20", "MessageTimeout=5"}})
	t.Logf("up after %v", time.Since(begin).Round(time.Millisecond))
	ctx := t.Context()

	t.Run("layout", func(t *testing.T) {
		got := sortedLines(mustOutput(t, c, "srun", "-N3", "-n6", "--ntasks-per-node=2", "-l", "hostname"))
		want := []string{"0: n1", "1: n1", "2: n2", "3: n2", "4: n3", "5: n3"}
		if !slices.Equal(got, want) {
			t.Errorf("srun says %q; want %q", got, want)
		}
		// Without -w, Slurm chooses other nodes while one is still busy with the previous job.
		hosts := sortedLines(mustOutput(t, c, "srun", "-w", "n[1-3]", "-N3", "-n6", "hostname"))
		if len(hosts) != 6 || !slices.Equal(slices.Compact(hosts), []string{"n1", "n2", "n3"}) {
			t.Errorf("six tasks on three nodes say %q", hosts)
		}
	})

	t.Run("gpus", func(t *testing.T) {
		got := mustOutput(t, c, "srun", "-N1", "-n1", "--gres=gpu:2", "printenv", "CUDA_VISIBLE_DEVICES")
		if got != "0,1\n" {
			t.Errorf("CUDA_VISIBLE_DEVICES=%q; want 0,1", got)
		}
	})

	t.Run("batch", func(t *testing.T) {
		begin := time.Now()
		id := sbatch(t, c, "srun hostname\n", "-N2")
		wait(t, c, id, "COMPLETED")
		t.Logf("completed after %v", time.Since(begin).Round(time.Millisecond))
		bad := sbatch(t, c, "echo the reason; exit 7\n")
		_, err := c.WaitJob(ctx, bad, "COMPLETED")
		if err == nil || !strings.Contains(err.Error(), "exit code 7:0") || !strings.Contains(err.Error(), "the reason") {
			t.Errorf("a failed job is explained with %v", err)
		}
		if _, err := c.JobState(ctx, "4711"); err == nil || !strings.Contains(err.Error(), "Invalid job id") {
			t.Errorf("state of no job: %v", err)
		}
	})

	t.Run("traffic", func(t *testing.T) { testTraffic(t, c) })
	t.Run("isolation", func(t *testing.T) { testIsolation(t, c) })
	t.Run("orphans", func(t *testing.T) { testOrphans(t, c) })
	t.Run("preemption", func(t *testing.T) {
		low := sbatch(t, c, "sleep 600\n", "-N4", "--exclusive", "-p", "low")
		wait(t, c, low, "RUNNING")
		high := sbatch(t, c, "true\n", "-N4", "--exclusive", "-p", "high")
		wait(t, c, high, "COMPLETED")
		wait(t, c, low, "PENDING", "RUNNING")
		if got := mustOutput(t, c, "scontrol", "show", "job", low); !strings.Contains(got, "Restarts=1") {
			t.Errorf("the low job was not requeued:\n%s", got)
		}
		mustOutput(t, c, "scancel", low)
		wait(t, c, low, "CANCELLED")
	})
	t.Run("node loss", func(t *testing.T) { testNodeLoss(t, c) })
}

// testTraffic checks that bytes that a job sends to a fast address use the fast network.
func testTraffic(t *testing.T, c *Cluster) {
	const size = 8 << 20
	to, err := c.Address("n1", "hsn0")
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(t.TempDir(), "transfer.py")
	err = os.WriteFile(program, fmt.Appendf(nil, `
import os, socket, time
a = ("%v", 7000)
if os.environ["SLURM_PROCID"] == "0":
    c, _ = socket.create_server(a).accept()
    n = 0
    while b := c.recv(1 << 20):
        n += len(b)
    assert n == %[2]d, n
else:
    for _ in range(100):
        try:
            c = socket.create_connection(a)
            break
        except ConnectionRefusedError:
            time.sleep(0.05)
    c.sendall(bytes(%[2]d))
`, to, size), 0o644)
	if err != nil {
		t.Fatal(err)
	}
	count := func(node, iface string) [2]uint64 {
		rx, tx, err := c.Counters(node, iface)
		if err != nil {
			t.Fatal(err)
		}
		return [2]uint64{rx, tx}
	}
	fast1, fast2, slow2 := count("n1", "hsn0"), count("n2", "hsn0"), count("n2", "eth0")
	mustOutput(t, c, "srun", "-w", "n[1-2]", "-N2", "-n2", "/usr/bin/python3", program)
	if n := count("n1", "hsn0")[0] - fast1[0]; n < size {
		t.Errorf("n1 received %d bytes on hsn0; want at least %d", n, size)
	}
	if n := count("n2", "hsn0")[1] - fast2[1]; n < size {
		t.Errorf("n2 sent %d bytes on hsn0; want at least %d", n, size)
	}
	if n := count("n2", "eth0")[1] - slow2[1]; n > size/10 {
		t.Errorf("n2 sent %d bytes on eth0; want only Slurm's own", n)
	}
}

// testIsolation checks that each node has its own links, processes, and shared memory, and that
// only the nodes can use the fast network.
func testIsolation(t *testing.T, c *Cluster) {
	ctx := t.Context()
	names, err := output(c.OnNode(ctx, "n2", "ls", "/sys/class/net"))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Fields(names), []string{"docker0", "eth0", "hsn0", "lo", "veth3f2a9c1"}; !slices.Equal(got, want) {
		t.Errorf("n2 has links %q; want %q", got, want)
	}
	text, err := output(c.OnNode(ctx, "n2", "sh", "-c", "hostname; pgrep -c slurmd; ip -br addr show docker0; touch /dev/shm/n2; pwd"))
	if err != nil {
		t.Fatal(err)
	}
	wd, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(text, "\n")
	if lines[0] != "n2" || lines[1] != "1" || !strings.Contains(lines[2], "UP") || !strings.Contains(lines[2], "172.17.0.1/16") || lines[3] != wd {
		t.Errorf("on n2: %q; want its name, one slurmd, docker0 up, and %s", lines, wd)
	}
	if out, err := c.OnNode(ctx, "n1", "ls", "/dev/shm").CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("n1 sees n2's shared memory: %s (%v)", out, err)
	}

	fast, err := c.Address("n2", "hsn0")
	if err != nil {
		t.Fatal(err)
	}
	links, err := c.net.inside.LinkList()
	if err != nil {
		t.Fatal(err)
	}
	var ports []string
	for _, l := range links {
		if l.Attrs().MasterIndex == c.net.fastSwitch.Attrs().Index {
			ports = append(ports, l.Attrs().Name)
		}
	}
	slices.Sort(ports)
	if want := []string{"n1-fast", "n2-fast", "n3-fast", "n4-fast"}; !slices.Equal(ports, want) {
		t.Errorf("the fast switch has ports %q; want %q", ports, want)
	}
	// Check only where the route leads. The network behind this machine's own default route is out
	// of scope.
	login, err := net.InterfaceByName(c.net.login)
	if err != nil {
		t.Fatal(err)
	}
	if routes, err := netlink.RouteGet(fast.AsSlice()); err == nil && routes[0].LinkIndex == login.Index {
		t.Errorf("the login node reaches the fast network: %v", routes[0])
	}
	// slurmd listens on every interface, so it must be reachable.
	reach := func() error {
		return c.OnNode(ctx, "n1", "timeout", "5", "bash", "-c", fmt.Sprintf("</dev/tcp/%v/6818", fast)).Run()
	}
	if err := reach(); err != nil {
		t.Errorf("n1 does not reach n2 on the fast network: %v", err)
	}
	if err := c.LinkDown("n1", "hsn0"); err != nil {
		t.Fatal(err)
	}
	if err := reach(); err == nil {
		t.Error("n1 reaches n2 with its link down")
	}
	if err := c.LinkUp("n1", "hsn0"); err != nil {
		t.Fatal(err)
	}
	if err := reach(); err != nil {
		t.Errorf("n1 does not reach n2 with its link up again: %v", err)
	}
	if err := c.LinkDown("n1", "ib0"); err == nil {
		t.Error("took down a link that is not there")
	}
	if err := c.OnNode(ctx, "n9", "true").Run(); err == nil {
		t.Error("ran a command on a node that is not there")
	}
}

// testOrphans checks that the first process of a node reaps orphans.
func testOrphans(t *testing.T, c *Cluster) {
	if err := c.OnNode(t.Context(), "n3", "sh", "-c", "for i in 1 2 3; do (sleep 0.05 &) ; done").Run(); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(2 * time.Minute)
	for {
		out, err := output(c.OnNode(t.Context(), "n3", "ps", "-eo", "ppid,stat,args"))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(out, "sleep") && !strings.Contains(out, " Z") {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("orphans stay:\n%s", out)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func testNodeLoss(t *testing.T, c *Cluster) {
	ctx := t.Context()
	id := sbatch(t, c, "sleep 600\n", "-N2", "-w", "n[3-4]", "--no-requeue")
	wait(t, c, id, "RUNNING")
	begin := time.Now()
	if err := c.KillNode("n4"); err != nil {
		t.Fatal(err)
	}
	if err := c.KillNode("n4"); err == nil {
		t.Error("killed a dead node")
	}
	wait(t, c, id, "NODE_FAIL")
	t.Logf("the job failed after %v", time.Since(begin).Round(time.Millisecond))
	state, err := c.NodeState(ctx, "n4")
	if err != nil || !strings.HasPrefix(state, "DOWN") {
		t.Errorf("n4 is %s (%v); want DOWN", state, err)
	}
	begin = time.Now()
	if err := c.RestartNode(ctx, "n4"); err != nil {
		t.Fatal(err)
	}
	t.Logf("back after %v", time.Since(begin).Round(time.Millisecond))
	if got := mustOutput(t, c, "srun", "-w", "n4", "hostname"); got != "n4\n" {
		t.Errorf("n4 says %q", got)
	}
}

// TestConcurrentClusters checks that two clusters on one machine do not see each other.
func TestConcurrentClusters(t *testing.T) {
	a := ForTest(t, Options{Nodes: 1})
	b := ForTest(t, Options{Nodes: 2, GPUs: -1})
	if a.net.subnet == b.net.subnet {
		t.Errorf("both have subnet %v", a.net.subnet)
	}
	if got := mustOutput(t, a, "sinfo", "-h", "-p", "batch", "-o", "%D"); got != "1\n" {
		t.Errorf("the first has %q nodes", got)
	}
	if got := sortedLines(mustOutput(t, b, "srun", "-N2", "hostname")); !slices.Equal(got, []string{"n1", "n2"}) {
		t.Errorf("the second says %q", got)
	}
}

// TestStartFails checks that Start reports which daemon failed and why, and leaves no process or
// file, also if its context ends.
func TestStartFails(t *testing.T) {
	needRoot(t)
	for name, o := range map[string]Options{
		"slurmctld": {Dir: t.TempDir(), SlurmConf: []string{"SelectType=select/nonsense"}},
		"slurmd":    {Dir: t.TempDir(), SlurmConf: []string{"TaskPlugin=task/nonsense"}},
	} {
		c, err := Start(t.Context(), o)
		if err == nil {
			t.Errorf("%s: started with a bad configuration", name)
			_ = c.Stop()
			continue
		}
		if !strings.Contains(err.Error(), name+" ended with exit code 1") || !strings.Contains(err.Error(), "nonsense") {
			t.Errorf("%s: the error does not say why: %v", name, err)
		}
		for _, line := range leftovers(t, o.Dir) {
			t.Errorf("%s: left behind: %s", name, line)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	dir := t.TempDir()
	if c, err := Start(ctx, Options{Dir: dir, Nodes: 100}); err == nil {
		t.Error("a hundred nodes came up in 100ms")
		_ = c.Stop()
	}
	for _, line := range leftovers(t, dir) {
		t.Errorf("left behind: %s", line)
	}
}

// leftovers lists the processes and mounts that refer to a cluster's directory.
func leftovers(t *testing.T, dir string) []string {
	t.Helper()
	var left []string
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		if text, err := os.ReadFile(name); err == nil && bytes.Contains(text, []byte(dir)) {
			left = append(left, name+": "+strings.ReplaceAll(string(text), "\x00", " "))
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, dir) {
			left = append(left, line)
		}
	}
	return left
}
