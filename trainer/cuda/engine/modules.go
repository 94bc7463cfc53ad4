//go:build cuda

package engine

import (
	"fmt"

	"github.com/ddpbatch/ddpbatch/trainer/cuda/driver"
	"github.com/ddpbatch/ddpbatch/trainer/cuda/kernels"
)

// function returns a kernel. Its module is loaded when one of its kernels is needed for the first
// time: the driver compiles the PTX, and most models need a part of the modules only.
func (d *Device) function(kernel string) *driver.Function {
	f := d.functions[kernel]
	if f == nil {
		d.check(d.load(kernels.Module(kernel)))
		f = d.functions[kernel]
	}
	return f
}

// load compiles the kernels of a source with the driver.
func (d *Device) load(name string) error {
	m, err := driver.LoadPTX(name, kernels.PTX(name))
	if err != nil {
		return err
	}
	d.modules = append(d.modules, m)
	for _, k := range kernels.Names(name) {
		if d.functions[k], err = m.Function(k); err != nil {
			return err
		}
	}
	return nil
}

// isHopper reports whether the GPU is the one that has the wgmma instructions.
func (d *Device) isHopper() bool { return d.gpu.Major == 9 && d.gpu.Minor == 0 }

// loadHopper loads the kernels for Hopper, if the GPU is one and attention uses them. It reports
// whether they are loaded. The driver may reject them, because it is older than their PTX version.
func (d *Device) loadHopper() bool {
	if d.hopper || d.fallback != nil || d.options.Attention == MMA || !d.isHopper() {
		return d.hopper
	}
	for _, name := range kernels.HopperModules() {
		if err := d.load(name); err != nil {
			d.fallback = d.fallbackError(err)
			return false
		}
	}
	d.hopper = true
	return true
}

// fallbackError returns the error of an option for attention that is replaced.
func (d *Device) fallbackError(why error) error {
	return fmt.Errorf("attention on GPU %d (%s) is by mma, not by wgmma: %w", d.gpu.Ordinal, d.gpu.Name, why)
}

// Fallback returns an error that names the options that this GPU or its driver does not support, and
// their replacements, or nil. It is complete when attention is planned.
func (d *Device) Fallback() error { return d.fallback }
