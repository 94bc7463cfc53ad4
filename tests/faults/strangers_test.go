package faults

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

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

// meeting is where the ranks have met: the launcher's port.
func (r *training) meeting() string {
	r.t.Helper()
	addr, _, _ := strings.Cut(r.ranks()[0].environ["DDPBATCH_RENDEZVOUS"], ",")
	if addr == "" {
		r.t.Fatal("rank 0 was not told where to meet")
	}
	return addr
}

// attack makes n connections to the launcher's port, 16 at a time.
func (r *training) attack(n int, one func(addr string)) {
	r.t.Helper()
	crowd(r.meeting(), n, one)
}

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
	pids := []int{r.launcher.Process.Pid}
	for _, p := range r.ranks() {
		pids = append(pids, p.pid)
	}
	for _, pid := range pids {
		links, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
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

// undisturbed checks that the training goes on, and stops when it is asked to.
func (r *training) undisturbed(row row) {
	r.t.Helper()
	r.saved(r.newest() + 100)
	r.signal(syscall.SIGINT)
	o := r.end()
	if o.Code != 3 {
		r.t.Error(o)
	}
	row.said(r.t, o)
	if n := strings.Count(o.Stdout+o.Stderr, "is not a rank of this job"); n > 1 {
		r.t.Errorf("%d warnings of one stranger", n)
	}
}

func scanned(t *testing.T, row row) {
	r := trains(t, "")
	ports := r.listening()
	if len(ports) == 0 {
		t.Fatal("nothing listens")
	}
	for range 50 {
		for _, p := range ports {
			hasty(p)
			garbage(p)
		}
	}
	r.undisturbed(row)
}

func slowLoris(t *testing.T, row row) {
	r := trains(t, "")
	addr := r.meeting()
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
	r.undisturbed(row)
}

func wrongSecret(t *testing.T, row row) {
	r := trains(t, "")
	r.attack(64, impostor(t))
	r.undisturbed(row)
}

func garbageAtTheMeetingPoint(t *testing.T, row row) {
	r := trains(t, "")
	r.attack(160, garbage)
	r.undisturbed(row)
}

// tenThousand strangers cost what it costs this machine to make and take as many
// connections, which is measured with a server that closes them unread.
func tenThousand(t *testing.T, row row) {
	r := trains(t, "")
	idle, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer idle.Close()
	go func() {
		for {
			c, err := idle.Accept()
			if err != nil {
				return
			}
			c.Close()
		}
	}()
	speed := func(during func()) float64 {
		from, began := r.newest(), time.Now()
		during()
		r.saved(from + 100)
		return float64(r.newest()-from) / time.Since(began).Seconds()
	}
	addr := r.meeting()
	var hostile, harmless []float64
	for range 5 {
		harmless = append(harmless, speed(func() { crowd(idle.Addr().String(), 2000, garbage) }))
		hostile = append(hostile, speed(func() { crowd(addr, 2000, garbage) }))
	}
	ratio := make([]float64, len(hostile))
	for i := range ratio {
		ratio[i] = hostile[i] / harmless[i]
	}
	t.Logf("steps/s during 5 x 2,000 hostile connections over those during as many to a server apart: %.2f", ratio)
	r.undisturbed(row)
	r.finishes()
}
