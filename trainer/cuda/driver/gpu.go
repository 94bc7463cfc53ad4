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

// Describe returns the driver's description of a GPU without opening it.
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
	// The driver API cannot query MIG mode, but it is in the name: "NVIDIA H100 80GB HBM3 MIG
	// 1g.10gb".
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

// GPU is an open GPU: its primary context, which is retained until Close.
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

// Close releases the context. The GPU must not be used afterwards.
func (g *GPU) Close() error {
	return wrap("cuDevicePrimaryCtxRelease", g.device.ReleasePrimaryCtx(), nil)
}

// Bind locks the calling goroutine to its thread and sets the GPU as the thread's current context,
// as required by every call of this package, of NCCL, and of cuBLASLt. Binding for each call would
// be too slow: a goroutine that works with a GPU binds it once. The returned function restores the
// previous binding and must be called on the same goroutine.
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
		// Otherwise the thread exits with the goroutine, so that no other goroutine uses it with
		// this GPU.
	}, nil
}

// Attribute returns an attribute by its number in CUdevice_attribute. Package cu defines names for
// them.
func (g *GPU) Attribute(a cu.DeviceAttribute) (int, error) {
	v, err := g.device.Attribute(a)
	return v, wrap("cuDeviceGetAttribute", err, func() string { return fmt.Sprintf("GPU %d, attribute %d", g.Ordinal, a) })
}

// SharedMemory returns the maximum size of dynamic shared memory of a block in bytes, after
// [Function.AllowShared].
func (g *GPU) SharedMemory() (int, error) {
	return g.Attribute(C.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)
}

// Free returns the free and the total memory of the bound GPU in bytes.
func (g *GPU) Free() (free, total int64, err error) {
	free, total, err = cu.MemInfo()
	return free, total, wrap("cuMemGetInfo", err, nil)
}
