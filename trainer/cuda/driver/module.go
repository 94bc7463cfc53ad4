//go:build cuda

package driver

/*
#include <cuda.h>

// The log is in C memory: the driver receives its address as an integer.
static CUresult load_ptx(CUmodule *module, const void *text, char *log, size_t n) {
	CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
	void *values[] = {log, (void *)(uintptr_t)n};
	return cuModuleLoadDataEx(module, text, 2, options, values);
}
*/
import "C"

import (
	"fmt"
	"strings"
	"unsafe"

	"gorgonia.org/cu"
)

// Module is compiled code on one GPU.
type Module struct {
	name   string
	module cu.Module
}

// LoadPTX compiles PTX with the driver for the bound GPU. The driver caches the result below ~/.nv.
// name is for messages. An error contains the compiler's log.
func LoadPTX(name, ptx string) (*Module, error) {
	const logBytes = 16 << 10
	text, log := C.CString(ptx), (*C.char)(C.calloc(1, logBytes))
	defer C.free(unsafe.Pointer(text))
	defer C.free(unsafe.Pointer(log))
	m := &Module{name: name}
	r := C.load_ptx((*C.CUmodule)(unsafe.Pointer(&m.module)), unsafe.Pointer(text), log, logBytes)
	if r != C.CUDA_SUCCESS {
		return nil, failed("cuModuleLoadDataEx", r, func() string {
			what := fmt.Sprintf("module %q", name)
			if message := strings.TrimSpace(C.GoString(log)); message != "" {
				what += ": " + message
			}
			return what
		})
	}
	return m, nil
}

// Close unloads the module with its functions.
func (m *Module) Close() error { return wrap("cuModuleUnload", m.module.Unload(), nil) }

// Function is a kernel.
type Function struct {
	name     string
	function cu.Function
}

// Function returns a kernel by its name.
func (m *Module) Function(name string) (*Function, error) {
	f, err := m.module.Function(name)
	if err != nil {
		return nil, wrap("cuModuleGetFunction", err, func() string { return fmt.Sprintf("module %q, kernel %q", m.name, name) })
	}
	return &Function{name, f}, nil
}

// Global returns the address and the size in bytes of a variable of the module.
func (m *Module) Global(name string) (Ptr, int64, error) {
	p, n, err := m.module.Global(name)
	return p, n, wrap("cuModuleGetGlobal", err, func() string { return fmt.Sprintf("module %q, variable %q", m.name, name) })
}

// Name returns the kernel's name.
func (f *Function) Name() string { return f.name }

// AllowShared allows launches with up to n bytes of dynamic shared memory. The default limit is 48
// KiB. See [GPU.SharedMemory].
func (f *Function) AllowShared(n int) error {
	return failed("cuFuncSetAttribute",
		C.cuFuncSetAttribute(functionHandle(f.function), C.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, C.int(n)),
		func() string { return fmt.Sprintf("kernel %q, %d bytes of shared memory", f.name, n) })
}

// PreferShared makes the driver give the multiprocessor's shared memory to the kernel's blocks,
// instead of its L1 cache, so that more blocks are resident. It is a preference.
func (f *Function) PreferShared() error {
	const percent = 100
	return failed("cuFuncSetAttribute",
		C.cuFuncSetAttribute(functionHandle(f.function), C.CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, percent),
		func() string { return fmt.Sprintf("kernel %q, %d%% of shared memory", f.name, percent) })
}
