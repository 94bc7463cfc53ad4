package libnccl

import (
	"fmt"
	"strings"
)

// A Result is an ncclResult_t, the result of a call.
type Result int32

// The results. Timeout exists since 2.30.
const (
	Success Result = iota
	UnhandledCUDAError
	SystemError
	InternalError
	InvalidArgument
	InvalidUsage
	RemoteError
	InProgress
	Timeout
)

var resultNames = [...]string{"ncclSuccess", "ncclUnhandledCudaError", "ncclSystemError", "ncclInternalError",
	"ncclInvalidArgument", "ncclInvalidUsage", "ncclRemoteError", "ncclInProgress", "ncclTimeout"}

// String returns NCCL's name of the result.
func (r Result) String() string {
	if r < 0 || int(r) >= len(resultNames) {
		return fmt.Sprintf("ncclResult %d", int32(r))
	}
	return resultNames[r]
}

// An Error is a failed call, or an asynchronous error of a communicator.
type Error struct {
	Call   string // such as "ncclCommInitRankConfig"
	Result Result
	Last   string // text of ncclGetLastError, often the most useful detail
}

// Error returns the call, the result, and NCCL's text in one line.
func (e *Error) Error() string {
	text := fmt.Sprintf("%s: %v", e.Call, e.Result)
	if last := strings.Join(strings.Fields(e.Last), " "); last != "" {
		text += ": " + last
	}
	return text
}

// meanings holds the fix for each result, based on NCCL's user guide.
var meanings = map[Result]string{
	UnhandledCUDAError: "a CUDA call of NCCL failed: check dmesg for Xid lines, compare the driver version of nvidia-smi with the CUDA version of libnccl, and run with NCCL_DEBUG=INFO, whose last line names the call",
	SystemError:        "a system call failed, usually a network call, or /dev/shm is full: run with NCCL_DEBUG=INFO and NCCL_DEBUG_SUBSYS=INIT,NET,ENV, which names the call and the interface, and check NCCL_SOCKET_IFNAME and NCCL_IB_HCA",
	InternalError:      "a bug in NCCL, or corrupt memory: run with NCCL_DEBUG=INFO, save the output, and try a different version of libnccl",
	InvalidArgument:    "run with NCCL_DEBUG=WARN, which names the invalid argument; if all ranks run the same program, report a bug in ddpbatch",
	InvalidUsage:       "run with NCCL_DEBUG=WARN, and check for two ranks on one GPU (CUDA_VISIBLE_DEVICES) and for different versions of NCCL on the nodes",
	RemoteError:        "another rank or its network failed: check the first rank that failed; if no other rank failed, run with NCCL_DEBUG=INFO and NCCL_DEBUG_SUBSYS=NET",
	Timeout:            "NCCL waited too long for another rank: check the first rank that failed; if no other rank failed, run with NCCL_DEBUG=INFO",
}

// Hint returns the fix.
func (e *Error) Hint() string { return meanings[e.Result] }
