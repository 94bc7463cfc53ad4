//go:build cuda

package communicator_test

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
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
			var addrs []string
			var files []*os.File
			for range tt.processes * tt.each {
				l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
				if err != nil {
					t.Fatal(err)
				}
				f, err := l.File()
				l.Close()
				if err != nil {
					t.Fatal(err)
				}
				defer f.Close()
				addrs, files = append(addrs, l.Addr().String()), append(files, f)
			}
			conformance.Every(t, tt.processes, func(p int) (struct{}, error) {
				w := worker{addrs, p * tt.each, tt.each}
				text, err := json.Marshal(w)
				if err != nil {
					return struct{}{}, err
				}
				c := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestProcesses$")
				c.Env = append(os.Environ(), workerVariable+"="+string(text))
				c.ExtraFiles = files[w.First:][:w.Count]
				out, err := c.CombinedOutput()
				if err != nil {
					err = fmt.Errorf("process %d: %w\n%s", p, err, out)
				}
				return struct{}{}, err
			})
		})
	}
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
		return communicator.Connect(t.Context(), communicator.Options{Library: l, GPU: openGPU(t, w.First+i), Control: host, Check: true,
			Host: "localhost", ConnectTimeout: 30 * time.Second, Timeout: time.Minute})
	})
	conformance.Every(t, w.Count, func(i int) (struct{}, error) {
		if err := operations(t, comms[i], 1001); err != nil {
			return struct{}{}, err
		}
		return struct{}{}, comms[i].Close()
	})
}
