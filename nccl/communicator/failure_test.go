//go:build cuda

package communicator_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/internal/hints"
	"github.com/ddpbatch/ddpbatch/nccl/communicator"
	"github.com/ddpbatch/ddpbatch/nccl/gpu"
	"github.com/ddpbatch/ddpbatch/nccl/libnccl"
	"github.com/ddpbatch/ddpbatch/trainer/collective"
	"github.com/ddpbatch/ddpbatch/trainer/collective/conformance"
	"github.com/ddpbatch/ddpbatch/trainer/cuda/driver"
	"github.com/ddpbatch/ddpbatch/trainer/cuda/library"
)

// attempt makes n ranks call all-reduce until one fails, and returns each rank's error.
func attempt(t *testing.T, n int, s setting, elements func(rank int) int) []error {
	comms, _ := ranks(t, n, s)
	errs := conformance.Every(t, n, func(r int) (error, error) {
		for range 5 {
			if err := run(t.Context())(comms[r].AllReduce(t.Context(), make(floats, elements(r)).tensor())); err != nil {
				return err, nil
			}
		}
		return nil, nil
	})
	conformance.Every(t, n, func(r int) (error, error) { return nil, comms[r].Close() })
	return errs
}

func same(int) int { return 1000 }

// TestFailures checks the error of each failure on the rank where it happens, and on another
// rank.
func TestFailures(t *testing.T) {
	const long = time.Minute
	for _, tt := range []struct {
		name, failure string
		check         bool
		timeout       time.Duration
		elements      func(int) int
		own, other    string // errors of rank 1 and rank 0
		peer          int    // rank that rank 0 names; -1 for any
		reported      int    // rank that rank 0 names instead if rank 1 reports its own diagnosis first
		hint          string // hint of rank 1, or of rank 0 if rank 0 has reported its own diagnosis first
	}{
		{"asynchronous error", "async:1:3:6", true, long, same, "asynchronous error: ncclRemoteError: NET/Simulator", "ncclRemoteError", 1, 1, "first rank that failed"},
		{"system error", "async:1:3:2", true, long, same, "asynchronous error: ncclSystemError", "ncclSystemError", 1, 1, "NCCL_SOCKET_IFNAME"},
		{"refused call", "refuse:1:3:4", true, long, same, "ncclAllReduce: ncclInvalidArgument: refused", "ncclInvalidArgument", 1, 1, "NCCL_DEBUG=WARN"},
		{"hang", "hang:1:3", true, 3 * time.Second, same, "hangs", "hangs", -1, -1, "NCCL_DEBUG=INFO"},
		{"hang without checks", "hang:1:3", false, 3 * time.Second, same, "not finished 3s after", "not finished 3s after", 0, 1, "NCCL_DEBUG=INFO"},
		{"arguments without checks", "", false, 3 * time.Second, func(r int) int { return 1000 + r }, "differ in length", "differ in length", 1, 0, ""},
		{"arguments", "", true, long, func(r int) int { return 1000 + r }, "differ in length", "differ in length", 1, 0, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv("GPUSIM_NCCL", tt.failure)
			start := time.Now()
			errs := attempt(t, 2, setting{library.NCCL, tt.check, tt.timeout}, tt.elements)
			for r, want := range []string{tt.other, tt.own} {
				var e *collective.Error
				peer := tt.peer
				if strings.Contains(fmt.Sprint(errs[r]), "rank 1 gave up: ") {
					peer = tt.reported
				}
				// Rank 0 may find the connection closed before it has received the reason.
				closed := r == 0 && (errors.Is(errs[r], syscall.EPIPE) || errors.Is(errs[r], syscall.ECONNRESET))
				if !errors.As(errs[r], &e) || e.Op != "all-reduce" || !closed && !strings.Contains(e.Error(), want) {
					t.Errorf("rank %d says %v, want %q", r, errs[r], want)
				} else if tt.failure != "" && e.Sequence != 3 && (r == 1 || e.Sequence != 2) { // rank 0 may still be in the previous operation
					t.Errorf("rank %d names operation %d", r, e.Sequence)
				} else if r == 0 && peer >= 0 && e.Peer.Rank != peer {
					t.Errorf("rank 0 names rank %d, want rank %d", e.Peer.Rank, peer)
				}
				t.Logf("rank %d: %v", r, errs[r])
			}
			diagnosis := errs[1]
			if strings.Contains(fmt.Sprint(errs[1]), "rank 0 gave up: ") {
				diagnosis = errs[0]
			}
			if hint := hints.Of(diagnosis); !strings.Contains(hint, tt.hint) {
				t.Errorf("the hint is %q", hint)
			}
			if took := time.Since(start); took > long/2 {
				t.Errorf("took %v", took)
			}
		})
	}
}

