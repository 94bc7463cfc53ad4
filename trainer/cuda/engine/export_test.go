//go:build cuda

package engine

import "github.com/ddpbatch/ddpbatch/trainer/cuda/driver"

// PoolStats returns the sizes of the device's memory pool.
func (d *Device) PoolStats() driver.PoolStats { return d.pool.Stats() }
