//go:build cuda

package driver

// #include <cuda.h>
import "C"

import (
	"fmt"
	"runtime"
	"strings"

	"gorgonia.org/cu"
)

// Count returns the number of visible GPUs.
func Count() (int, error) {
	if _, err := Load(); err != nil {
		return 0, err
	}
	n, err := cu.NumDevices()
	return n, wrap("cuDeviceGetCount", err, nil)
}

// Describe returns what the driver says of a GPU, without opening it.
func Describe(ordinal int) (Info, error) {
	i := Info{Ordinal: ordinal}
	if _, err := Load(); err != nil {
		return i, err
	}
	what := func() string { return fmt.Sprintf("GPU %d", ordinal) }
	d, err := cu.GetDevice(ordinal)
	if err != nil {
		return i, wrap("cuDeviceGet", err, what)
	}
	if i.Name, err = d.Name(); err != nil {
		return i, wrap("cuDeviceGetName", err, what)
	}
	// The driver has no question for it; it names parts so: "NVIDIA H100 80GB HBM3 MIG 1g.10gb".
	i.MIG = strings.Contains(i.Name, " MIG ")
	id, err := d.UUID()
	if err != nil {
		return i, wrap("cuDeviceGetUuid", err, what)
	}
	if i.UUID = "GPU-" + id.String(); i.MIG {
		i.UUID = "MIG-" + id.String()
	}
	if i.Memory, err = d.TotalMem(); err != nil {
		return i, wrap("cuDeviceTotalMem", err, what)
	}
	for attribute, to := range map[cu.DeviceAttribute]*int{
		cu.ComputeCapabilityMajor: &i.Major, cu.ComputeCapabilityMinor: &i.Minor, cu.MultiprocessorCount: &i.Processors,
	} {
		if *to, err = d.Attribute(attribute); err != nil {
			return i, wrap("cuDeviceGetAttribute", err, what)
		}
	}
	var pci [32]C.char
	if err := failed("cuDeviceGetPCIBusId", C.cuDeviceGetPCIBusId(&pci[0], C.int(len(pci)), C.CUdevice(d)), what); err != nil {
		return i, err
	}
	i.PCI = strings.ToLower(C.GoString(&pci[0]))
	return i, nil
}

// GPU is an open GPU: its primary context, held until Close.
type GPU struct {
	Info
	device  cu.Device
	context cu.CUContext
}

// Open opens a GPU by its ordinal.
func Open(ordinal int) (*GPU, error) {
	info, err := Describe(ordinal)
	if err != nil {
		return nil, err
	}
	d := cu.Device(ordinal)
	context, err := d.RetainPrimaryCtx()
	if err != nil {
		return nil, wrap("cuDevicePrimaryCtxRetain", err, func() string { return fmt.Sprintf("GPU %d (%s)", ordinal, info.Name) })
	}
	return &GPU{Info: info, device: d, context: context}, nil
}

// Close gives the context back. Nothing of the GPU may be used afterwards.
func (g *GPU) Close() error {
	return wrap("cuDevicePrimaryCtxRelease", g.device.ReleasePrimaryCtx(), nil)
}

// Bind ties the calling goroutine to its thread and makes the GPU that thread's, as
// every call of this package, of NCCL and of cuBLASLt needs. It costs too much to do
// so for each call: a goroutine that works with a GPU binds it once. What it returns
// brings back, on the same goroutine, what was bound before.
func (g *GPU) Bind() (unbind func(), err error) {
	runtime.LockOSThread()
	before, err := cu.CurrentContext()
	if err == nil {
		err = cu.SetCurrentContext(g.context)
	}
	if err != nil {
		runtime.UnlockOSThread()
		return nil, wrap("cuCtxSetCurrent", err, nil)
	}
	return func() {
		if cu.SetCurrentContext(before) == nil {
			runtime.UnlockOSThread()
		}
		// Else the thread ends with the goroutine: no other may find the GPU there.
	}, nil
}

// Attribute asks for a property by its number in CUdevice_attribute; package cu has
// names for them.
func (g *GPU) Attribute(a cu.DeviceAttribute) (int, error) {
	v, err := g.device.Attribute(a)
	return v, wrap("cuDeviceGetAttribute", err, func() string { return fmt.Sprintf("GPU %d, attribute %d", g.Ordinal, a) })
}

// SharedMemory is the bytes of dynamic shared memory that a block may ask for, after
// [Function.AllowShared].
func (g *GPU) SharedMemory() (int, error) {
	return g.Attribute(C.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)
}

// Free returns how many bytes of the bound GPU's memory are free, of how many.
func (g *GPU) Free() (free, total int64, err error) {
	free, total, err = cu.MemInfo()
	return free, total, wrap("cuMemGetInfo", err, nil)
}

// Synchronize waits for everything that was asked of the bound GPU.
func (g *GPU) Synchronize() error { return wrap("cuCtxSynchronize", cu.Synchronize(), nil) }

// CanAccess says whether kernels of this GPU can address memory of the other.
func (g *GPU) CanAccess(other *GPU) (bool, error) {
	can, err := g.device.CanAccessPeer(other.device)
	return can != 0, wrap("cuDeviceCanAccessPeer", err, nil)
}
