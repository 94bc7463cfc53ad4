package mpi_test

import (
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/trainer/collective"
	"github.com/ddpbatch/ddpbatch/trainer/collective/element"
	"github.com/ddpbatch/ddpbatch/trainer/collective/mpi"
)

// workerVariable makes a process of this binary a rank that performs the test's calls, which it
// receives over a socket: "TIMEOUT,PATH".
const workerVariable = "MPI_TEST_WORKER"

// question is a call that the test sends to a rank.
type question struct {
	ID    uint64
	What  string // "do", "split", "close", "cancel"
	Comm  uint64 // 0 for the world, otherwise the ID of the split that created it
	Call  collective.Call
	Recv  int  // length of Call.Recv, which is not transmitted
	Inner int  // offset of the shorter buffer in the longer one; -1 if they do not overlap
	Arena bool // whether the buffers are in the communicator's memory
	Color int
	Key   int
	Why   string // cause of a cancellation
}

// answer is the result of a call.
type answer struct {
	ID         uint64
	Send, Recv []byte
	Rank, Size int
	None       bool // Split returned no group
	Error      string
	Failure    *failure
}

// failure is the encoded form of a collective.Error.
type failure struct {
	Op       string
	Sequence uint64
	Peer     collective.Peer
	Text     string
}

func TestMain(m *testing.M) {
	for variable, run := range map[string]func(string) error{workerVariable: work, bitsVariable: printBits, endVariable: end} {
		if text, ok := os.LookupEnv(variable); ok {
			if err := run(text); err != nil {
				fmt.Println("failed:", err)
				os.Exit(1)
			}
			os.Exit(0)
		}
	}
	os.Exit(m.Run())
}

// worker is the state of a rank.
type worker struct {
	world   *mpi.World
	sending sync.Mutex
	send    *gob.Encoder
	mu      sync.Mutex
	comms   map[uint64]collective.Communicator
	cancel  map[uint64]context.CancelCauseFunc
}

func work(text string) error {
	duration, socket, _ := strings.Cut(text, ",")
	timeout, err := time.ParseDuration(duration)
	if err != nil {
		return err
	}
	world, err := mpi.Connect(context.Background(), mpi.Options{Host: "here", Lookup: os.LookupEnv, ConnectTimeout: time.Minute, Timeout: timeout})
	if err != nil {
		return err
	}
	conn, err := net.Dial("unix", socket)
	if err != nil {
		return err
	}
	w := &worker{world: world, send: gob.NewEncoder(conn), comms: map[uint64]collective.Communicator{0: world}, cancel: map[uint64]context.CancelCauseFunc{}}
	w.answer(answer{Rank: world.Rank()})
	receive := gob.NewDecoder(conn)
	for {
		var q question
		if err := receive.Decode(&q); err != nil {
			// The test has ended. A rank that could not close is reported and does not hang the
			// others.
			_ = world.Finalize()
			return nil
		}
		w.serve(q)
	}
}

func (w *worker) answer(a answer) {
	w.sending.Lock()
	defer w.sending.Unlock()
	_ = w.send.Encode(a) // the test may have ended
}

func (w *worker) serve(q question) {
	w.mu.Lock()
	c := w.comms[q.Comm]
	w.mu.Unlock()
	switch q.What {
	case "do":
		ctx, cancel := context.WithCancelCause(context.Background())
		w.mu.Lock()
		w.cancel[q.ID] = cancel
		w.mu.Unlock()
		call := w.buffers(c, q)
		request := c.Start(ctx, call) // in this goroutine, because the order matters
		go func() {
			a := failed(answer{ID: q.ID}, request.Wait())
			cancel(nil)
			a.Send, a.Recv = call.Send, call.Recv
			w.answer(a)
		}()
	case "split":
		go func() {
			g, err := c.Split(context.Background(), q.Color, q.Key)
			a := failed(answer{ID: q.ID, None: g == nil}, err)
			if g != nil {
				a.Rank, a.Size = g.Rank(), g.Size()
				w.mu.Lock()
				w.comms[q.ID] = g
				w.mu.Unlock()
			}
			w.answer(a)
		}()
	case "close":
		w.answer(failed(answer{ID: q.ID}, c.Close()))
	case "cancel":
		w.mu.Lock()
		w.cancel[q.ID](errors.New(q.Why))
		w.mu.Unlock()
	}
}

// buffers allocates the buffers of a call with the same overlap as in the test.
func (w *worker) buffers(c collective.Communicator, q question) collective.Call {
	memory := func(n int) []byte {
		if q.Arena {
			b, err := collective.Alloc[uint8](context.Background(), c, n)
			if err == nil && b != nil {
				return b
			}
		}
		return element.Bytes(make([]float64, n/8+1))[:n]
	}
	call := q.Call
	send := call.Send
	long := max(len(send), q.Recv)
	call.Send, call.Recv = nil, nil
	if q.Inner >= 0 {
		all := memory(long)
		call.Send, call.Recv = all[:len(send)], all[:q.Recv]
		if len(send) < q.Recv {
			call.Send = all[q.Inner:][:len(send)]
		} else {
			call.Recv = all[q.Inner:][:q.Recv]
		}
	} else {
		call.Send, call.Recv = memory(len(send)), memory(q.Recv)
	}
	copy(call.Send, send)
	return call
}

// failed adds an error to an answer.
func failed(a answer, err error) answer {
	if err == nil {
		return a
	}
	a.Error = err.Error()
	var e *collective.Error
	if errors.As(err, &e) {
		a.Failure = &failure{e.Op, e.Sequence, e.Peer, e.Err.Error()}
	}
	return a
}
