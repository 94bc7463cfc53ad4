//go:build cuda

package driver

/*
#cgo CFLAGS: -std=gnu11 -Wall -fvisibility=hidden
#cgo LDFLAGS: -ldl -lpthread
#ifndef DDPBATCH_HEADERS
#error "build with make, or through trainer/cuda/cgo.sh"
#endif
#include "loader.h"
*/
import "C"

import "fmt"

// Version is a CUDA version: 1000 times the major plus 10 times the minor version.
type Version int

// Oldest is the oldest CUDA version with supported drivers.
const Oldest Version = 11000

func (v Version) String() string { return fmt.Sprintf("%d.%d", v/1000, v%1000/10) }

// Reason is the reason why no driver is usable.
type Reason int

// The reasons are:
const (
	NoLibrary  Reason = iota + 1 // libcuda.so.1 was not found or could not be loaded
	NoDriver                     // the library is not a CUDA driver
	InitFailed                   // the driver could not be initialized, or finds no GPU
	TooOld                       // the driver's CUDA version is older than [Oldest]
)

// LoadError is the error if the driver is not usable.
type LoadError struct {
	Reason  Reason
	Code    Code    // result of cuInit, for InitFailed
	Version Version // CUDA version of the driver; 0 if unknown
	Detail  string  // error of the dynamic linker, for NoLibrary
}

func (e *LoadError) Error() string {
	const what = "load the CUDA driver libcuda.so.1"
	switch e.Reason {
	case NoLibrary:
		return what + ": " + e.Detail
	case NoDriver:
		return what + ": the library has no function cuInit"
	case TooOld:
		return fmt.Sprintf("%s: its CUDA version %s is too old: %s is the oldest that is supported", what, e.Version, Oldest)
	}
	return fmt.Sprintf("initialize the CUDA driver (CUDA %s): %s", e.Version, e.Code)
}

// Hint returns the fix.
func (e *LoadError) Hint() string {
	switch {
	case e.Reason == NoLibrary:
		return "libcuda.so.1 comes with the NVIDIA driver: run on a node with a GPU, or in a container with GPU access (apptainer --nv), or set LD_LIBRARY_PATH to the directory of the library"
	case e.Reason == NoDriver:
		return "remove the directory of a libcuda.so.1 that is not NVIDIA's from LD_LIBRARY_PATH; `ldconfig -p | grep libcuda` shows the system's library"
	case e.Reason == TooOld:
		return "ask the site for a newer NVIDIA driver (450 or later)"
	case e.Code == NoDevice:
		return "request a GPU with slurm.gpus_per_node, and check that CUDA_VISIBLE_DEVICES is not empty"
	case e.Code == SystemDriverMismatch:
		return "libcuda.so.1 and the loaded kernel module have different versions: reboot the node, or use a different driver library in the container"
	}
	return "run `nvidia-smi` on the node to check whether the driver works"
}

// Load loads the driver once and returns the CUDA version that it supports. The error is a
// [*LoadError].
func Load() (Version, error) {
	d := C.ddpb_driver()
	e := &LoadError{Version: Version(d.version)}
	switch d.state {
	case C.DDPB_READY:
		if e.Version >= Oldest {
			return e.Version, nil
		}
		e.Reason = TooOld
	case C.DDPB_NO_LIBRARY:
		e.Reason, e.Detail = NoLibrary, C.GoString(&d.why[0])
	case C.DDPB_NO_DRIVER:
		e.Reason = NoDriver
	default:
		e.Reason, e.Code = InitFailed, Code(d.result)
	}
	return e.Version, e
}
