//go:build cuda

package engine

import (
	"strings"

	"github.com/ddpbatch/ddpbatch/trainer/cuda/driver"
)

// Modules returns the number of modules that are loaded.
func (d *Device) Modules() int { return len(d.modules) }

// PoolStats returns the sizes of the device's memory pool.
func (d *Device) PoolStats() driver.PoolStats { return d.pool.Stats() }

// LastPart returns the calls of the last new part of a group, with the names of package plan.
func (d *Device) LastPart() []string {
	var names []string
	for _, c := range d.group.recorded[len(d.group.recorded)-1].calls {
		switch c.kind {
		case launches:
			names = append(names, c.function.Name())
		case multiplies:
			kernel := "matmul"
			for product, plan := range d.products.plans {
				if plan == c.plan && !product.BF16 {
					kernel = "matmul32"
				}
			}
			names = append(names, strings.Replace(c.is.String(), "matmul of", kernel, 1))
		case clears:
			names = append(names, "fill")
		default:
			names = append(names, "copy")
		}
	}
	return names
}

// LimitShared sets the maximum shared memory of a block.
func (d *Device) LimitShared(bytes int) { d.shared = bytes }

// SetSeconds replaces the function that returns the time of a run while algorithms are timed.
func (d *Device) SetSeconds(seconds func(run func() error) (float64, error)) {
	d.products.tuning.seconds = seconds
}
