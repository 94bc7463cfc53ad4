//go:build cuda

package driver

// #include <cuda.h>
import "C"

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
)

// Code is a driver result, CUresult. errors.Is finds it in an [*Error].
type Code int

// These codes are used by callers.
const (
	OutOfMemory          Code = C.CUDA_ERROR_OUT_OF_MEMORY
	ECCUncorrectable     Code = C.CUDA_ERROR_ECC_UNCORRECTABLE
	NoDevice             Code = C.CUDA_ERROR_NO_DEVICE
	InvalidContext       Code = C.CUDA_ERROR_INVALID_CONTEXT
	NotReady             Code = C.CUDA_ERROR_NOT_READY
	MissingFunction      Code = C.CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND
	SystemDriverMismatch Code = C.CUDA_ERROR_SYSTEM_DRIVER_MISMATCH
	unknown              Code = C.CUDA_ERROR_UNKNOWN
)

// sticky lists the errors that end a CUDA context: every later call returns the error, also if a
// kernel caused it that was launched long before.
var sticky = []Code{
	ECCUncorrectable, C.CUDA_ERROR_NVLINK_UNCORRECTABLE, contained, C.CUDA_ERROR_ILLEGAL_ADDRESS, C.CUDA_ERROR_LAUNCH_TIMEOUT, C.CUDA_ERROR_LAUNCH_INCOMPATIBLE_TEXTURING,
	C.CUDA_ERROR_CONTEXT_IS_DESTROYED, C.CUDA_ERROR_ASSERT, C.CUDA_ERROR_HARDWARE_STACK_ERROR, C.CUDA_ERROR_ILLEGAL_INSTRUCTION, C.CUDA_ERROR_MISALIGNED_ADDRESS,
	C.CUDA_ERROR_INVALID_ADDRESS_SPACE, C.CUDA_ERROR_INVALID_PC, C.CUDA_ERROR_LAUNCH_FAILED, tensorMemoryLeak, C.CUDA_ERROR_EXTERNAL_DEVICE, unknown,
}

// These errors were added in CUDA 12.
const (
	contained        Code = 226
	tensorMemoryLeak Code = 721
)

// IsSticky reports whether an error ends the CUDA context. An operation that was enqueued before
// the call that returned the error may have caused it.
func IsSticky(err error) bool {
	var e *Error
	return errors.As(err, &e) && slices.Contains(sticky, e.Code)
}

// Error returns CUDA's name, such as CUDA_ERROR_OUT_OF_MEMORY, and its description.
func (c Code) Error() string {
	var name, text *C.char
	if C.cuGetErrorName(C.CUresult(c), &name) == C.CUDA_SUCCESS && name != nil {
		if C.cuGetErrorString(C.CUresult(c), &text) == C.CUDA_SUCCESS && text != nil {
			return C.GoString(name) + " (" + C.GoString(text) + ")"
		}
		return C.GoString(name)
	}
	// Without a driver, only these codes occur.
	switch c {
	case NoDevice:
		return "CUDA_ERROR_NO_DEVICE (no CUDA-capable device is detected)"
	case SystemDriverMismatch:
		return "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH (system has unsupported display driver / cuda driver combination)"
	}
	return fmt.Sprintf("CUDA error %d", int(c))
}

// Error is the error of a failed driver call.
type Error struct {
	Op   string // function of the driver
	What string // its arguments, such as "kernel \"add\", grid 4x1x1 ..."; may be empty
	Code Code
}

func (e *Error) Error() string {
	s := e.Op
	if e.What != "" {
		s += ": " + e.What
	}
	return s + ": " + e.Code.Error()
}

func (e *Error) Unwrap() error { return e.Code }

// Hint returns the fix.
func (e *Error) Hint() string {
	switch e.Code {
	case OutOfMemory:
		return "reduce train.batch (and increase train.accumulate), the context, or the model, or shard the optimizer state with train.strategy = \"zero1\"; run `nvidia-smi` to check whether another process uses the GPU's memory"
	case ECCUncorrectable:
		return "GPU memory error: ask the site to drain the node (see `nvidia-smi -q -d ECC`), then resume on another node"
	case MissingFunction:
		return "the NVIDIA driver of this node is too old for " + e.Op
	case unknown:
		return "run `nvidia-smi` on the node to check whether the driver works; `dmesg` shows Xid errors of the hardware"
	}
	if slices.Contains(sticky, e.Code) {
		return "run again with CUDA_LAUNCH_BLOCKING=1 to find the operation that failed; `dmesg` on the node shows Xid errors of the hardware"
	}
	return ""
}

// failed returns the error of a call with result r. It calls what only if there is an error.
func failed(op string, r C.CUresult, what func() string) error {
	if r == C.CUDA_SUCCESS {
		return nil
	}
	e := &Error{Op: op, Code: Code(r)}
	if what != nil {
		e.What = what()
	}
	return e
}

// wrap returns the error of a call through package cu, whose error type is private and has
// different names for the codes.
func wrap(op string, err error, what func() string) error {
	if err == nil {
		return nil
	}
	return failed(op, C.CUresult(codeOf(err)), what)
}

func codeOf(err error) Code {
	for ; err != nil; err = errors.Unwrap(err) {
		if v := reflect.ValueOf(err); v.Kind() == reflect.Int {
			return Code(v.Int())
		}
	}
	return unknown
}
