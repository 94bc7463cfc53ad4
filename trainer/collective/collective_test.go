package collective

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/trainer/wire"
)

// rings returns n connected ranks in this process.
func rings(t testing.TB, n int, timeout time.Duration) []Communicator {
	t.Helper()
	if n == 1 {
		return []Communicator{Alone{}}
	}
	secret, err := wire.NewSecret()
	if err != nil {
		t.Fatal(err)
	}
	listeners := make([]net.Listener, n)
	for i := range listeners {
		if listeners[i], err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
	}
	out := make([]Communicator, n)
	var wg sync.WaitGroup
	for i := range n {
		next := (i + 1) % n
		o := RingOptions{Rank: i, Size: n, Secret: secret, Next: Peer{next, listeners[next].Addr().String()},
			Source: net.IPv4(127, 0, 0, 1), ConnectTimeout: 10 * time.Second, Timeout: timeout}
		wg.Go(func() {
			r, err := Connect(t.Context(), listeners[i], o)
			if err != nil {
				t.Errorf("rank %d: %v", i, err)
				return
			}
			out[i] = r
		})
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
	t.Cleanup(func() {
		for _, c := range out {
			c.Close()
		}
	})
	return out
}

func each(t testing.TB, comms []Communicator, f func(c Communicator) error) {
	t.Helper()
	var wg sync.WaitGroup
	for _, c := range comms {
		wg.Go(func() {
			if err := f(c); err != nil {
				t.Errorf("rank %d: %v", c.Rank(), err)
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
}

var sizes = []int{0, 1, 2, 3, 7, 1000, pieceSize/4 - 1, pieceSize / 4, 3*pieceSize/4 + 5}

// value is what rank r has at place i: sums of such integers are exact.
func value(r, i int) float64 { return float64((r+1)*(i%97) - 40*r) }

func TestAllReduceSums(t *testing.T) {
	for _, n := range []int{1, 2, 3, 5, 8} {
		t.Run(fmt.Sprint(n, " ranks"), func(t *testing.T) {
			each(t, rings(t, n, 20*time.Second), func(c Communicator) error {
				for _, size := range sizes {
					single, double := make([]float32, size), make([]float64, size)
					for i := range size {
						single[i], double[i] = float32(value(c.Rank(), i)), value(c.Rank(), i)
					}
					if err := c.AllReduce(t.Context(), single); err != nil {
						return err
					}
					if err := c.AllReduceFloat64(t.Context(), double); err != nil {
						return err
					}
					for i := range size {
						want := 0.0
						for r := range n {
							want += value(r, i)
						}
						if double[i] != want || float64(single[i]) != want {
							return fmt.Errorf("size %d, element %d: %v and %v, want %v", size, i, single[i], double[i], want)
						}
					}
				}
				return nil
			})
		})
	}
}

// Rounding depends on order; every rank must have the same bits, every time.
func TestAllReduceBitsAreTheSameEverywhere(t *testing.T) {
	const n, size = 4, 10_001
	var first []float32
	for run := range 3 {
		var mu sync.Mutex
		got := make([][]float32, n)
		each(t, rings(t, n, 20*time.Second), func(c Communicator) error {
			g := rand.New(rand.NewPCG(1, uint64(c.Rank())))
			buf := make([]float32, size)
			for i := range buf {
				buf[i] = float32(g.NormFloat64() * math.Exp(5*g.NormFloat64()))
			}
			err := c.AllReduce(t.Context(), buf)
			mu.Lock()
			got[c.Rank()] = buf
			mu.Unlock()
			return err
		})
		if run == 0 {
			first = got[0]
		}
		for r := range n {
			if !bytes.Equal(asBytes(got[r]), asBytes(first)) {
				t.Fatalf("run %d: rank %d has other bits", run, r)
			}
		}
	}
}

func TestBroadcast(t *testing.T) {
	for _, n := range []int{1, 2, 5} {
		for root := range n {
			each(t, rings(t, n, 20*time.Second), func(c Communicator) error {
				for _, size := range sizes {
					want := bytes.Repeat([]byte{byte(root + 1)}, size)
					buf := make([]byte, size)
					if c.Rank() == root {
						copy(buf, want)
					}
					if err := c.Broadcast(t.Context(), buf, root); err != nil {
						return err
					}
					if !bytes.Equal(buf, want) {
						return fmt.Errorf("size %d from %d differs", size, root)
					}
				}
				return nil
			})
		}
	}
}

func TestBarrierWaitsForTheLast(t *testing.T) {
	var mu sync.Mutex
	entered := 0
	each(t, rings(t, 4, 20*time.Second), func(c Communicator) error {
		time.Sleep(time.Duration(c.Rank()*20) * time.Millisecond)
		mu.Lock()
		entered++
		mu.Unlock()
		if err := c.Barrier(t.Context()); err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		if entered != 4 {
			return fmt.Errorf("left when %d had entered", entered)
		}
		return nil
	})
}

// fails runs f on every rank and returns the errors by rank.
func fails(comms []Communicator, f func(c Communicator) error) []error {
	errs := make([]error, len(comms))
	var wg sync.WaitGroup
	for i, c := range comms {
		wg.Go(func() { errs[i] = f(c) })
	}
	wg.Wait()
	return errs
}

func TestLostNeighbourIsNamed(t *testing.T) {
	comms := rings(t, 3, 20*time.Second)
	errs := fails(comms, func(c Communicator) error {
		if c.Rank() == 1 {
			return c.Close()
		}
		return c.AllReduce(t.Context(), make([]float32, 100_000))
	})
	var e *Error
	if !errors.As(errs[2], &e) || e.Peer.Rank != 1 || e.Op != "all-reduce" || !strings.Contains(e.Error(), "all-reduce 0 with rank 1 (127.0.0.1:") {
		t.Errorf("rank 2 says %v", errs[2])
	}
	if errs[0] == nil {
		t.Error("rank 0 did not notice")
	}
	if again := comms[2].Barrier(t.Context()); !errors.Is(again, errs[2]) {
		t.Errorf("the failure is not final: %v", again)
	}
}

func TestSilentNeighbourTimesOut(t *testing.T) {
	comms := rings(t, 3, 200*time.Millisecond)
	errs := fails(comms, func(c Communicator) error {
		if c.Rank() == 0 {
			return nil
		}
		return c.Barrier(t.Context())
	})
	if errs[1] == nil || !strings.Contains(errs[1].Error(), "barrier 0 with rank 0") || !strings.Contains(errs[1].Error(), "no answer within 200ms") {
		t.Errorf("rank 1 says %v", errs[1])
	}
}

func TestCancelledOperationReturns(t *testing.T) {
	comms := rings(t, 2, time.Minute)
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("rank 7 was lost")
	time.AfterFunc(50*time.Millisecond, func() { cancel(why) })
	if err := comms[0].Barrier(ctx); !errors.Is(err, why) {
		t.Errorf("got %v, want the cause", err)
	}
}

func TestDivergedRanksFindOut(t *testing.T) {
	for name, tt := range map[string]struct {
		f    func(c Communicator) error
		want string
	}{
		"other operation": {func(c Communicator) error {
			if c.Rank() == 0 {
				return c.Barrier(t.Context())
			}
			return c.AllReduce(t.Context(), make([]float32, 10))
		}, "have diverged"},
		"other length": {func(c Communicator) error {
			return c.AllReduce(t.Context(), make([]float32, 10+2*c.Rank()))
		}, "differ in length"},
	} {
		t.Run(name, func(t *testing.T) {
			joined := errors.Join(fails(rings(t, 2, 2*time.Second), tt.f)...)
			if joined == nil || !strings.Contains(joined.Error(), tt.want) {
				t.Errorf("got %v, want %q", joined, tt.want)
			}
		})
	}
}

// Every altered byte of a frame is noticed.
func TestDamagedPieceIsRefused(t *testing.T) {
	var frame bytes.Buffer
	payload := []byte("gradients")
	send := &link{conn: writeConn{w: &frame}, op: opBroadcast, sequence: 3}
	if err := send.sendPiece(payload); err != nil {
		t.Fatal(err)
	}
	good := frame.Bytes()
	try := func(b []byte) error {
		l := &link{conn: readConn{bytes.NewReader(b)}, op: opBroadcast, sequence: 3}
		return l.receivePiece(make([]byte, len(payload)))
	}
	if err := try(good); err != nil {
		t.Fatal(err)
	}
	for i := range good {
		if i >= 1 && i <= 3 {
			continue // reserved bytes say nothing
		}
		bad := bytes.Clone(good)
		bad[i] ^= 1
		if try(bad) == nil {
			t.Errorf("byte %d altered: accepted", i)
		}
		if try(good[:i]) == nil {
			t.Errorf("cut to %d bytes: accepted", i)
		}
	}
}

// readConn and writeConn are one direction of a connection in memory.
type readConn struct{ io.Reader }
type writeConn struct {
	readConn
	w io.Writer
}

func (c writeConn) Write(b []byte) (int, error) { return c.w.Write(b) }

func (readConn) Close() error                     { return nil }
func (readConn) LocalAddr() net.Addr              { return nil }
func (readConn) RemoteAddr() net.Addr             { return nil }
func (readConn) SetDeadline(time.Time) error      { return nil }
func (readConn) SetReadDeadline(time.Time) error  { return nil }
func (readConn) SetWriteDeadline(time.Time) error { return nil }
func (readConn) Write([]byte) (int, error)        { return 0, io.ErrClosedPipe }

func TestStrangersDoNotEnterTheRing(t *testing.T) {
	secret, _ := wire.NewSecret()
	l0, _ := net.Listen("tcp", "127.0.0.1:0")
	l1, _ := net.Listen("tcp", "127.0.0.1:0")
	for range 3 {
		c, err := net.Dial("tcp", l0.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		fmt.Fprint(c, strings.Repeat("nmap", 100))
	}
	silent, err := net.Dial("tcp", l0.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	var wg sync.WaitGroup
	for rank, l := range []net.Listener{l0, l1} {
		next := []net.Listener{l1, l0}[rank]
		wg.Go(func() {
			r, err := Connect(t.Context(), l, RingOptions{Rank: rank, Size: 2, Secret: secret, Next: Peer{1 - rank, next.Addr().String()},
				ConnectTimeout: 10 * time.Second, Timeout: time.Second})
			if err != nil {
				t.Error(err)
				return
			}
			defer r.Close()
			if err := r.Barrier(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

func BenchmarkAllReduce(b *testing.B) {
	for _, size := range []int{1 << 10, 1 << 18, 25 << 18} {
		b.Run(fmt.Sprint(size*4, " bytes"), func(b *testing.B) {
			comms := rings(b, 2, time.Minute)
			b.SetBytes(int64(size * 4))
			b.ResetTimer()
			each(b, comms, func(c Communicator) error {
				buf := make([]float32, size)
				for range b.N {
					if err := c.AllReduce(b.Context(), buf); err != nil {
						return err
					}
				}
				return nil
			})
		})
	}
}
