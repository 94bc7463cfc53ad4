//go:build cuda

package blaslt

/*
#cgo CFLAGS: -std=gnu11 -Wall -fvisibility=hidden
#include <stdlib.h>
#include "calls.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/ebitengine/purego"
)

// Files are where the dynamic linker finds cuBLASLt, of the newest CUDA that a driver
// of a version (12080 is 12.8) supports first.
func Files(driver int) []string {
	var files []string
	for major := min(driver/1000, 13); major >= 11; major-- {
		files = append(files, fmt.Sprintf("libcublasLt.so.%d", major))
	}
	return files
}

// Library is a cuBLASLt that is loaded.
type Library struct {
	File      string
	functions *C.ddpb_lt // C's memory, as plans refer to it
}

// notFound is a machine without a cuBLASLt that will do.
type notFound struct{ error }

// Hint says what to do about it.
func (notFound) Hint() string {
	return "load the centre's module of CUDA, or install it (pip install nvidia-cublas-cu12), and have LD_LIBRARY_PATH lead to its libcublasLt"
}

// Open loads the first of some files that is a cuBLASLt.
func Open(files []string) (*Library, error) {
	var errs []error
	for _, file := range files {
		l, err := load(file)
		if err == nil {
			return l, nil
		}
		errs = append(errs, err)
	}
	return nil, notFound{fmt.Errorf("load cuBLASLt: %w", errors.Join(errs...))}
}

func load(file string) (*Library, error) {
	handle, err := purego.Dlopen(file, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		return nil, err // it names the file
	}
	f := (*C.ddpb_lt)(C.malloc(C.sizeof_ddpb_lt))
	for _, b := range []struct {
		to   unsafe.Pointer
		name string
	}{
		{unsafe.Pointer(&f.get_version), "GetVersion"},
		{unsafe.Pointer(&f.create), "Create"},
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
		at, err := purego.Dlsym(handle, "cublasLt"+b.name)
		if err != nil {
			C.free(unsafe.Pointer(f))
			return nil, fmt.Errorf("%s is no cuBLASLt: %w", file, err)
		}
		*(*uintptr)(b.to) = at
	}
	return &Library{file, f}, nil
}

// Version is cuBLASLt's own: 120600 is 12.6.
func (l *Library) Version() int { return int(C.ddpb_lt_version(l.functions)) }

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
