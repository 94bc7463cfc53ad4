package launch

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/trainer/rendezvous"
	"github.com/ddpbatch/ddpbatch/trainer/wire"
)

// TestAwaitReports checks that the exit code of a rank counts even if its message arrives late,
// as on a busy node, and that a rank without such a message is lost.
func TestAwaitReports(t *testing.T) {
	for _, tt := range []struct {
		name    string
		leave   bool
		timeout time.Duration
		exit    int
		state   rendezvous.State
		failure string
	}{
		{"late", true, time.Hour, 42, rendezvous.Done, ""},
		{"never", false, time.Millisecond, 0, rendezvous.Joined, "rank 0 on n1 was lost: its process ended, but its exit code did not arrive"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			secret, err := wire.NewSecret()
			if err != nil {
				t.Fatal(err)
			}
			a := &attempt{server: rendezvous.Serve(listener, rendezvous.ServerOptions{WorldSize: 1, Secret: secret, JoinTimeout: time.Hour,
				Host: func(int) string { return "n1" }})}
			defer a.server.Close()
			s, err := rendezvous.Join(t.Context(), []string{listener.Addr().String()}, secret, rendezvous.Identity{WorldSize: 1, Host: "n1"})
			if err != nil {
				t.Fatal(err)
			}
			finished := make(chan struct{})
			go func() {
				if _, err := a.server.Wait(t.Context()); err == nil {
					close(finished)
				}
			}()
			if tt.leave {
				time.AfterFunc(500*time.Millisecond, func() { _ = s.Leave(tt.exit, nil) })
			}
			a.awaitReports(finished, tt.timeout)
			o := a.server.Outcome()
			if o.Exit != tt.exit || o.Ranks[0].State != tt.state {
				t.Errorf("got exit code %d and state %q, want %d and %q", o.Exit, o.Ranks[0].State, tt.exit, tt.state)
			}
			if got := failureText(o.First); (got == "") != (tt.failure == "") || !strings.HasPrefix(got, tt.failure) {
				t.Errorf("got failure %q, want %q", got, tt.failure)
			}
		})
	}
}

func failureText(f *rendezvous.Failure) string {
	if f == nil {
		return ""
	}
	return f.Reason
}
