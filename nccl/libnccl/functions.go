package libnccl

import (
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/ddpbatch/ddpbatch/trainer/cuda/library"
)

// functions are NCCL's functions with C types.
type functions struct {
	getVersion         func(*int32) Result
	getUniqueID        func(*UniqueID) Result
	getLastError       func(Comm) *byte
	commInitRankConfig func(*Comm, int32, UniqueID, int32, *Config) Result
	commFinalize       func(Comm) Result
	commDestroy        func(Comm) Result
	commAbort          func(Comm) Result
	commGetAsyncError  func(Comm, *Result) Result
	groupStart         func() Result
	groupEnd           func() Result

	allReduce     func(send, recv unsafe.Pointer, count uintptr, t Type, o Op, c Comm, stream uintptr) Result
	reduceScatter func(send, recv unsafe.Pointer, count uintptr, t Type, o Op, c Comm, stream uintptr) Result
	reduce        func(send, recv unsafe.Pointer, count uintptr, t Type, o Op, root int32, c Comm, stream uintptr) Result
	broadcast     func(send, recv unsafe.Pointer, count uintptr, t Type, root int32, c Comm, stream uintptr) Result
	allGather     func(send, recv unsafe.Pointer, count uintptr, t Type, c Comm, stream uintptr) Result
	send          func(buf unsafe.Pointer, count uintptr, t Type, peer int32, c Comm, stream uintptr) Result
	recv          func(buf unsafe.Pointer, count uintptr, t Type, peer int32, c Comm, stream uintptr) Result

	commSplit func(c Comm, color, key int32, out *Comm, config *Config) Result // since 2.18.1
}

// bind resolves NCCL's symbols. It returns the name of the first required symbol that is
// missing.
func (f *functions) bind(from *library.Library) (lacks string) {
	for _, s := range []struct {
		name     string
		function any
		optional bool
	}{
		{"ncclGetVersion", &f.getVersion, false},
		{"ncclGetUniqueId", &f.getUniqueID, false},
		{"ncclGetLastError", &f.getLastError, false},
		{"ncclCommInitRankConfig", &f.commInitRankConfig, false},
		{"ncclCommFinalize", &f.commFinalize, false},
		{"ncclCommDestroy", &f.commDestroy, false},
		{"ncclCommAbort", &f.commAbort, false},
		{"ncclCommGetAsyncError", &f.commGetAsyncError, false},
		{"ncclGroupStart", &f.groupStart, false},
		{"ncclGroupEnd", &f.groupEnd, false},
		{"ncclAllReduce", &f.allReduce, false},
		{"ncclReduceScatter", &f.reduceScatter, false},
		{"ncclReduce", &f.reduce, false},
		{"ncclBroadcast", &f.broadcast, false},
		{"ncclAllGather", &f.allGather, false},
		{"ncclSend", &f.send, false},
		{"ncclRecv", &f.recv, false},
		{"ncclCommSplit", &f.commSplit, true},
	} {
		if at, ok := from.Symbol(s.name); ok {
			purego.RegisterFunc(s.function, at)
		} else if !s.optional && lacks == "" {
			lacks = s.name
		}
	}
	return lacks
}
