//go:build !linux

package netif

import (
	"context"
	"errors"
	"runtime"
)

// CollectOptions says where Collect looks.
type CollectOptions struct {
	SysRoot string // where sysfs is mounted; "" is /sys
}

// Collect needs Linux: it fails on every other system, where [ReadInventory]
// and the choice itself still work.
func Collect(context.Context, CollectOptions) (Inventory, error) {
	return Inventory{}, errors.New("collecting network interfaces: only Linux is supported, this is " + runtime.GOOS)
}
