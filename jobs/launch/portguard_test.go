package launch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ddpbatch/ddpbatch/internal/listeners"
	"github.com/ddpbatch/ddpbatch/jobs"
	"github.com/ddpbatch/ddpbatch/jobs/outcome"
	"github.com/ddpbatch/ddpbatch/jobs/rundir"
)

// otherID is an unprivileged user without a name.
const otherID = 61099

// otherUser does what another user can do to the port of a program, which is in the environment:
// listen on it, or bind it without listening until a file "listen" exists. It ends when a directory is
// removed.
func otherUser(what, dir string) int {
	port, _ := strconv.Atoi(os.Getenv("MASTER_PORT"))
	fail := func(err error) int { fmt.Fprintln(os.Stderr, what, port, err); return 99 }
	if err := syscall.Setuid(otherID); err != nil {
		return fail(err)
	}
	end, s := time.Now().Add(2*time.Minute), -1
	switch what {
	case "listen":
		if _, err := net.Listen("tcp", net.JoinHostPort(os.Getenv("MASTER_ADDR"), strconv.Itoa(port))); err != nil {
			return fail(err)
		}
	case "bind":
		var err error
		s, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
		if err == nil {
			err = unix.Bind(s, &unix.SockaddrInet4{Port: port})
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, "bound"), nil, 0o644)
		}
		if err != nil {
			return fail(err)
		}
	}
	for ; time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
			break // the test has ended
		}
		if _, err := os.Stat(filepath.Join(dir, "listen")); err == nil && s >= 0 {
			if err := unix.Listen(s, 5); err != nil {
				return fail(err)
			}
			s = -1
		}
	}
	return 0
}

// needsRoot skips a test that starts processes of another user. In CI, it fails the test.
func needsRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		if os.Getenv("CI") != "" {
			t.Fatal("CI must run as root")
		}
		t.Skip("needs root")
	}
}

// shellJob returns the [command] section for a line of shell. BIN is this test binary and DIR a
// directory that every user can write to.
func shellJob(t *testing.T, line string) (section string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "port")
	if err == nil {
		err = os.Chmod(dir, 0o777)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	line = strings.NewReplacer("BIN", os.Args[0], "DIR", dir).Replace(line)
	return fmt.Sprintf("[command]\nargv = [\"/bin/sh\", \"-c\", %q]\n", line)
}

// checkPortRestarts checks that want attempts failed because of a taken port, and that none of
// them counts as a restart.
func checkPortRestarts(t *testing.T, said string, want int) {
	t.Helper()
	events, err := lastDir.ReadAttempts()
	if err != nil {
		t.Fatal(err)
	}
	got := 0
	for _, e := range events {
		if e.Event == rundir.AttemptEnded && e.PortTaken {
			got++
		}
	}
	if got != want || strings.Count(said, "starting again with a different port") != want {
		t.Errorf("got %d starts because of a port, want %d\n%s", got, want, said)
	}
	if n := outcome.Read(lastDir, "").Restarts(0); n != 0 {
		t.Errorf("got %d restarts", n)
	}
}

// TestPortWatchInterval checks the limits of the interval. Another user can make a search slow.
func TestPortWatchInterval(t *testing.T) {
	for search, want := range map[time.Duration]time.Duration{
		0:                      50 * time.Millisecond,
		time.Millisecond:       50 * time.Millisecond,
		10 * time.Millisecond:  200 * time.Millisecond,
		250 * time.Millisecond: time.Second,
		time.Hour:              time.Second,
	} {
		if got := portWatchInterval(search); got != want {
			t.Errorf("after a search of %s: got %s, want %s", search, got, want)
		}
	}
}

// TestPortOfAnotherUser checks that the ranks start again with a different port, without a restart
// of the program, if another user listens on the program's port.
func TestPortOfAnotherUser(t *testing.T) {
	needsRoot(t)
	section := shellJob(t, "test -e DIR/seen$RANK && exec echo restarts: $DDPBATCH_RESTART_COUNT; : >DIR/seen$RANK; test $RANK = 0 || exec sleep 120; "+
		"until test -e DIR/seen1; do sleep 0.1; done; exec BIN other-user listen DIR")
	result, said, err := launched(t, 2, "program", section, nil)
	if err != nil || result.Exit != 0 || result.Failure != nil {
		t.Errorf("%+v, %v\n%s", result, err, said)
	}
	for _, want := range []string{"user UID 61099 listens on ", "restarts: 0\n"} {
		if !strings.Contains(said, want) {
			t.Errorf("no %q in\n%s", want, said)
		}
	}
	checkPortRestarts(t, said, 1)
}

