//go:build cuda

package driver

/*
#include <cuda.h>

void ddpbHostCall(uintptr_t handle);

static inline void host_call(void *handle) { ddpbHostCall((uintptr_t)handle); }

static inline CUresult launch_host(CUstream s, uintptr_t handle) { return cuLaunchHostFunc(s, host_call, (void *)handle); }
*/
import "C"

import "runtime/cgo"

// HostFunc is a Go function that a stream can call.
type HostFunc struct{ handle cgo.Handle }

// NewHostFunc creates a function that streams can call until Close. It runs on a thread of the
// driver, and the stream waits for it: it must be short, must not call CUDA, and must not wait for
// CUDA work.
func NewHostFunc(f func()) HostFunc { return HostFunc{cgo.NewHandle(f)} }

// Close releases the function. No stream or graph may call it afterwards.
func (h HostFunc) Close() { h.handle.Delete() }

// Call enqueues a call of the function in the stream.
func (s Stream) Call(h HostFunc) error {
	return failed("cuLaunchHostFunc", C.launch_host(streamHandle(s.stream), C.uintptr_t(h.handle)), nil)
}

//export ddpbHostCall
func ddpbHostCall(handle C.uintptr_t) { cgo.Handle(handle).Value().(func())() }
