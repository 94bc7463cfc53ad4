//go:build cuda

package driver

// #include <cuda.h>
import "C"

import (
	"unsafe"

	"gorgonia.org/cu"
)

// The handles of package cu are structs with one private C pointer. They are reinterpreted only
// here. If their size differs, the code does not compile.
const pointer = unsafe.Sizeof(uintptr(0))

var (
	_ [0]struct{} = [unsafe.Sizeof(cu.Function{}) - pointer]struct{}{}
	_ [0]struct{} = [unsafe.Sizeof(cu.Stream{}) - pointer]struct{}{}
	_ [0]struct{} = [unsafe.Sizeof(cu.Event{}) - pointer]struct{}{}
	_ [0]struct{} = [unsafe.Sizeof(cu.Module{}) - pointer]struct{}{}
	_ [0]struct{} = [unsafe.Sizeof(cu.Graph{}) - pointer]struct{}{}
	_ [0]struct{} = [unsafe.Sizeof(cu.ExecGraph{}) - pointer]struct{}{}
	_ [0]struct{} = [unsafe.Sizeof(cu.CUContext{}) - pointer]struct{}{}
)

func functionHandle(f cu.Function) C.CUfunction { return *(*C.CUfunction)(unsafe.Pointer(&f)) }
func streamHandle(s cu.Stream) C.CUstream       { return *(*C.CUstream)(unsafe.Pointer(&s)) }
func graphHandle(g cu.Graph) C.CUgraph          { return *(*C.CUgraph)(unsafe.Pointer(&g)) }
func execHandle(g cu.ExecGraph) C.CUgraphExec   { return *(*C.CUgraphExec)(unsafe.Pointer(&g)) }
func contextHandle(c cu.CUContext) C.CUcontext  { return *(*C.CUcontext)(unsafe.Pointer(&c)) }