// TestInitialization checks that each rank reports an initialization that hangs or fails.
func TestInitialization(t *testing.T) {
	newest := open(t, library.NCCL)
	older := open(t, old)
	for _, tt := range []struct {
		name, failure string
		second        *libnccl.Library
		gpus          []int
		want          []string // on every rank
		hint          string
	}{
		{"hang", "init:1", newest, []int{0, 1}, []string{"initialize NCCL on rank ", "NCCL is still waiting", "NCCL_SOCKET_IFNAME==lo", "2.30.7"}, "firewalls"},
		{"versions", "", older, []int{0, 1}, []string{"rank 0 (localhost) has NCCL 2.30.7", "rank 1 (localhost) has NCCL 2.14.3", old}, "same module"},
		{"one GPU", "", newest, []int{0, 0}, []string{"ranks 0 and 1 use the same GPU"}, "CUDA_VISIBLE_DEVICES"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv("GPUSIM_NCCL", tt.failure)
			control := hosts(t, 2)
			libraries := []*libnccl.Library{newest, tt.second}
			gpus := []*gpu.GPU{openGPU(t, tt.gpus[0]), openGPU(t, tt.gpus[1])}
			errs := conformance.Every(t, 2, func(r int) (error, error) {
				_, err := communicator.Connect(t.Context(), communicator.Options{Library: libraries[r], GPU: gpus[r], Control: control[r],
					Host: "localhost", Interface: "=lo", ConnectTimeout: time.Duration(1+9*r) * time.Second, Timeout: time.Minute})
				return err, nil
			})
			// Rank 0 detects it first, and must not report rank 1 as the cause.
			var of *collective.Error
			if errors.As(errs[1], &of) && of.Peer.Rank != 0 {
				t.Errorf("rank 1 names rank %d: %v", of.Peer.Rank, of)
			}
			for r, err := range errs {
				if err == nil {
					t.Fatalf("rank %d has no error", r)
				}
				t.Logf("rank %d: %v", r, err)
				for _, want := range tt.want {
					if !strings.Contains(err.Error(), want) {
						t.Errorf("rank %d says %v, want %q", r, err, want)
					}
				}
			}
			if h := hints.Of(errs[0]) + hints.Of(errs[1]); !strings.Contains(h, tt.hint) {
				t.Errorf("the hint is %q", h)
			}
		})
	}
}

// TestClose checks that an operation that hangs does not block its rank.
func TestClose(t *testing.T) {
	t.Setenv("GPUSIM_NCCL", "hang:1:0")
	comms, _ := ranks(t, 2, setting{library.NCCL, true, time.Minute})
	result := make(chan error)
	go func() { result <- run(t.Context())(comms[0].AllReduce(t.Context(), make(floats, 8).tensor())) }()
	for comms[0].Started() == 0 {
		time.Sleep(time.Millisecond)
	}
	if err := comms[0].Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	if err := <-result; err == nil {
		t.Error("an operation under way has no error")
	}
	if err := run(t.Context())(comms[0].AllReduce(t.Context(), make(floats, 8).tensor())); err == nil {
		t.Error("an operation after the end has no error")
	}
	if err := errors.Join(comms[0].Close(), comms[1].Close()); err != nil {
		t.Errorf("close: %v", err)
	}
}

// TestCulpritWithoutChecks checks that ranks name the rank that prevents the end of an operation, although
// they exchange no messages while all is well.
func TestCulpritWithoutChecks(t *testing.T) {
	for _, tt := range []struct {
		name string
		// act is what rank 2 runs while ranks 0 and 1 run the second operation. ended is closed after
		// these have failed.
		act  func(c *communicator.Comm, control collective.Communicator, ended <-chan struct{}) error
		want string
	}{
		{"not begun", func(*communicator.Comm, collective.Communicator, <-chan struct{}) error { return nil }, "has not begun operation 1"},
		{"not reached", func(c *communicator.Comm, _ collective.Communicator, ended <-chan struct{}) error {
			return afterBlocked(2, ended, func(e driver.Event) error {
				c.After(gpu.Event{Event: e})
				_, err := c.AllReduce(t.Context(), make(floats, 8).tensor())
				return err
			})
		}, "its GPU has not reached operation 1"},
		{"gone", func(_ *communicator.Comm, control collective.Communicator, _ <-chan struct{}) error {
			return control.Close()
		}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			comms, control := ranks(t, 3, setting{library.NCCL, false, 3 * time.Second})
			ended, failed := make(chan struct{}), sync.WaitGroup{}
			failed.Add(2)
			go func() { failed.Wait(); close(ended) }()
			var first sync.WaitGroup // the first operation of all ranks
			first.Add(3)
			errs := conformance.Every(t, 3, func(r int) (error, error) {
				err := run(t.Context())(comms[r].AllReduce(t.Context(), make(floats, 8).tensor()))
				first.Done()
				if err != nil {
					return nil, err
				}
				if r == 2 {
					first.Wait()
					return nil, tt.act(comms[2], control[2], ended)
				}
				defer failed.Done()
				return run(t.Context())(comms[r].AllReduce(t.Context(), make(floats, 8).tensor())), nil
			})
			for r, err := range errs[:2] {
				var e *collective.Error
				if !errors.As(err, &e) || e.Peer.Rank != 2 || e.Op != "all-reduce" || !strings.Contains(e.Error(), tt.want) {
					t.Errorf("rank %d says %v, want rank 2 and %q", r, err, tt.want)
				}
			}
			conformance.Every(t, 3, func(r int) (error, error) { return nil, comms[r].Close() })
		})
	}
}

// afterBlocked calls f with an event of a GPU that does not happen until ended is closed. It waits for the
// event.
func afterBlocked(ordinal int, ended <-chan struct{}, f func(driver.Event) error) error {
	g, err := driver.Open(ordinal)
	if err != nil {
		return err
	}
	unbind, err := g.Bind()
	if err != nil {
		return err
	}
	defer unbind()
	stream, err := driver.NewStream(0)
	if err != nil {
		return err
	}
	e, err := driver.NewEvent(false)
	if err != nil {
		return err
	}
	blocked := driver.NewHostFunc(func() { <-ended })
	defer blocked.Close()
	if err := errors.Join(stream.Call(blocked), stream.Record(e)); err != nil {
		return err
	}
	return errors.Join(f(e), stream.Synchronize(), stream.Close(), e.Close())
}
