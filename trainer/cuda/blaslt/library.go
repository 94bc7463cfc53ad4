//go:build cuda

package blaslt

/*
#cgo CFLAGS: -std=gnu11 -Wall -fvisibility=hidden
#include <stdlib.h>
#include "calls.h"
*/
import "C"

import (
	"fmt"
	"unsafe"

	"github.com/ddpbatch/ddpbatch/trainer/cuda/library"
)

// Library holds the functions of cuBLASLt.
type Library struct {
	functions *C.ddpb_lt // in C memory, because plans refer to it
}

// New resolves the functions of a loaded library.
func New(l *library.Library) (*Library, error) {
	f := (*C.ddpb_lt)(C.malloc(C.sizeof_ddpb_lt))
	for _, b := range []struct {
		to   unsafe.Pointer
		name string
	}{
		{unsafe.Pointer(&f.create), "Create"},
		{unsafe.Pointer(&f.version), "GetVersion"},
		{unsafe.Pointer(&f.destroy), "Destroy"},
		{unsafe.Pointer(&f.desc_create), "MatmulDescCreate"},
		{unsafe.Pointer(&f.desc_destroy), "MatmulDescDestroy"},
		{unsafe.Pointer(&f.desc_set), "MatmulDescSetAttribute"},
		{unsafe.Pointer(&f.layout_create), "MatrixLayoutCreate"},
		{unsafe.Pointer(&f.layout_destroy), "MatrixLayoutDestroy"},
		{unsafe.Pointer(&f.preference_create), "MatmulPreferenceCreate"},
		{unsafe.Pointer(&f.preference_destroy), "MatmulPreferenceDestroy"},
		{unsafe.Pointer(&f.preference_set), "MatmulPreferenceSetAttribute"},
		{unsafe.Pointer(&f.heuristic), "MatmulAlgoGetHeuristic"},
		{unsafe.Pointer(&f.matmul), "Matmul"},
	} {
		at, ok := l.Symbol("cublasLt" + b.name)
		if !ok {
			C.free(unsafe.Pointer(f))
			return nil, fmt.Errorf("%s is not a cuBLASLt library: it has no cublasLt%s", l.Path, b.name)
		}
		*(*uintptr)(b.to) = at
	}
	return &Library{f}, nil
}

// Status is a cublasStatus_t.
type Status int

func (s Status) Error() string {
	names := map[Status]string{1: "NOT_INITIALIZED", 3: "ALLOC_FAILED", 7: "INVALID_VALUE", 8: "ARCH_MISMATCH", 11: "MAPPING_ERROR",
		13: "EXECUTION_FAILED", 14: "INTERNAL_ERROR", 15: "NOT_SUPPORTED", 16: "LICENSE_ERROR"}
	if name, ok := names[s]; ok {
		return "CUBLAS_STATUS_" + name
	}
	return fmt.Sprintf("cublasStatus_t %d", int(s))
}