// TestPortOfASingleRank checks that a listener of another user ends a single rank only if the program
// fails. No other rank connects to the port.
func TestPortOfASingleRank(t *testing.T) {
	needsRoot(t)
	listen := "setsid BIN other-user listen DIR & until grep -q :$(printf %04X $MASTER_PORT) /proc/net/tcp; do sleep 0.1; done; "
	section := shellJob(t, listen+"exit 0")
	result, said, err := launched(t, 1, "program", section, nil)
	if err != nil || result.Exit != 0 {
		t.Errorf("program that does not use the port: %+v, %v\n%s", result, err, said)
	}
	checkPortRestarts(t, said, 0)
	section = shellJob(t, "test -e DIR/seen && exit 0; : >DIR/seen; "+listen+"exit 5")
	result, said, err = launched(t, 1, "program", section, nil)
	if err != nil || result.Exit != 0 || !strings.Contains(said, "user UID 61099 listens on ") || !strings.Contains(said, "ended with exit code 5") {
		t.Errorf("program that fails: %+v, %v\n%s", result, err, said)
	}
	checkPortRestarts(t, said, 1)
}

// TestPortOfAProgramThatRunsOnce checks that the single process of a program with run = "once" ends if
// another user listens on its port: it starts the ranks that connect to the port.
func TestPortOfAProgramThatRunsOnce(t *testing.T) {
	needsRoot(t)
	section := shellJob(t, "test -e DIR/seen && exit 0; : >DIR/seen; setsid BIN other-user listen DIR & exec sleep 120") + "run = \"once\"\n"
	result, said, err := launched(t, 1, "program", section, nil)
	if err != nil || result.Exit != 0 || !strings.Contains(said, "user UID 61099 listens on ") {
		t.Errorf("%+v, %v\n%s", result, err, said)
	}
	checkPortRestarts(t, said, 1)
}

// TestPortGuardOfSeveralNodes checks that the guard of a program with run = "once" on several nodes
// counts listeners on each address that other nodes reach.
func TestPortGuardOfSeveralNodes(t *testing.T) {
	r := &Rank{job: &jobs.Job{Command: &jobs.Command{Run: jobs.RunOnce}, Slurm: jobs.Slurm{Nodes: 2}}}
	r.Info.WorldSize = 1
	g := r.newPortGuard("10.0.0.1", 7)
	for addr, want := range map[string]bool{"10.0.0.1:7": true, "192.168.1.1:7": true, "[::]:7": true, "0.0.0.0:7": true, "127.0.0.1:7": false, "[::1]:7": false} {
		if got := g.matters(listeners.Listener{Addr: netip.MustParseAddrPort(addr)}); got != want || g.alone {
			t.Errorf("%s: got %v, want %v", addr, got, want)
		}
	}
	r.job.Slurm.Nodes = 1
	if g := r.newPortGuard("10.0.0.1", 7); g.alone || g.matters(listeners.Listener{Addr: netip.MustParseAddrPort("192.168.1.1:7")}) {
		t.Error("one node: a different address counts")
	}
}

// TestNoPortGuard checks the ranks without a guard: rank 0 is the only one that listens, and an MPI
// program may not use the port.
func TestNoPortGuard(t *testing.T) {
	for name, c := range map[string]struct {
		rank    int
		mpi     string
		guarded bool
	}{
		"rank 0": {0, "", true},
		"rank 1": {1, "", false},
		"MPI":    {0, "mpi = \"pmix\"\n", false},
	} {
		job, err := jobs.Parse("job.toml", []byte("name = \"t\"\n[slurm]\n"+c.mpi+"[command]\nargv = [\"true\"]\n"))
		if err != nil {
			t.Fatal(err)
		}
		r := &Rank{job: job}
		r.Info.Rank, r.Info.WorldSize = c.rank, 2
		if g := r.newPortGuard("10.0.0.1", 7); (g != nil) != c.guarded {
			t.Errorf("%s: got %+v, want a guard: %v", name, g, c.guarded)
		}
	}
}

