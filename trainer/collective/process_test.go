//go:build linux

package collective_test

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/trainer/collective"
	"github.com/ddpbatch/ddpbatch/trainer/collective/element"
	"github.com/ddpbatch/ddpbatch/trainer/wire"
)

// worker configures a process of this binary that runs as a rank.
type worker struct {
	Rank    int      `json:"rank"`
	Addrs   []string `json:"addrs"`
	Nodes   []int    `json:"nodes"`
	Plain   bool     `json:"plain"` // memory that the ranks do not share
	Size    int      `json:"size"`  // elements
	Times   int      `json:"times"` // 0: until it fails
	TCP     bool     `json:"tcp"`
	Timeout int      `json:"timeout"` // timeout of an operation in seconds; 20 if it is 0
	// Absent is a rank that never enters its fourth operation, or 0.
	Absent int `json:"absent"`
	// Apart gives the last rank a separate /dev/shm, as containers have.
	Apart bool `json:"apart"`
}

const workerVariable = "COLLECTIVE_TEST_WORKER"

func TestMain(m *testing.M) {
	text, ok := os.LookupEnv(workerVariable)
	if !ok {
		os.Exit(m.Run())
	}
	var w worker
	err := json.Unmarshal([]byte(text), &w)
	if err == nil {
		err = w.run()
	}
	if err != nil {
		fmt.Println("failed:", err)
		os.Exit(1)
	}
}

// run sums repeatedly, and prints the path, the digest of the first sum, and the times.
func (w worker) run() error {
	ctx := context.Background()
	listener, err := net.FileListener(os.NewFile(3, "listener"))
	if err != nil {
		return err
	}
	c, err := collective.Connect(ctx, listener, collective.Options{Rank: w.Rank, Addrs: w.Addrs, Nodes: w.Nodes, Memory: !w.TCP,
		Secret: wire.Secret{9}, ConnectTimeout: time.Minute, Timeout: time.Duration(cmp.Or(w.Timeout, 20)) * time.Second})
	if err != nil {
		return err
	}
	defer c.Close()
	buf := make([]float32, w.Size)
	if !w.Plain {
		if buf, err = collective.Alloc[float32](ctx, c, w.Size); err != nil {
			return err
		}
		if buf == nil {
			buf = make([]float32, w.Size)
		}
	}
	for i := range buf {
		buf[i] = float32(w.Rank + i%5)
	}
	call := collective.AllReduce(buf, collective.Sum)
	if err := c.Do(ctx, call); err != nil {
		return err
	}
	ranks := float32(len(w.Addrs))
	for i, v := range buf {
		if want := ranks*(ranks-1)/2 + ranks*float32(i%5); v != want {
			return fmt.Errorf("element %d is %v, want %v", i, v, want)
		}
	}
	p := c.Path(call)
	fmt.Printf("summed over %s, %s %s\n", p.Transport, p.Algorithm, p.Why)
	clear(buf)
	var best, total time.Duration
	for i := 0; i < w.Times || w.Times == 0; i++ {
		if i == 3 && w.Absent > 0 && w.Rank == w.Absent {
			time.Sleep(time.Hour)
		}
		start := time.Now()
		if err := c.Do(ctx, call); err != nil {
			return err
		}
		took := time.Since(start)
		if total += took; best == 0 || took < best {
			best = took
		}
	}
	fmt.Printf("best %v, mean %v\n", best, total/time.Duration(w.Times))
	return c.Do(ctx, collective.Barrier())
}

// process is a running worker.
type process struct {
	*exec.Cmd
	lines *bufio.Reader
}

// start runs a worker as each of n ranks.
func (w worker) start(t testing.TB, n int) []process {
	t.Helper()
	var files []*os.File
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		f, err := l.(*net.TCPListener).File()
		if err != nil {
			t.Fatal(err)
		}
		l.Close()
		defer f.Close()
		w.Addrs = append(w.Addrs, l.Addr().String())
		files = append(files, f)
	}
	if w.Nodes == nil {
		w.Nodes = make([]int, n)
	}
	var out []process
	for r := range n {
		w.Rank = r
		text, err := json.Marshal(w)
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		if w.Apart && r == n-1 {
			cmd = exec.CommandContext(t.Context(), "unshare", "--user", "--map-root-user", "--mount",
				"sh", "-c", `mount -t tmpfs none /dev/shm && exec "$0"`, os.Args[0])
		}
		cmd.Env = append(os.Environ(), workerVariable+"="+string(text))
		cmd.ExtraFiles = []*os.File{files[r]}
		cmd.Stderr = os.Stderr
		pipe, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
		out = append(out, process{cmd, bufio.NewReader(pipe)})
	}
	return out
}

