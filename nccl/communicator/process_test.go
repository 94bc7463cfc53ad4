//go:build cuda

package communicator_test

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"regexp"
	"syscall"
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/nccl/communicator"
	"github.com/ddpbatch/ddpbatch/trainer/collective"
	"github.com/ddpbatch/ddpbatch/trainer/collective/conformance"
	"github.com/ddpbatch/ddpbatch/trainer/cuda/library"
	"github.com/ddpbatch/ddpbatch/trainer/wire"
)

// worker is a process of a test with several ranks, each with its own GPU.
type worker struct {
	Addrs        []string
	First, Count int
	// Waits makes the ranks wait for their standard input instead of running the second operation.
	// Timeout is the timeout of operations; if it is 0, the ranks test all operations.
	Waits   bool
	Timeout time.Duration
}

const workerVariable = "NCCL_TEST_WORKER"

// TestProcesses tests ranks in separate processes, and processes with several ranks.
func TestProcesses(t *testing.T) {
	if text, ok := os.LookupEnv(workerVariable); ok {
		var w worker
		if err := json.Unmarshal([]byte(text), &w); err != nil {
			t.Fatal(err)
		}
		w.run(t)
		return
	}
	for _, tt := range []struct{ processes, each int }{{1, 1}, {2, 1}, {4, 1}, {2, 2}} {
		t.Run(fmt.Sprintf("%d of %d", tt.processes, tt.each), func(t *testing.T) {
			addrs, files := listen(t, tt.processes*tt.each)
			conformance.Every(t, tt.processes, func(p int) (struct{}, error) {
				c := worker{Addrs: addrs, First: p * tt.each, Count: tt.each}.command(t, files)
				out, err := c.CombinedOutput()
				if err != nil {
					err = fmt.Errorf("process %d: %w\n%s", p, err, out)
				}
				return struct{}{}, err
			})
		})
	}
}

// listen returns the addresses and sockets of n ranks.
func listen(t *testing.T, n int) (addrs []string, files []*os.File) {
	t.Helper()
	for range n {
		l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			t.Fatal(err)
		}
		f, err := l.File()
		l.Close()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		addrs, files = append(addrs, l.Addr().String()), append(files, f)
	}
	return addrs, files
}

// command returns the command that runs the worker.
func (w worker) command(t *testing.T, files []*os.File) *exec.Cmd {
	text, err := json.Marshal(w)
	if err != nil {
		t.Error(err)
	}
	c := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestProcesses$")
	c.Env = append(os.Environ(), workerVariable+"="+string(text))
	c.ExtraFiles = files[w.First:][:w.Count]
	return c
}

// TestStoppedProcess checks that the other ranks name a rank whose process is stopped, without checks.
func TestStoppedProcess(t *testing.T) {
	const n, stopped = 3, 2
	addrs, files := listen(t, n)
	conformance.Every(t, n, func(p int) (struct{}, error) {
		c := worker{Addrs: addrs, First: p, Count: 1, Waits: p == stopped, Timeout: 2 * time.Second}.command(t, files)
		if p != stopped {
			out, err := c.CombinedOutput()
			var exit *exec.ExitError
			if err != nil && !errors.As(err, &exit) {
				return struct{}{}, err
			}
			if !regexp.MustCompile(`all-reduce 1 with rank 2 \(`).Match(out) {
				t.Errorf("rank %d does not name rank 2:\n%s", p, out)
			}
			return struct{}{}, nil
		}
		in, err := c.StdinPipe()
		if err != nil {
			return struct{}{}, err
		}
		out, err := c.StdoutPipe()
		if err != nil {
			return struct{}{}, err
		}
		t.Cleanup(func() { // the other ranks have ended
			c.Process.Kill()
			in.Close()
			c.Wait()
		})
		if err := c.Start(); err != nil {
			return struct{}{}, err
		}
		if _, err := io.ReadFull(out, make([]byte, 1)); err != nil { // it has run the first operation
			return struct{}{}, err
		}
		return struct{}{}, c.Process.Signal(syscall.SIGSTOP)
	})
}

func (w worker) run(t *testing.T) {
	l := open(t, library.NCCL)
	comms := conformance.Every(t, w.Count, func(i int) (*communicator.Comm, error) {
		listener, err := net.FileListener(os.NewFile(uintptr(3+i), "listener"))
		if err != nil {
			return nil, err
		}
		host, err := collective.Connect(t.Context(), listener, collective.Options{Rank: w.First + i, Addrs: w.Addrs, Secret: wire.Secret{9},
			ConnectTimeout: 30 * time.Second, Timeout: time.Minute})
		if err != nil {
			return nil, err
		}
		return communicator.Connect(t.Context(), communicator.Options{Library: l, GPU: openGPU(t, w.First+i), Control: host, Check: w.Timeout == 0,
			Host: "localhost", ConnectTimeout: 30 * time.Second, Timeout: cmp.Or(w.Timeout, time.Minute)})
	})
	if w.Timeout > 0 {
		w.runTwice(t, comms[0])
		return
	}
	conformance.Every(t, w.Count, func(i int) (struct{}, error) {
		if err := operations(t, comms[i], 1001); err != nil {
			return struct{}{}, err
		}
		return struct{}{}, comms[i].Close()
	})
}

// runTwice runs an operation twice.
func (w worker) runTwice(t *testing.T, c *communicator.Comm) {
	for i := range 2 {
		if i == 1 && w.Waits {
			fmt.Println("ready")
			_, _ = io.Copy(io.Discard, os.Stdin)
		}
		if err := run(t.Context())(c.AllReduce(t.Context(), make(floats, 8).tensor())); err != nil {
			t.Fatal(err)
		}
	}
}