// TestPortOnTwoAddresses checks that the program's own listener does not hide the listener of another user
// on a different address of the port.
func TestPortOnTwoAddresses(t *testing.T) {
	own := listeners.Listener{Addr: netip.MustParseAddrPort("10.0.0.1:7"), UID: os.Geteuid()}
	other := listeners.Listener{Addr: netip.MustParseAddrPort("192.168.1.1:7"), UID: otherID}
	local := listeners.Listener{Addr: netip.MustParseAddrPort("127.0.0.1:7"), UID: otherID}
	root := listeners.Listener{Addr: netip.MustParseAddrPort("192.168.1.1:7"), UID: 0}
	for _, tt := range []struct {
		name         string
		found        []listeners.Listener
		bound, taken bool
	}{
		{name: "none"},
		{name: "own", found: []listeners.Listener{own}, bound: true},
		{name: "own first", found: []listeners.Listener{own, other}, taken: true},
		{name: "other first", found: []listeners.Listener{other, own}, taken: true},
		{name: "root", found: []listeners.Listener{root}, bound: true},
		{name: "root first", found: []listeners.Listener{root, other}, taken: true},
		{name: "other on loopback", found: []listeners.Listener{local, own}, bound: true},
	} {
		g := &portGuard{port: 7, taken: make(chan struct{})}
		g.decide(tt.found)
		if g.bound != tt.bound || (g.err != nil) != tt.taken {
			t.Errorf("%s: got bound %v, error %v", tt.name, g.bound, g.err)
		}
	}
}

// TestPortOfAnotherUserIsBoundedAndBlamed checks the limit of starts, and that the error names the
// other user.
func TestPortOfAnotherUserIsBoundedAndBlamed(t *testing.T) {
	needsRoot(t)
	section := shellJob(t, "test $RANK = 0 && exec BIN other-user listen DIR; exec sleep 120")
	result, said, err := launched(t, 2, "program", section, nil)
	if err != nil || result.Exit == 0 || result.Failure == nil || !result.Failure.PortTaken ||
		!strings.Contains(result.Failure.Reason, "UID 61099") || result.Failure.Rank != 0 || result.Failure.Hint() == "" {
		t.Errorf("%+v, %+v, %v\n%s", result, result.Failure, err, said)
	}
	checkPortRestarts(t, said, maxPortRestarts)
}

// TestPortOfAnotherUserWithoutLauncher checks that all ranks of "srun ddpbatch run" fail, and that the error
// names the other user.
func TestPortOfAnotherUserWithoutLauncher(t *testing.T) {
	needsRoot(t)
	text := "name = \"t\"\n[slurm]\ntasks_per_node = 2\n" + shellJob(t, "test $RANK = 0 && exec BIN other-user listen DIR; exec sleep 120")
	dir, err := rundir.Create(filepath.Join(t.TempDir(), "run"))
	if err == nil {
		_, err = dir.Prepare("t", dir.Path, "v", []byte(text))
	}
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var ranks [2]*exec.Cmd
	var said [2]bytes.Buffer
	for i := range ranks {
		cmd := exec.CommandContext(ctx, os.Args[0], "run", "--run-dir", dir.Path)
		number := strconv.Itoa(i)
		cmd.Env = append(os.Environ(), "BEHAVIOUR=program", "SLURM_JOB_ID=7", "SLURM_STEP_ID=0", "SLURM_STEP_NUM_TASKS=2", "SLURM_PROCID="+number,
			"SLURM_LOCALID="+number, "SLURM_NODEID=0", "SLURM_STEP_NODELIST=n1", "SLURMD_NODENAME=n1", "SLURM_STEP_TASKS_PER_NODE=2")
		cmd.Stdout, cmd.Stderr = &said[i], &said[i]
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ranks[i] = cmd
	}
	for i, cmd := range ranks {
		var failed *exec.ExitError
		if err := cmd.Wait(); !errors.As(err, &failed) || !failed.Exited() {
			t.Errorf("rank %d: %v, want an exit code\n%s", i, err, said[i].String())
		}
	}
	if !strings.Contains(said[0].String()+said[1].String(), "user UID 61099 listens on ") {
		t.Errorf("rank 0:\n%s\nrank 1:\n%s", said[0].String(), said[1].String())
	}
}

