package faults

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/tests/program"
	"github.com/ddpbatch/ddpbatch/trainer/rendezvous"
	"github.com/ddpbatch/ddpbatch/trainer/wire"
)

// garbage is what a program says that takes the port for a web server's, and more.
func garbage(addr string) {
	if c, err := net.Dial("tcp", addr); err == nil {
		fmt.Fprint(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"+strings.Repeat("\x00\xff", 100))
		c.Close()
	}
}

// hasty goes without a word, as a scanner of ports does.
func hasty(addr string) {
	if c, err := net.Dial("tcp", addr); err == nil {
		c.Close()
	}
}

// impostor knows the protocol and not the secret.
func impostor(t *testing.T) func(addr string) {
	secret, err := wire.NewSecret()
	if err != nil {
		t.Fatal(err)
	}
	return func(addr string) {
		// Join tries again for as long as it may.
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		if _, err := rendezvous.Join(ctx, []string{addr}, secret, rendezvous.Identity{Rank: 1, WorldSize: 2}); err == nil {
			t.Error("an impostor was let in")
		}
	}
}

// crowd makes n connections to an address, 16 at a time.
func crowd(addr string, n int, one func(addr string)) {
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

// listening are the addresses on which the run's processes take connections.
func (r *training) listening() (out []string) {
	r.t.Helper()
	sockets := map[string]bool{}
	for _, pid := range append(program.Processes(r.t, "--run-dir "+r.dir), strconv.Itoa(r.launcher.Process.Pid)) {
		links, _ := filepath.Glob("/proc/" + pid + "/fd/*")
		for _, l := range links {
			if to, err := os.Readlink(l); err == nil && strings.HasPrefix(to, "socket:[") {
				sockets[strings.Trim(to, "socket:[]")] = true
			}
		}
	}
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		b, _ := os.ReadFile(table) // a machine may be without IPv6
		for _, line := range strings.Split(string(b), "\n") {
			// 0: 0100007F:1F90 00000000:0000 0A (listening) ... the socket's number
			f := strings.Fields(line)
			if len(f) < 10 || f[3] != "0A" || !sockets[f[9]] {
				continue
			}
			_, port, _ := strings.Cut(f[1], ":")
			var n int
			if _, err := fmt.Sscanf(port, "%X", &n); err != nil {
				r.t.Fatal(err)
			}
			out = append(out, fmt.Sprintf("127.0.0.1:%d", n))
		}
	}
	return out
}

// gathering is a training that waits for its rank 1: started as srun starts ranks without
// a launcher, rank 0 is the meeting point.
func gathering(t *testing.T) (r *training, addr string) {
	t.Helper()
	r = newTraining(t, fmt.Sprintf(spec, 3))
	r.launcher = r.taskOfStep(0)
	if err := r.launcher.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.launcher.Process.Kill() })
	program.WaitUntil(t, "rank 0 to listen", func() bool { return len(r.listening()) > 0 })
	return r, r.listening()[0]
}

// taskOfStep is a rank in the environment of a step of two tasks.
func (r *training) taskOfStep(rank int) *exec.Cmd {
	cmd := exec.Command(binary, "run", "job.toml", "--run-dir", r.dir)
	cmd.Dir, cmd.Stdout, cmd.Stderr = r.home, r.stdout, r.stderr
	cmd.Env = append(os.Environ(), "SLURM_JOB_ID=20", "SLURM_STEP_ID=0", "SLURM_STEP_NUM_TASKS=2", "SLURM_STEP_NUM_NODES=1",
		"SLURM_STEP_NODELIST=n1", "SLURM_STEP_TASKS_PER_NODE=2", "SLURM_NODEID=0", "SLURMD_NODENAME=n1", "SLURM_GTIDS=0,1",
		fmt.Sprintf("SLURM_PROCID=%d", rank), fmt.Sprintf("SLURM_LOCALID=%d", rank))
	return cmd
}

// gathers starts rank 1 and checks that the training ends with the weights of one that no
// stranger came to, and warned of them once.
func (r *training) gathers(row row) {
	r.t.Helper()
	second := r.taskOfStep(1)
	if err := second.Start(); err != nil {
		r.t.Fatal(err)
	}
	o := r.end()
	if err := second.Wait(); err != nil || o.Code != 0 {
		r.t.Fatal(err, o)
	}
	row.said(r.t, o)
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
	r, _ := gathering(t)
	for range 50 {
		for _, addr := range r.listening() {
			hasty(addr)
			garbage(addr)
		}
	}
	r.gathers(row)
}

func slowLoris(t *testing.T, row row) {
	r, addr := gathering(t)
	const many = 400 // more than may be in their handshake at once
	var conns []net.Conn
	for range many {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		conns = append(conns, c)
	}
	// A byte now and then does not gain them time: all are dropped.
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
	r.gathers(row)
}

func wrongSecret(t *testing.T, row row) {
	r, addr := gathering(t)
	crowd(addr, 64, impostor(t))
	r.gathers(row)
}

func strangersWhileJoining(t *testing.T, row row) {
	r, addr := gathering(t)
	crowd(addr, 10000, garbage)
	r.gathers(row)
}

// tenThousand connections find nobody who listens: they cost the run nothing.
func tenThousand(t *testing.T, row row) {
	r := trains(t, "")
	program.WaitUntil(t, "all ports to be closed", func() bool { return len(r.listening()) == 0 })
	meeting, _, _ := strings.Cut(r.ranks()[0].environ["DDPBATCH_RENDEZVOUS"], ",")
	var refused atomic.Int32
	crowd(meeting, 10000, func(addr string) {
		if c, err := net.Dial("tcp", addr); err == nil {
			c.Close()
		} else if errors.Is(err, syscall.ECONNREFUSED) {
			refused.Add(1)
		}
	})
	if n := refused.Load(); n < 10000 {
		t.Errorf("only %d were refused at %q", n, meeting)
	}
	r.saved(r.newest() + 100)
	r.signal(syscall.SIGINT)
	if o := r.end(); o.Code != 3 || strings.Contains(strings.ToLower(o.Stderr), "warning") {
		t.Error(o)
	}
	r.finishes()
}
