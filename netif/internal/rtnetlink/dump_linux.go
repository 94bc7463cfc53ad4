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

// Dump calls list until no concurrent change interrupts it, at most 10 times. It checks ctx before
// each call. Errors contain what, the plural noun for the objects, such as "links".
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