// TestPortThatIsBound checks a port that another user has bound without listening, which no table
// shows. No user is blamed.
func TestPortThatIsBound(t *testing.T) {
	needsRoot(t)
	section := shellJob(t, "test -e DIR/bound && exit 0; setsid BIN other-user bind DIR & until test -e DIR/bound; do sleep 0.1; done; exit 5")
	result, said, err := launched(t, 1, "program", section, nil)
	if err != nil || result.Exit != 0 {
		t.Errorf("%+v, %v\n%s", result, err, said)
	}
	if !strings.Contains(said, "does not belong to the program") || strings.Contains(said, "61099") {
		t.Error(said)
	}
	checkPortRestarts(t, said, 1)
}

// TestOrdinaryFailureIsNotBlamedOnThePort checks programs that fail for other reasons.
func TestOrdinaryFailureIsNotBlamedOnThePort(t *testing.T) {
	for _, line := range []string{"exit 5", "sleep 60 & exit 5"} {
		section := shellJob(t, line)
		result, said, err := launched(t, 1, "program", section, nil)
		if err != nil || result.Exit != 5 || result.Failure == nil || result.Failure.PortTaken {
			t.Errorf("%s: %+v, %v\n%s", line, result, err, said)
		}
		checkPortRestarts(t, said, 0)
	}
}

// TestPortGuard checks the guard with listeners of this user.
func TestPortGuard(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	guard := func(addr string) *portGuard {
		return &portGuard{addr: netip.MustParseAddr(addr), port: l.Addr().(*net.TCPAddr).Port, taken: make(chan struct{}), until: time.Now().Add(time.Hour)}
	}
	var taken *portTakenError
	if err := guard("127.0.0.1").checkUnused(); !errors.As(err, &taken) || !strings.Contains(err.Error(), fmt.Sprintf("(UID %d)", os.Geteuid())) {
		t.Errorf("port in use before the start: %v", err)
	}
	cause := errors.New("a cause")
	own := guard("127.0.0.1")
	if err := own.explain(cause); err != cause || !own.bound {
		t.Errorf("the program listened: %v", err)
	}
	if err := guard("127.0.0.2").explain(cause); !errors.As(err, &taken) || !errors.Is(err, cause) {
		t.Errorf("the program could not listen: %v", err)
	}
	late := guard("127.0.0.2")
	late.until = time.Time{}
	if err := late.explain(cause); err != cause {
		t.Errorf("the program failed late: %v", err)
	}
	if err := guard("127.0.0.2").explain(nil); err != nil {
		t.Errorf("the program did not fail: %v", err)
	}
	var none *portGuard
	none.watch(nil)
	if none.explain(cause) != cause || none.foundTaken() != nil || none.checkUnused() != nil {
		t.Error("no guard")
	}
}

// TestTorchrunPortIsNoArgument checks that the port of torchrun is in its environment, and not in
// its arguments, which every user of the node can read.
func TestTorchrunPortIsNoArgument(t *testing.T) {
	dir := t.TempDir()
	script := "#!/bin/sh\necho \"arguments: $*\"; echo \"port: $PET_MASTER_PORT ${MASTER_PORT-none}\"\n"
	if err := os.WriteFile(filepath.Join(dir, "torchrun"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	t.Setenv("PET_MASTER_PORT", "1") // of an outer torchrun
	_, said, err := launched(t, 1, "program", "[command]\nlauncher = \"torchrun\"\nargv = [\"train.py\"]\n", nil)
	if err != nil {
		t.Fatal(err)
	}
	var port int
	if at := strings.Index(said, "port: "); at < 0 {
		t.Fatal(said)
	} else if _, err := fmt.Sscanf(said[at:], "port: %d none", &port); err != nil || port < 1024 {
		t.Fatalf("%v\n%s", err, said)
	}
	if !strings.Contains(said, "arguments: --nnodes 1 ") || strings.Count(said, strconv.Itoa(port)) != 1 {
		t.Error(said)
	}
}
