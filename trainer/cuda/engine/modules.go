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

// loadHopper loads the kernels for Hopper, if the GPU is one and the driver accepts them: it may be
// older than their PTX version.
func (d *Device) loadHopper() error {
	if d.gpu.Major != 9 || d.gpu.Minor != 0 {
		return fmt.Errorf("attention on GPU %d (%s) is by mma, not by wgmma: its compute capability is %d.%d, and only 9.0 has wgmma",
			d.gpu.Ordinal, d.gpu.Name, d.gpu.Major, d.gpu.Minor)
	}
	for _, name := range kernels.HopperModules() {
		if err := d.load(name); err != nil {
			return fmt.Errorf("attention on GPU %d (%s) is by mma, not by wgmma: %w", d.gpu.Ordinal, d.gpu.Name, err)
		}
	}
	d.hopper = true
	return nil
}

// Fallback returns an error that names the options that this GPU or its driver does not support, and
// their replacements, or nil.
func (d *Device) Fallback() error { return d.fallback }