// line returns the next line of a process's output.
func (p process) line(t testing.TB) string {
	t.Helper()
	text, err := p.lines.ReadString('\n')
	if err != nil && err != io.EOF {
		t.Fatal(err)
	}
	return strings.TrimSpace(text)
}

// leftFiles fails if a file of a run remains.
func leftFiles(t testing.TB) {
	t.Helper()
	left, _ := filepath.Glob("/dev/shm/ddpbatch-*")
	for wait := time.Now().Add(2 * time.Minute); len(left) > 0; time.Sleep(50 * time.Millisecond) {
		// Files of other processes on this machine disappear on their own.
		left = slices.DeleteFunc(left, func(name string) bool {
			_, err := os.Stat(name)
			return errors.Is(err, fs.ErrNotExist)
		})
		if len(left) > 0 && time.Now().After(wait) {
			t.Fatalf("%v are left", left)
		}
	}
}

// TestProcesses checks that ranks in separate processes select the expected transport and
// algorithm, sum correctly, and leave no file.
func TestProcesses(t *testing.T) {
	for _, tt := range []struct {
		name string
		n    int
		w    worker
		want string
	}{
		{"in place", 2, worker{Size: 300_000}, "shared memory, in place"},
		{"windows", 3, worker{Size: 300_000, Plain: true}, "shared memory, windows"},
		{"small", 3, worker{Size: 1000, Plain: true}, "shared memory, one step"},
		{"tcp", 3, worker{Size: 300_000, TCP: true}, "tcp, ring"},
		{"containers", 3, worker{Size: 300_000, Apart: true}, "tcp, ring rank 2: map \"ddpbatch-"},
		{"nodes", 4, worker{Size: 300_000, Nodes: []int{0, 1, 0, 1}}, "shared memory and tcp, in place, then halving-doubling"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.w.Times = 20
			for r, p := range tt.w.start(t, tt.n) {
				if got := p.line(t); !strings.HasPrefix(got, "summed over "+tt.want) {
					t.Errorf("rank %d: %s, want %s", r, got, tt.want)
				}
				if got := p.line(t); !strings.HasPrefix(got, "best ") {
					t.Errorf("rank %d: %s", r, got)
				}
				if err := p.Wait(); err != nil {
					t.Errorf("rank %d: %v", r, err)
				}
			}
			leftFiles(t)
		})
	}
}

// TestKilledProcessIsNamed checks that all other ranks name a killed process before the timeout, and
// that no file remains.
func TestKilledProcessIsNamed(t *testing.T) {
	for _, tt := range []struct {
		name string
		n    int
		w    worker
	}{
		{"in place", 2, worker{Size: 5_000_000}},
		{"windows", 3, worker{Size: 5_000_000, Plain: true}},
		{"small", 4, worker{Size: 100}},
		{"tcp", 4, worker{Size: 1_000_000, TCP: true}},
		{"nodes", 4, worker{Size: 1_000_000, Nodes: []int{0, 0, 1, 1}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ranks := tt.w.start(t, tt.n)
			for _, p := range ranks {
				p.line(t)
			}
			time.Sleep(50 * time.Millisecond)
			if err := ranks[1].Process.Kill(); err != nil {
				t.Fatal(err)
			}
			for r, p := range ranks {
				if r == 1 {
					continue
				}
				got := p.line(t)
				if !strings.HasPrefix(got, "failed: all-reduce ") || !strings.Contains(got, " with rank 1 (127.0.0.1:") || strings.Contains(got, "no answer within") {
					t.Errorf("rank %d says %q", r, got)
				}
			}
			leftFiles(t)
		})
	}
}

// BenchmarkProcesses prints the measurements of one of two ranks.
func BenchmarkProcesses(b *testing.B) {
	for _, bytes := range []int{4 << 10, 64 << 10, 1 << 20, 25 << 20, 100 << 20} {
		for name, w := range map[string]worker{"memory": {}, "windows": {Plain: true}, "tcp": {Plain: true, TCP: true}} {
			b.Run(name+" "+strconv.Itoa(bytes), func(b *testing.B) {
				w.Size, w.Times = bytes/element.Float32.Size(), min(max(200<<20/bytes, 10), 2000)
				for r, p := range w.start(b, 2) {
					way, figures := p.line(b), p.line(b)
					if r == 0 {
						b.Logf("%s: %s", way, figures)
					}
				}
			})
		}
	}
}
