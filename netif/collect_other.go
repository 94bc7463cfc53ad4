//go:build !linux

package netif

import (
	"context"
	"errors"
	"runtime"
)

// CollectOptions holds the options of [Collect].
type CollectOptions struct {
	SysRoot string // mount point of sysfs; "" is /sys
}

// Collect requires Linux and returns an error on other systems. [ReadInventory], [Choose], and
// [Agree] work everywhere.
func Collect(context.Context, CollectOptions) (Inventory, error) {
	return Inventory{}, errors.New("collecting network interfaces: only Linux is supported, this is " + runtime.GOOS)
}
