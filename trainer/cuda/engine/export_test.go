//go:build cuda

package engine

import "github.com/ddpbatch/ddpbatch/trainer/cuda/driver"

// Modules returns the number of modules that are loaded.
func (d *Device) Modules() int { return len(d.modules) }

// PoolStats returns the sizes of the device's memory pool.
func (d *Device) PoolStats() driver.PoolStats { return d.pool.Stats() }
