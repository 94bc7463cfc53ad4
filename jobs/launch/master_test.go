package launch

import (
	"syscall"
	"testing"
)

// TestCandidatePortsAreOutsideTheEphemeralRange checks that candidates are unprivileged ports that
// the kernel does not assign on its own.
func TestCandidatePortsAreOutsideTheEphemeralRange(t *testing.T) {
	for _, tt := range []struct{ low, high int }{{32768, 60999}, {1024, 65535}, {15000, 25000}, {49152, 65535}, {1024, 30000}, {20000, 20000}} {
		total := 0
		first := candidatePort(tt.low, tt.high, func(n int) int { total = n; return 0 })
		if total == 0 {
			if tt.low > firstPort || tt.high < 65535 || first != 0 {
				t.Errorf("%v: nothing is offered", tt)
			}
			continue
		}
		seen := map[int]bool{}
		for i := range total {
			p := candidatePort(tt.low, tt.high, func(int) int { return i })
			if p < firstPort || p > 65535 || p >= tt.low && p <= tt.high || seen[p] {
				t.Fatalf("%v: port %d", tt, p)
			}
			seen[p] = true
		}
	}
}

// TestPortSearchFallsBackToTheKernel checks the search if another user occupies all ports that
// ddpbatch prefers.
func TestPortSearchFallsBackToTheKernel(t *testing.T) {
	for _, tt := range []struct {
		name      string
		low, high int
		free      func(port int) bool
		want      func(port int) bool
	}{
		{"preferred port is free", 32768, 60999, func(port int) bool { return true }, func(port int) bool { return port >= firstPort && port < 32768 || port > 60999 }},
		{"all preferred ports are occupied", 32768, 60999, func(port int) bool { return port == 0 }, func(port int) bool { return port == 0 }},
		{"no port is preferred", 1024, 65535, func(port int) bool { return port == 0 }, func(port int) bool { return port == 0 }},
	} {
		got, err := searchPort(tt.low, tt.high, func(port int) (int, error) {
			if tt.free(port) {
				return port, nil
			}
			return 0, syscall.EADDRINUSE
		})
		if err != nil || !tt.want(got) {
			t.Errorf("%s: got %d, %v", tt.name, got, err)
		}
	}
	if port, err := tryPort(0); err != nil || port == 0 {
		t.Errorf("port of the kernel's choice: got %d, %v", port, err)
	}
}
