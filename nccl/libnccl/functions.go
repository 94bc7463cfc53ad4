package libnccl

import (
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

	allReduce     func(send, recv, count uintptr, t Type, o Op, c Comm, stream uintptr) Result
	reduceScatter func(send, recv, count uintptr, t Type, o Op, c Comm, stream uintptr) Result
	allGather     func(send, recv, count uintptr, t Type, c Comm, stream uintptr) Result
}

// bind resolves NCCL's symbols. It returns the name of the first symbol that is missing.
func (f *functions) bind(from *library.Library) (lacks string) {
	for _, s := range []struct {
		name     string
		function any
	}{
		{"ncclGetVersion", &f.getVersion},
		{"ncclGetUniqueId", &f.getUniqueID},
		{"ncclGetLastError", &f.getLastError},
		{"ncclCommInitRankConfig", &f.commInitRankConfig},
		{"ncclCommFinalize", &f.commFinalize},
		{"ncclCommDestroy", &f.commDestroy},
		{"ncclCommAbort", &f.commAbort},
		{"ncclCommGetAsyncError", &f.commGetAsyncError},
		{"ncclAllReduce", &f.allReduce},
		{"ncclReduceScatter", &f.reduceScatter},
		{"ncclAllGather", &f.allGather},
	} {
		if at, ok := from.Symbol(s.name); ok {
			purego.RegisterFunc(s.function, at)
		} else if lacks == "" {
			lacks = s.name
		}
	}
	return lacks
}
