//go:build !linux

package netif

import (
	"context"
	"errors"
	"runtime"
)

// Collect requires Linux and returns an error on other systems. [ReadCases], [Choose], and
// [Agree] work everywhere.
func Collect(context.Context) (Inventory, error) {
	return Inventory{}, errors.New("read network interfaces: not supported on " + runtime.GOOS)
}
