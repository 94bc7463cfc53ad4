// Package rtnetlink lists kernel objects over netlink. It does not change any.
package rtnetlink

import (
	"context"
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
)

// maxDumps limits the repetitions of a dump.
const maxDumps = 10

// Dump calls list again while a concurrent change interrupts it, up to 10 times. what names the
// objects in errors, such as "links".
func Dump[T any](ctx context.Context, what string, list func() (T, error)) (found T, err error) {
	for range maxDumps {
		if err = context.Cause(ctx); err != nil {
			break
		}
		if found, err = list(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	if err != nil {
		var zero T
		return zero, fmt.Errorf("list %s: %w", what, err)
	}
	return found, nil
}
