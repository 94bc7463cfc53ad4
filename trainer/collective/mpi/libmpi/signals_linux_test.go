package libmpi

import (
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"
)

// TestSignalsAreRestored checks that a signal handler that a library replaces without Go's
// knowledge is restored and works.
func TestSignalsAreRestored(t *testing.T) {
	came := make(chan os.Signal, 1)
	signal.Notify(came, syscall.SIGUSR1)
	defer signal.Stop(came)
	before := saveSignals()
	taken := before
	taken[syscall.SIGUSR1] = [4]uint64{1} // SIG_IGN; the first field is the handler (sigaction(2))
	taken.restore()
	if now := saveSignals(); now[syscall.SIGUSR1][0] != 1 {
		t.Fatalf("the action was not taken: %v", now[syscall.SIGUSR1])
	}
	before.restore()
	if after := saveSignals(); after != before {
		t.Errorf("the actions are %v, were %v", after, before)
	}
	if err := syscall.Kill(os.Getpid(), syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	select {
	case <-came:
	case <-time.After(time.Minute):
		t.Error("the signal does not come")
	}
}
