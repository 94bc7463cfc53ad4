//go:build linux

package cluster

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// victimVar names an environment variable with a directory. If it is set, the test program starts a
// cluster in that directory and waits until it is killed.
const victimVar = "DDPBATCH_TEST_CLUSTER_VICTIM"

func TestMain(m *testing.M) {
	if dir := os.Getenv(victimVar); dir != "" {
		victim(dir)
	}
	os.Exit(m.Run())
}

func victim(dir string) {
	c, err := Start(context.Background(), Options{Dir: dir, Nodes: 2})
	if err == nil {
		err = c.Command(context.Background(), "sbatch", "-N2", "--wrap=srun sleep 600").Run()
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	for _, m := range c.machines {
		fmt.Println("machine", m.pid())
	}
	link, err := net.InterfaceByName(c.net.login)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("login", link.Index)
	fmt.Println("ready")
	select {}
}

// spaces returns the process and network namespaces of a process.
func spaces(t *testing.T, pid int) []string {
	t.Helper()
	var s []string
	for _, kind := range []string{"pid", "net"} {
		name, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", pid, kind))
		if err != nil {
			t.Fatal(err)
		}
		s = append(s, name)
	}
	return s
}

// ticks returns the time since the machine started in the clock ticks of startTime.
func ticks(t *testing.T) int64 {
	t.Helper()
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		t.Fatal(err)
	}
	return now.Nano() / (int64(time.Second) / 100) // USER_HZ is 100 on all of Go's Linux ports
}

// within lists the processes in one of the namespaces that started by the given time, except dead
// ones: the machine's init process may take time to reap them. A process that started later may be
// in a namespace of another test that got the number of an old one.
func within(t *testing.T, spaces []string, by int64) []string {
	t.Helper()
	var found []string
	links, err := filepath.Glob("/proc/[0-9]*/ns/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, link := range links {
		name, err := os.Readlink(link)
		if err != nil || !slices.Contains(spaces, name) {
			continue
		}
		var pid int
		if _, err := fmt.Sscanf(link, "/proc/%d/", &pid); err != nil {
			t.Fatal(err)
		}
		start, err := startTime(pid)
		if err != nil {
			continue
		}
		started, err := strconv.ParseInt(start, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		if started <= by {
			found = append(found, link)
		}
	}
	return found
}

// TestStopLeavesNothing checks that Stop leaves no process, link, file, or file descriptor,
// although a job has left its session.
func TestStopLeavesNothing(t *testing.T) {
	needRoot(t)
	temp, err := Start(t.Context(), Options{Nodes: 2})
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, m := range temp.machines {
		all = append(all, spaces(t, m.pid())...)
	}
	// A step, and a process that has left its session as daemons do.
	sbatch(t, temp, "srun sh -c 'setsid sleep 600 & sleep 600'\n", "-N2")
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		if out, err := temp.OnNode(t.Context(), "n2", "pgrep", "-c", "sleep").Output(); err == nil && string(out) == "2\n" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the job does not run on n2:\n%s", temp.Logs())
		}
	}
	stop := ticks(t)
	if len(within(t, all, stop)) == 0 {
		t.Fatal("no process is in the cluster's namespaces")
	}
	dir := temp.Dir()
	login, err := net.InterfaceByName(temp.net.login)
	if err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	if err := temp.Stop(); err != nil {
		t.Fatal(err)
	}
	t.Logf("stopped after %v", time.Since(begin).Round(time.Millisecond))
	for _, p := range within(t, all, stop) {
		t.Errorf("left behind: %s", p)
	}
	for _, line := range leftovers(t, dir) {
		t.Errorf("left behind: %s", line)
	}
	// Another test may have a new link with the old name, but not with the old index.
	if _, err := net.InterfaceByIndex(login.Index); err == nil {
		t.Errorf("left behind: link %s", login.Name)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Errorf("left behind: temporary directory %s", dir)
	}
	open, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range open {
		if name, err := os.Readlink(fd); err == nil && strings.HasPrefix(name, "net:") {
			t.Errorf("left open: %s", name)
		}
	}
	if err := temp.Stop(); err != nil {
		t.Errorf("the second Stop: %v", err)
	}
}

