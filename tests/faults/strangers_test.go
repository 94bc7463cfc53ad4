package faults

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/internal/listeners"
	"github.com/ddpbatch/ddpbatch/jobs/process"
	"github.com/ddpbatch/ddpbatch/tests/program"
	"github.com/ddpbatch/ddpbatch/trainer/rendezvous"
	"github.com/ddpbatch/ddpbatch/trainer/wire"
)

// sendGarbage sends an HTTP request and random bytes to the port.
func sendGarbage(addr string) {
	if c, err := net.Dial("tcp", addr); err == nil {
		fmt.Fprint(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"+strings.Repeat("\x00\xff", 100))
		c.Close()
	}
}

// connectAndClose connects and disconnects without sending, like a port scanner.
func connectAndClose(addr string) {
	if c, err := net.Dial("tcp", addr); err == nil {
		c.Close()
	}
}

// wrongSecretClient returns a function that uses the protocol with a wrong secret.
func wrongSecretClient(t *testing.T) func(addr string) {
	secret, err := wire.NewSecret()
	if err != nil {
		t.Fatal(err)
	}
	return func(addr string) {
		// Join retries until its context ends.
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		if _, err := rendezvous.Join(ctx, []string{addr}, secret, rendezvous.Identity{Rank: 1, WorldSize: 2}); err == nil {
			t.Error("an impostor was let in")
		}
	}
}

// connectMany makes n connections to an address, 16 at a time.
func connectMany(addr string, n int, one func(addr string)) {
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for range n / 16 {
				one(addr)
			}
		})
	}
	wg.Wait()
}

// listenAddresses returns the addresses on which the run's processes listen.
func (r *training) listenAddresses() (out []string) {
	r.t.Helper()
	all, err := listeners.All()
	if err != nil {
		r.t.Fatal(err)
	}
	for _, text := range append(program.Processes(r.t, "--run-dir "+r.dir), strconv.Itoa(r.launcher.Process.Pid)) {
		pid, _ := strconv.Atoi(text)
		for _, l := range all {
			if held, _ := process.HasSocket(pid, l.Inode); held {
				out = append(out, fmt.Sprintf("127.0.0.1:%d", l.Addr.Port()))
			}
		}
	}
	return out
}

// startRankZero starts rank 0 of a run as srun does without a launcher. Rank 0 serves the
// rendezvous and waits for rank 1.
func startRankZero(t *testing.T) (r *training, addr string) {
	t.Helper()
	r = newTraining(t, fmt.Sprintf(spec, 3))
	r.launcher = r.taskOfStep(0)
	if err := r.launcher.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.launcher.Process.Kill() })
	program.WaitUntil(t, "rank 0 to listen", func() bool { return len(r.listenAddresses()) > 0 })
	return r, r.listenAddresses()[0]
}

// taskOfStep returns the command of a rank, with the environment of a step of two tasks.
func (r *training) taskOfStep(rank int) *exec.Cmd {
	cmd := exec.Command(binary, "run", "job.toml", "--run-dir", r.dir)
	cmd.Dir, cmd.Stdout, cmd.Stderr = r.home, r.stdout, r.stderr
	cmd.Env = append(os.Environ(), "SLURM_JOB_ID=20", "SLURM_STEP_ID=0", "SLURM_STEP_NUM_TASKS=2", "SLURM_STEP_NUM_NODES=1",
		"SLURM_STEP_NODELIST=n1", "SLURM_STEP_TASKS_PER_NODE=2", "SLURM_NODEID=0", "SLURMD_NODENAME=n1", "SLURM_GTIDS=0,1",
		fmt.Sprintf("SLURM_PROCID=%d", rank), fmt.Sprintf("SLURM_LOCALID=%d", rank))
	return cmd
}

// checkJoin starts rank 1. It checks that the weights are equal to those of an undisturbed run, and
// that there is at most one warning.
func (r *training) checkJoin(row row) {
	r.t.Helper()
	second := r.taskOfStep(1)
	if err := second.Start(); err != nil {
		r.t.Fatal(err)
	}
	o := r.end()
	if err := second.Wait(); err != nil || o.Code != 0 {
		r.t.Fatal(err, o)
	}
	row.checkMessage(r.t, o)
	if n := strings.Count(o.Stdout+o.Stderr, "is not a rank of this job"); n > 1 {
		r.t.Errorf("%d warnings of one stranger", n)
	}
	whole := newTraining(r.t, r.file("job.toml"))
	if o := whole.run(); o.Code != 0 {
		r.t.Fatal(o)
	}
	if got, want := program.Weights(r.t, r.dir), program.Weights(r.t, whole.dir); got != want {
		r.t.Errorf("other weights:\n%s\n%s", got, want)
	}
}

func scanned(t *testing.T, row row) {
	r, _ := startRankZero(t)
	for range 50 {
		for _, addr := range r.listenAddresses() {
			connectAndClose(addr)
			sendGarbage(addr)
		}
	}
	r.checkJoin(row)
}

func slowLoris(t *testing.T, row row) {
	r, addr := startRankZero(t)
	const many = 400 // more than the limit of concurrent handshakes
	var conns []net.Conn
	for range many {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		conns = append(conns, c)
	}
	// A byte every 200 ms must not extend the timeout: rank 0 drops all connections.
	dropped := 0
	for end := time.Now().Add(row.within); dropped < many && time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		for i, c := range conns {
			if c == nil {
				continue
			}
			if _, err := c.Write([]byte{'d'}); err != nil {
				conns[i] = nil
				dropped++
			}
		}
	}
	if dropped < many {
		t.Errorf("only %d of %d were dropped within %v", dropped, many, row.within)
	}
	r.checkJoin(row)
}

func wrongSecret(t *testing.T, row row) {
	r, addr := startRankZero(t)
	connectMany(addr, 64, wrongSecretClient(t))
	r.checkJoin(row)
}

func strangersWhileJoining(t *testing.T, row row) {
	r, addr := startRankZero(t)
	connectMany(addr, 10000, sendGarbage)
	r.checkJoin(row)
}

// tenThousand makes 10,000 connections during training, when no process listens. They do not
// disturb the run.
func tenThousand(t *testing.T, row row) {
	r := startEndless(t, "")
	program.WaitUntil(t, "all ports to be closed", func() bool { return len(r.listenAddresses()) == 0 })
	meeting, _, _ := strings.Cut(r.ranks()[0].environ["DDPBATCH_RENDEZVOUS"], ",")
	var refused atomic.Int32
	connectMany(meeting, 10000, func(addr string) {
		if c, err := net.Dial("tcp", addr); err == nil {
			c.Close()
		} else if errors.Is(err, syscall.ECONNREFUSED) {
			refused.Add(1)
		}
	})
	if n := refused.Load(); n < 10000 {
		t.Errorf("only %d were refused at %q", n, meeting)
	}
	r.waitForCheckpoint(r.newest() + 100)
	r.signal(syscall.SIGINT)
	if o := r.end(); o.Code != 3 || strings.Contains(strings.ToLower(o.Stderr), "warning") {
		t.Error(o)
	}
	r.checkFinish()
}
