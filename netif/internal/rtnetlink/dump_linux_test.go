package rtnetlink

import (
	"context"
	"errors"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// TestDumpRepeatsInterruptedDumps checks that Dump repeats an interrupted dump a limited number of
// times, and returns other errors.
func TestDumpRepeatsInterruptedDumps(t *testing.T) {
	calls := 0
	got, err := Dump(t.Context(), "links", func() (int, error) {
		if calls++; calls < 3 {
			return 1, netlink.ErrDumpInterrupted
		}
		return 2, nil
	})
	if got != 2 || err != nil || calls != 3 {
		t.Errorf("got %d, %v after %d calls", got, err, calls)
	}
	if got, err := Dump(t.Context(), "links", func() (int, error) { return 1, netlink.ErrDumpInterrupted }); got != 0 || !errors.Is(err, netlink.ErrDumpInterrupted) {
		t.Errorf("got %d, %v, want an interrupted dump", got, err)
	}
	if _, err := Dump(t.Context(), "links", func() (int, error) { return 1, unix.EPERM }); !errors.Is(err, unix.EPERM) {
		t.Errorf("error %v, want EPERM", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Dump(ctx, "links", func() (int, error) { return 1, nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want context.Canceled", err)
	}
}