// TestKilledOwner checks that a cluster stops when the process that started it dies, and that the
// next cluster can start in its directory immediately, even if a machine's processes were stopped
// by a signal and could not react.
func TestKilledOwner(t *testing.T) {
	needRoot(t)
	dir := t.TempDir()
	owner := exec.Command(os.Args[0])
	owner.Env = append(os.Environ(), victimVar+"="+dir)
	owner.Stderr = os.Stderr
	out, err := owner.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := owner.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // if the test fails early
		_ = owner.Process.Kill()
		_ = owner.Wait()
		if lock, err := layout(dir).claim(); err == nil {
			lock.Close()
		}
	})
	var pids []int
	var all []string
	var login int
	ready := false
	for scan := bufio.NewScanner(out); !ready && scan.Scan(); {
		var pid int
		if n, _ := fmt.Sscanf(scan.Text(), "machine %d", &pid); n == 1 {
			pids = append(pids, pid)
			all = append(all, spaces(t, pid)...)
		} else if n, _ := fmt.Sscanf(scan.Text(), "login %d", &login); n == 0 {
			if ready = scan.Text() == "ready"; !ready {
				t.Log(scan.Text())
			}
		}
	}
	if !ready || len(pids) != 3 {
		t.Fatalf("the cluster did not start: %v", owner.Wait())
	}
	if _, err := Start(t.Context(), Options{Dir: dir}); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("a second cluster in the same directory: %v", err)
	}
	if err := syscall.Kill(pids[0], syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	killed := ticks(t)
	if err := owner.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = owner.Wait()
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(10 * time.Millisecond) {
		alive := slices.DeleteFunc(slices.Clone(pids[1:]), func(pid int) bool {
			_, err := startTime(pid)
			return err != nil
		})
		if len(alive) == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("machines %v outlive their owner", alive)
		}
	}
	// Call the first action of a start separately, because it alone must end what is left.
	begin := time.Now()
	lock, err := layout(dir).claim()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("all gone after %v", time.Since(begin).Round(time.Millisecond))
	for _, p := range within(t, all, killed) {
		t.Errorf("left behind: %s", p)
	}
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
	c := ForTest(t, Options{Dir: dir, Nodes: 2})
	if got := sortedLines(mustOutput(t, c, "srun", "-N2", "hostname")); !slices.Equal(got, []string{"n1", "n2"}) {
		t.Errorf("srun says %q", got)
	}
	if got := mustOutput(t, c, "squeue", "-h", "-t", "all", "-o", "%T"); strings.Contains(got, "RUNNING") {
		t.Errorf("the dead cluster's jobs are still there: %q", got)
	}
	// The kernel removes links a moment after their last process. Another cluster may already have
	// a link with the name of this one, but not with its index.
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		link, err := net.InterfaceByIndex(login)
		if err != nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("left behind: link %s", link.Name)
		}
	}
}

// TestSweep checks that a later start removes what a killed process left in the temporary
// directory, and nothing else.
func TestSweep(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	long := time.Now().Add(-time.Hour)
	claimed := func(name string, at time.Time) *os.File {
		t.Helper()
		l := layout(filepath.Join(tmp, name))
		lock, err := l.claim()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { lock.Close() })
		if err := os.Chtimes(l.marker(), at, at); err != nil {
			t.Fatal(err)
		}
		return lock
	}
	claimed(tempPrefix+"running", long)
	claimed(tempPrefix+"new", time.Now()).Close()
	claimed(tempPrefix+"dead", long).Close()
	claimed("other", long).Close()
	if err := os.Mkdir(filepath.Join(tmp, tempPrefix+"unclaimed"), 0o755); err != nil {
		t.Fatal(err)
	}
	sweep()
	entries, err := os.ReadDir(tmp)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, strings.TrimPrefix(e.Name(), tempPrefix))
	}
	if want := []string{"new", "running", "unclaimed", "other"}; !slices.Equal(names, want) {
		t.Errorf("after the sweep there are %q; want %q", names, want)
	}
}
