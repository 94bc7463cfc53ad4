package inspect

import (
	"bufio"
	"context"
	"net"
	"net/netip"
	"os"
	"reflect"
	"strings"
	"testing"
)

// serveRAS stands in for NCCL's RAS service: it answers commands in lines and closes the connection
// after the status. It returns its address and the received commands.
func serveRAS(t *testing.T, answers map[string]string) (addr string, commands <-chan string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	received := make(chan string, 16)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			lines := bufio.NewScanner(conn)
			for lines.Scan() {
				received <- lines.Text()
				answer, ok := answers[lines.Text()]
				if !ok {
					break
				}
				if _, err := conn.Write([]byte(answer)); err != nil || strings.HasSuffix(lines.Text(), "STATUS") {
					break
				}
			}
			conn.Close()
		}
	}()
	return l.Addr().String(), received
}

// TestQueryRAS asks a stand-in for NCCL's RAS service, on which this process listens.
func TestQueryRAS(t *testing.T) {
	const status = "NCCL version 2.24.3 compiled with CUDA 12.6\n\nErrors\n======\n"
	for _, tt := range []struct {
		name     string
		answers  map[string]string
		env      []string
		want     string // part of the answer
		commands []string
	}{
		{"status", map[string]string{"TIMEOUT 5": "OK\n", "VERBOSE STATUS": status}, nil, status, []string{"TIMEOUT 5", "VERBOSE STATUS"}},
		{"third node", map[string]string{"TIMEOUT 5": "OK\n", "VERBOSE STATUS": status}, []string{"SLURM_NODEID=2"}, status, []string{"TIMEOUT 5", "VERBOSE STATUS"}},
		{"fourth node", nil, []string{"SLURM_NODEID=3"}, "", nil},
		{"another service", map[string]string{"TIMEOUT 5": "HTTP/1.1 400 Bad Request\n"}, nil, `unexpected answer "HTTP/1.1 400 Bad Request"`, []string{"TIMEOUT 5"}},
		{"closed", nil, nil, "no answer from 127.0.0.1:", []string{"TIMEOUT 5"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			addr, commands := serveRAS(t, tt.answers)
			ranks := []Rank{{Rank: 0, PID: -1}, {Rank: 1, PID: os.Getpid(), environ: []string{rasAddressVariable + "=" + addr}}}
			queryRAS(t.Context(), ranks, tt.env)
			if got := ranks[1].RAS; ranks[0].RAS != "" || !strings.Contains(got, tt.want) || tt.want == "" && got != "" {
				t.Errorf("got %q and %q, want %q", ranks[0].RAS, got, tt.want)
			}
			var got []string
			for len(commands) > 0 {
				got = append(got, <-commands)
			}
			if !reflect.DeepEqual(got, tt.commands) {
				t.Errorf("got commands %q, want %q", got, tt.commands)
			}
		})
	}
}

// TestAskRASStops checks that a service that does not answer is left when the context ends.
func TestAskRASStops(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		conn, err := l.Accept()
		if err == nil {
			defer conn.Close()
		}
		cancel()
		<-t.Context().Done()
	}()
	if text, err := askRAS(ctx, netip.MustParseAddrPort(l.Addr().String())); err == nil {
		t.Errorf("got %q", text)
	}
}

// TestFindRAS checks that only a socket of the rank counts.
func TestFindRAS(t *testing.T) {
	addr, _ := serveRAS(t, nil)
	environ := []string{rasAddressVariable + "=localhost" + addr[strings.LastIndex(addr, ":"):]}
	if got, ok := findRAS(&Rank{PID: os.Getpid(), environ: environ}); !ok || got.String() != addr {
		t.Errorf("got %v, %v, want %s", got, ok, addr)
	}
	if got, ok := findRAS(&Rank{PID: os.Getppid(), environ: environ}); ok {
		t.Errorf("got %v, the socket of another process", got)
	}
	if got, ok := findRAS(&Rank{PID: os.Getpid(), environ: []string{rasAddressVariable + "=localhost:1"}}); ok {
		t.Errorf("got %v, another port", got)
	}
}

// TestLoopback checks to which address a client connects.
func TestLoopback(t *testing.T) {
	for listener, want := range map[string]string{"0.0.0.0:1": "127.0.0.1:1", "[::]:1": "[::1]:1", "127.0.0.1:1": "127.0.0.1:1", "[fe80::1]:1": "[fe80::1]:1"} {
		if got := loopback(netip.MustParseAddrPort(listener)); got.String() != want {
			t.Errorf("%s: got %v, want %s", listener, got, want)
		}
	}
}
